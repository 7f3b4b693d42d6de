import { existsSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, isIP } from 'node:net'
import { fileURLToPath } from 'node:url'
import type { ClientMetadata } from 'oidc-provider'
import { type Args, type Io, MOST_PORT, textOf, UsageError, wholeOf, writeLines } from '../io.ts'
import { CALLBACK, CLIENT, createDataApi, createIdentity, DATA_SCOPES } from './backends.ts'
import { instructions } from './instructions.ts'

const LOOPBACK = '127.0.0.1'
/** All addresses of the machine. */
const ANY = '0.0.0.0'
const AUDIENCE = 'https://data.sandbox.example'
const CLIENT_METADATA: ClientMetadata = {
  client_id: CLIENT.id,
  client_secret: CLIENT.secret,
  grant_types: ['client_credentials', 'authorization_code', 'refresh_token'],
  response_types: ['code'],
  scope: `openid offline_access ${DATA_SCOPES}`,
}
const HOST_NAME = /^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/i
const DRAIN_MS = 1000
/** So that the lines to paste are not scrolled away. */
const QUIET = 'warn'

/** Serves an OpenID Provider, a Data API and the gateway before them until SIGINT or SIGTERM, and prints how to try it out. */
export async function run(args: Args, io: Io): Promise<void> {
  const port = (flag: string): number => wholeOf(args, flag, MOST_PORT)
  const options = {
    host: hostOf(args),
    port: port('port'),
    adminPort: port('admin-port'),
    identityPort: port('identity-port'),
    dataPort: port('data-port'),
    limit: wholeOf(args, 'limit', Number.MAX_SAFE_INTEGER),
    logLevel: textOf(args, 'log-level')!,
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
 * Callers connect to `host`; all else is on loopback.
 */
export async function openSandbox(
  options: Readonly<Record<'port' | 'adminPort' | 'identityPort' | 'dataPort' | 'limit', number>> & {
    readonly host: string
    readonly logLevel?: string
  },
  signal: AbortSignal,
) {
  const { bound, shown } = addressOf(options.host)
  const closers: (() => Promise<void>)[] = []
  const close = async (): Promise<void> => {
    for (const one of closers.splice(0).toReversed()) await one()
  }
  const serve = async (server: Server, port: number, flag: string): Promise<string> => {
    const address = `http://${LOOPBACK}:${await listen(server, LOOPBACK, port, flag)}`
    closers.push(() => shut(server))
    return address
  }
  try {
    // The provider and the gateway must know the gateway's address before it listens.
    const port = await findPort(bound, options.port, '--port')
    const adminPort = await findPort(LOOPBACK, options.adminPort, '--admin-port')
    const gateway = `http://${shown}:${port}`
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
        SLUICE_HOST: bound,
        SLUICE_PORT: String(port),
        SLUICE_ADMIN_PORT: String(adminPort),
        IDENTITY_URL: identity,
        DATA_URL: data,
        ISSUER: issuer,
        AUDIENCE,
        REQUEST_LIMIT: String(options.limit),
      },
      overrides: [
        { flag: 'sandbox', path: ['tokens', 'jwks'], value: `${identity}/oidc/certs` },
        { flag: '--log-level', path: ['log', 'level'], value: options.logLevel ?? QUIET },
      ],
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

function hostOf(args: Args): string {
  const host = textOf(args, 'host') ?? LOOPBACK
  if (isIP(host) !== 0 || HOST_NAME.test(host)) return host
  throw new UsageError(`--host: "${host}" is no address or host name; write one without scheme and port.`)
}

/** Returns the address that the callers' listener binds, and the host of its URLs. A name may be one that only callers resolve. */
function addressOf(host: string): { readonly bound: string; readonly shown: string } {
  if (host === 'localhost' || host === LOOPBACK) return { bound: LOOPBACK, shown: 'localhost' }
  if (host === ANY || host === '::') return { bound: host, shown: 'localhost' }
  if (isIP(host) === 0) return { bound: ANY, shown: host }
  return { bound: host, shown: isIP(host) === 6 ? `[${host}]` : host }
}

async function findPort(host: string, wanted: number, flag: string): Promise<number> {
  const server = createServer()
  const port = await listen(server, host, wanted, flag)
  await shut(server)
  return port
}

function listen(server: Server, host: string, port: number, flag: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', ({ code, message }: NodeJS.ErrnoException) => {
      const other = `Choose another with ${flag}; 0 takes a free one.`
      const all = 'Give --host one of its own, its name, or 0.0.0.0 for all.'
      const problem =
        code === 'EADDRNOTAVAIL'
          ? `${host} is no address of this machine. ${all}`
          : `Port ${port} ${code === 'EADDRINUSE' ? 'is taken' : `cannot be opened: ${message}`}. ${other}`
      reject(new Error(problem))
    })
    server.listen(port, host, () => resolve((server.address() as AddressInfo).port))
  })
}

function shut(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve())
    server.closeAllConnections()
  })
}
