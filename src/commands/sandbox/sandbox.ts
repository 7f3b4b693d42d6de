import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, isIP } from 'node:net'
import { fileURLToPath } from 'node:url'
import { type Args, type Io, MAX_PORT, textOf, UsageError, wholeOf, writeLines } from '../io.ts'
import { CALLBACK, CLIENT, createDataApi, createIdentity, DATA_SCOPES } from './backends.ts'

type Addresses = Readonly<Record<'gateway' | 'admin' | 'identity' | 'data', string>>

const LOOPBACK = '127.0.0.1'
/** Every address of the machine. */
const ANY = '0.0.0.0'
/** Audience of the access tokens, as in config/sandbox.yaml. */
const AUDIENCE = 'https://data.sandbox.example'
const HOST_NAME = /^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/i

/** Serves an OpenID Provider, a Data API and the gateway before them until SIGINT or SIGTERM, and prints how to try it out. */
export async function run(args: Args, io: Io): Promise<void> {
  const ending = new AbortController()
  const end = (): void => ending.abort()
  io.once('SIGINT', end).once('SIGTERM', end)
  try {
    const sandbox = await openSandbox(args, ending.signal)
    writeLines(io.stdout, sandbox.instructions)
    if (!ending.signal.aborted) await once(ending.signal, 'abort')
    await sandbox.close()
  } catch (error) {
    if (!ending.signal.aborted) throw error
  }
}

/** Starts the backends and then the gateway. If it fails, or `signal` is aborted between two starts, closes everything and rejects. */
export async function openSandbox(args: Args, signal: AbortSignal) {
  const limit = wholeOf(args, 'limit', Number.MAX_SAFE_INTEGER)
  const { bound, shown } = addressOf(textOf(args, 'host')!)
  const closers: (() => Promise<void>)[] = []
  const close = async (): Promise<void> => {
    for (const close of closers.splice(0).toReversed()) await close()
  }
  const serve = async (server: Server, flag: string): Promise<string> => {
    const port = await listen(server, LOOPBACK, args, flag)
    closers.push(() => shut(server))
    return `http://${LOOPBACK}:${port}`
  }
  try {
    // The provider and the gateway must know the gateway's address before it listens.
    const port = await findPort(bound, args, 'port')
    const adminPort = await findPort(LOOPBACK, args, 'admin-port')
    const gateway = `http://${shown}:${port}`
    const issuer = `${gateway}/oidc`
    const client = {
      client_id: CLIENT.id,
      client_secret: CLIENT.secret,
      grant_types: ['client_credentials', 'authorization_code', 'refresh_token'],
      response_types: ['code' as const],
      scope: `openid offline_access ${DATA_SCOPES}`,
      redirect_uris: [`${gateway}${CALLBACK}`],
    }
    const provider = await createIdentity({ issuer, audience: AUDIENCE, clients: [client] })
    signal.throwIfAborted()
    const identity = await serve(provider, 'identity-port')
    const data = await serve(createDataApi(), 'data-port')
    // Imported only now, so that signals are handled from the start.
    const { loadConfig } = await import('../../config/load.ts')
    const { start } = await import('../../process/start.ts')
    const { config } = await loadConfig({
      file: sandboxConfig(),
      env: {
        SLUICE_HOST: bound,
        SLUICE_PORT: String(port),
        SLUICE_ADMIN_PORT: String(adminPort),
        IDENTITY_URL: identity,
        DATA_URL: data,
        ISSUER: issuer,
        REQUEST_LIMIT: String(limit),
      },
      overrides: [
        { flag: 'sandbox', path: ['tokens', 'jwks'], value: `${identity}/oidc/certs` },
        { flag: '--log-level', path: ['log', 'level'], value: textOf(args, 'log-level')! },
      ],
    })
    signal.throwIfAborted()
    const { adminAddress: admin, close: drain } = await start({ ...config, drainTimeoutMs: 1000 })
    closers.push(() => drain())
    return { instructions: describe({ gateway, admin, identity, data }, limit), close }
  } catch (error) {
    await close()
    throw error
  }
}

/** Finds the file from the sources, which are three folders down, or from the build, which is four. */
function sandboxConfig(): string {
  const paths = ['../../../config/sandbox.yaml', '../../../../config/sandbox.yaml']
  return paths.map((path) => fileURLToPath(new URL(path, import.meta.url))).find((path) => existsSync(path))!
}

/** Returns the address that the callers' listener binds, and the host of its URLs. A name may be resolvable only for callers. */
function addressOf(host: string): { readonly bound: string; readonly shown: string } {
  if (host === 'localhost' || host === LOOPBACK) return { bound: LOOPBACK, shown: 'localhost' }
  if (host === ANY || host === '::') return { bound: host, shown: 'localhost' }
  if (isIP(host) !== 0) return { bound: host, shown: isIP(host) === 6 ? `[${host}]` : host }
  if (HOST_NAME.test(host)) return { bound: ANY, shown: host }
  throw new UsageError(`--host: "${host}" is not an address or host name; write one without scheme and port.`)
}

async function findPort(host: string, args: Args, flag: string): Promise<number> {
  const server = createServer()
  return await listen(server, host, args, flag).finally(() => server.close())
}

async function listen(server: Server, host: string, args: Args, flag: string): Promise<number> {
  const port = wholeOf(args, flag, MAX_PORT)
  await once(server.listen(port, host), 'listening').catch(({ code, message }: NodeJS.ErrnoException) => {
    const other = 'Give --host one of its own, its name, or 0.0.0.0 for all.'
    if (code === 'EADDRNOTAVAIL') throw new Error(`${host} is not an address of this machine. ${other}`)
    const reason = code === 'EADDRINUSE' ? 'is taken' : `cannot be opened: ${message}`
    throw new Error(`Port ${port} ${reason}. Choose another with --${flag}; 0 takes a free one.`)
  })
  return (server.address() as AddressInfo).port
}

async function shut(server: Server): Promise<void> {
  const closed = once(server.close(), 'close')
  server.closeAllConnections()
  await closed
}

/** Returns a command that extracts a string member from a line of JSON. */
const member = (name: string): string => `sed -E 's/.*"${name}":"([^"]+)".*/\\1/'`

/** Describes the servers of the sandbox, and lists commands to paste into a shell with bash, curl and sed. */
function describe({ gateway, admin, identity, data }: Addresses, limit: number): string {
  const issuer = `${gateway}/oidc`
  const { id, secret } = CLIENT
  const basic = `-u ${id}:${secret}`
  const bearer = '-H "Authorization: Bearer $TOKEN"'
  const sync = `${gateway}/v3/sync/1ffe704d-3962-4a92-8c8e-293880fb449a`
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

A call: 200, and the X-RateLimit headers show what remains:

curl -i ${bearer} '${gateway}/v3/transactions?limit=2'

What remains of the client's limits, which costs no call:

curl -s ${bearer} ${gateway}/v3/rate-limits; echo

A sync of a bank connection, allowed once in 5 seconds: 200:

curl -i -X POST ${bearer} ${sync}

Two syncs in a row: the second is always refused with 429:

for i in 1 2; do curl -i -X POST ${bearer} ${sync}; echo; done

A pushed authorisation request, and the address at which the user goes on; open it in a browser:

REQUEST_URI=$(${push} | ${member('request_uri')})
echo "${issuer}/auth?client_id=${id}&request_uri=$REQUEST_URI"

The rest of the client's ${limit} calls a minute (sooner with --limit 5): 200 until they are used up, then 429:

for i in $(seq ${limit + 1}); do curl -s -o /dev/null -w '%{http_code}\\n' ${bearer} ${gateway}/v3/transactions; done
`
}
