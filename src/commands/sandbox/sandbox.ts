import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, isIP } from 'node:net'
import { createKeyText, hashOfKey } from '../../authenticate/key/key-text.ts'
import type { Config } from '../../config/config.ts'
import { packageFile } from '../../runtime/package.ts'
import type { Running } from '../../process/start.ts'
import { type Args, MAX_PORT, textOf, UsageError, wholeOf } from '../args.ts'
import { fillIn } from '../fill-in.ts'
import { interruption, type Io, writeLines } from '../io.ts'
import { programOf } from '../program.ts'
import { clientsAt, createDataApi, createIdentity, sendLoad } from './backends.ts'

const LOOPBACK = '127.0.0.1'
const ANY = '0.0.0.0'
/** Audience of the access tokens, as in config/sandbox.yaml. */
const AUDIENCE = 'https://data.sandbox.example'
const HOST_NAME = /^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/i

/**
 * Serves an OpenID Provider, a Data API and, unless there are `--gateways`, the gateway before them
 * until SIGINT or SIGTERM, and prints how to try it out.
 */
export async function run(args: Args, io: Io): Promise<void> {
  const signal = interruption(io)
  const { instructions, close } = await openSandbox(args, signal, programOf(io))
  writeLines(io.stdout, instructions)
  if (!signal.aborted) await once(signal, 'abort')
  await close()
}

/** Starts the backends and then the gateway. The load ends when `signal` is aborted. */
export async function openSandbox(args: Args, signal: AbortSignal, program = 'sluice') {
  const limit = wholeOf(args, 'limit', Number.MAX_SAFE_INTEGER)
  const { bound, shown } = addressOf(textOf(args, 'host')!)
  const others = textOf(args, 'gateways')?.split(',')
  const servers: Server[] = []
  let running: Running | undefined
  async function close(): Promise<void> {
    await running?.close()
    for (const server of servers) server.close().closeAllConnections()
  }
  async function serve(server: Server, flag: string): Promise<string> {
    servers.push(server)
    return `http://${LOOPBACK}:${await listen(server, others ? bound : LOOPBACK, args, flag)}`
  }
  // The provider and the gateway must know the gateway's address before it listens.
  const port = others ? undefined : await findPort(bound, args, 'port')
  const gateway = others?.[0] ?? `http://${shown}:${port}`
  const issuer = `${gateway}/oidc`
  const provider = await createIdentity({ issuer, audience: AUDIENCE, clients: clientsAt(gateway) })
  const identity = await serve(provider, 'identity-port')
  const data = await serve(createDataApi(), 'data-port')
  if (args['load'] === true) sendLoad(others ?? [gateway], signal)
  if (others) return { instructions: `Serves ${identity}, ${data} for ${others.join()}.`, close }
  // Imported only now, so that signals are handled from the start.
  const { loadConfig } = await import('../../config/load.ts')
  const { start } = await import('../../process/start.ts')
  const { config } = await loadConfig({
    file: packageFile('config/sandbox.yaml'),
    env: {
      SLUICE_HOST: bound,
      SLUICE_PORT: String(port),
      SLUICE_ADMIN_PORT: String(await findPort(LOOPBACK, args, 'admin-port')),
      IDENTITY_URL: identity,
      DATA_URL: data,
      ISSUER: issuer,
      REQUEST_LIMIT: String(limit),
      LOG_LEVEL: textOf(args, 'log-level')!,
    },
  })
  const key = createKeyText()
  running = await start({ ...withKey(config, key), drainTimeoutMs: 1000 })
  const instructions = fillIn('sandbox.txt', {
    gateway,
    admin: running.adminAddress,
    identity,
    data,
    key,
    limit,
    hint: limit === 1000 ? ' (sooner with --limit 5)' : '',
    tries: limit + 1,
    program,
  })
  return { instructions, close }
}

/** Adds a key of the client of config/sandbox.txt that has one, with the plan of config/sandbox.yaml. */
function withKey(config: Config, key: string): Config {
  const customer = { client: 'customer', sha256: hashOfKey(key), plan: 'trial' }
  const ofClients = new Map([[customer.client, customer.plan]])
  return { ...config, apiKeys: [customer], plans: { ...config.plans, ofClients } }
}

/**
 * Returns the address that the callers' listener binds, and the host of its URLs. A name may be
 * resolvable only for callers.
 */
function addressOf(host: string): { readonly bound: string; readonly shown: string } {
  if (host === 'localhost') return { bound: LOOPBACK, shown: host }
  if ([LOOPBACK, ANY, '::'].includes(host)) return { bound: host, shown: 'localhost' }
  if (isIP(host) !== 0) return { bound: host, shown: isIP(host) === 6 ? `[${host}]` : host }
  if (HOST_NAME.test(host)) return { bound: ANY, shown: host }
  throw new UsageError(`--host: "${host}" is not an address or host name without scheme and port.`)
}

async function findPort(host: string, args: Args, flag: string): Promise<number> {
  const server = createServer()
  return await listen(server, host, args, flag).finally(() => server.close())
}

async function listen(server: Server, host: string, args: Args, flag: string): Promise<number> {
  const port = wholeOf(args, flag, MAX_PORT)
  await once(server.listen(port, host), 'listening').catch((error: NodeJS.ErrnoException) => {
    const reason = error.code === 'EADDRINUSE' ? 'is in use' : `cannot be opened: ${error.message}`
    throw new Error(`Port ${port} ${reason}. Choose another --${flag} (0: any), or --host.`)
  })
  return (server.address() as AddressInfo).port
}
