import { existsSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import type { ClientMetadata } from 'oidc-provider'
import { type Given, type Io, writeLines, wholeOf } from '../io.ts'
import { CALLBACK, createDataApi, createIdentity, DATA_SCOPES } from './backends.ts'

const HOST = '127.0.0.1'
const AUDIENCE = 'https://data.sandbox.example'
const CLIENT = { id: 'sandbox', secret: 'sandbox-secret' }
const CLIENT_METADATA: ClientMetadata = {
  client_id: CLIENT.id,
  client_secret: CLIENT.secret,
  grant_types: ['client_credentials', 'authorization_code', 'refresh_token'],
  response_types: ['code'],
  scope: `openid offline_access ${DATA_SCOPES}`,
}
const DRAIN_MS = 1000
const MOST_PORTS = 65_535

/** Serves an OpenID Provider, a Data API and the gateway before them until SIGINT or SIGTERM, and prints how to try it out. */
export async function run(given: Given, io: Io): Promise<void> {
  const port = (flag: string): number => wholeOf(given, flag, MOST_PORTS)
  const options = {
    port: port('port'),
    adminPort: port('admin-port'),
    identityPort: port('identity-port'),
    dataPort: port('data-port'),
    limit: wholeOf(given, 'limit', Number.MAX_SAFE_INTEGER),
  }
  const ending = new AbortController()
  const end = (): void => ending.abort()
  io.once('SIGINT', end).once('SIGTERM', end)
  const ended = new Promise((resolve) => ending.signal.addEventListener('abort', resolve))
  try {
    const sandbox = await openSandbox(options, ending.signal)
    writeLines(io.stdout, sandbox.instructions)
    await ended
    await sandbox.close()
  } catch (error) {
    if (!ending.signal.aborted) throw error
  }
}

/**
 * Starts the backends and the gateway one after the other, and returns how to try them out. Rejects once `signal` is aborted
 * between two of them; closes what it started where it rejects. Port 0 is any free one; `limit` is a client's calls a minute.
 */
export async function openSandbox(
  options: Readonly<Record<'port' | 'adminPort' | 'identityPort' | 'dataPort' | 'limit', number>>,
  signal: AbortSignal,
) {
  const closers: (() => Promise<void>)[] = []
  const close = async (): Promise<void> => {
    for (const one of closers.splice(0).toReversed()) await one()
  }
  const serve = async (server: Server, port: number, flag: string): Promise<string> => {
    const address = `http://${HOST}:${await listen(server, port, flag)}`
    closers.push(() => shut(server))
    return address
  }
  try {
    // The provider and the gateway must know the gateway's address before it listens.
    const port = await findPort(options.port, '--port')
    const adminPort = await findPort(options.adminPort, '--admin-port')
    const gateway = `http://localhost:${port}`
    const issuer = `${gateway}/oidc`

    const client = { ...CLIENT_METADATA, redirect_uris: [`${gateway}${CALLBACK}`] }
    const provider = await createIdentity({ issuer, audience: AUDIENCE, clients: [client] })
    signal.throwIfAborted()
    const identity = await serve(provider, options.identityPort, '--identity-port')
    const data = await serve(createDataApi(), options.dataPort, '--data-port')
    // Imported now, so that a signal is handled from the first moment on.
    const { loadConfig } = await import('../../config/load.ts')
    const { start } = await import('../../process/start.ts')
    const { config } = await loadConfig({
      file: sandboxConfig(),
      env: {
        SLUICE_PORT: String(port),
        SLUICE_ADMIN_PORT: String(adminPort),
        IDENTITY_URL: identity,
        DATA_URL: data,
        ISSUER: issuer,
        AUDIENCE,
        REQUEST_LIMIT: String(options.limit),
      },
      overrides: [{ flag: 'sandbox', path: ['tokens', 'jwks'], value: `${identity}/oidc/certs` }],
    })
    signal.throwIfAborted()
    const { adminAddress: admin, close: drain } = await start({ ...config, drainTimeoutMs: DRAIN_MS })
    closers.push(() => drain())
    return { instructions: instructions({ gateway, admin, identity, data, issuer }, options.limit), close }
  } catch (error) {
    await close()
    throw error
  }
}

/** From the sources the folder is three up, from the build four. */
const CONFIG = ['../../../config/sandbox.yaml', '../../../../config/sandbox.yaml']

function sandboxConfig(): string {
  return CONFIG.map((path) => fileURLToPath(new URL(path, import.meta.url))).find((path) => existsSync(path))!
}

async function findPort(wanted: number, flag: string): Promise<number> {
  const server = createServer()
  const port = await listen(server, wanted, flag)
  await shut(server)
  return port
}

function listen(server: Server, port: number, flag: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', ({ code, message }: NodeJS.ErrnoException) => {
      const reason = code === 'EADDRINUSE' ? 'is taken' : `cannot be opened: ${message}`
      reject(new Error(`Port ${port} ${reason}. Choose another with ${flag}; 0 takes a free one.`))
    })
    server.listen(port, HOST, () => resolve((server.address() as AddressInfo).port))
  })
}

function shut(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve())
    server.closeAllConnections()
  })
}

/** Any bank connection will do. */
const CONNECTION = '1ffe704d-3962-4a92-8c8e-293880fb449a'

/** What runs where, and the lines to paste into a shell: bash, curl and sed are all they need. */
function instructions(
  {
    gateway,
    admin,
    identity,
    data,
    issuer,
  }: Readonly<Record<'gateway' | 'admin' | 'identity' | 'data' | 'issuer', string>>,
  limit: number,
): string {
  const { id, secret } = CLIENT
  const basic = `-u ${id}:${secret}`
  const bearer = '-H "Authorization: Bearer $TOKEN"'
  const sync = `${gateway}/v3/sync/${CONNECTION}`
  const push = [
    `curl -s ${basic} ${issuer}/request -d response_type=code -d client_id=${id}`,
    `-d redirect_uri=${gateway}${CALLBACK} --data-urlencode 'scope=openid ${DATA_SCOPES}'`,
    '-d state=a-state -d nonce=a-nonce',
  ].join(' ')

  return `
Sluice's sandbox

  ${gateway.padEnd(28)} the gateway; ${issuer} is the issuer
  ${admin.padEnd(28)} the console; also /healthz /readyz /metrics
  ${identity.padEnd(28)} the OpenID Provider behind it
  ${data.padEnd(28)} the Data API behind it

Paste these into another terminal. Ctrl-C here ends everything.

An access token for the client "${id}":

TOKEN=$(curl -s ${basic} -d grant_type=client_credentials --data-urlencode 'scope=${DATA_SCOPES}' ${issuer}/token | ${member('access_token')})

A call: 200, and the X-RateLimit headers show what is left:

curl -i ${bearer} '${gateway}/v3/transactions?limit=2'

A sync of a bank connection, allowed once in 5 seconds: 200:

curl -i -X POST ${bearer} ${sync}

Twice at once: whatever the first gets, the second is refused with 429:

for i in 1 2; do curl -i -X POST ${bearer} ${sync}; echo; done

A pushed authorisation request, and the address at which the user goes on; open it in a browser:

REQUEST_URI=$(${push} | ${member('request_uri')})
echo "${issuer}/auth?client_id=${id}&request_uri=$REQUEST_URI"

What is left of the client's ${limit} calls a minute, used up (after --limit 5, sooner): 200 as long as it lasts, then 429:

for i in $(seq ${limit + 1}); do curl -s -o /dev/null -w '%{http_code}\\n' ${bearer} ${gateway}/v3/transactions; done
`
}

/** A filter that takes one text member out of a line of JSON. */
function member(name: string): string {
  return `sed -E 's/.*"${name}":"([^"]+)".*/\\1/'`
}
