import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request as httpRequest } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { closeLater } from './closing.ts'
import { linesOf } from './lines.ts'
import { until } from './wait.ts'
import { loadOrKept } from '../../src/config/kept/load-or-kept.ts'
import { loadConfig } from '../../src/config/load.ts'
import type { Texts } from '../../src/config/texts.ts'
import { type Running, start } from '../../src/process/start.ts'

export const ISSUER = 'https://identity.example.com/oidc'
export const AUDIENCE = 'https://api.example.com'

const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true })
const folder = mkdtempSync(join(tmpdir(), 'sluice-test-'))
const jwks = join(folder, 'jwks.json')
writeFileSync(
  jwks,
  JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: 'test', alg: 'ES256' }] }),
)
// Each gateway of this process flushes its log at the exit.
process.setMaxListeners(100)
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

/** Returns an access token of a client, valid unless `claims` differ. */
export function token(client: string, claims: Record<string, unknown> = {}): Promise<string> {
  const own = { client_id: client, sub: `user-of-${client}`, jti: crypto.randomUUID() }
  return new SignJWT({ iss: ISSUER, aud: AUDIENCE, ...own, ...claims })
    .setProtectedHeader({ alg: 'ES256', kid: 'test', typ: 'at+jwt' })
    .setIssuedAt()
    .setExpirationTime('10m')
    .sign(privateKey)
}

/** The setting `tokens`, which accepts the tokens of `token`. */
export const TOKENS = `tokens: { issuer: "${ISSUER}", audience: "${AUDIENCE}", jwks: "${jwks}" }`

/** The service's routes on one host, distinguished by path. */
export const ROUTES = `routes:
  - { match: "POST /oidc/request", upstream: identity, authenticate: none }
  - { match: "/oidc/*", upstream: identity, authenticate: none }
  - { match: "GET /:version/global-counterparties", upstream: data, authenticate: none }
  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }
  - { match: "POST /:version/sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }
  - { match: "/v3/*", upstream: data, authenticate: bearer, limits: [requests] }
  - { match: "GET,POST /transactions", upstream: data, authenticate: bearer, limits: [requests] }
`

export interface Settings {
  readonly data: string
  /** Default 127.0.0.1. */
  readonly host?: string
  /** Default: a free port. */
  readonly port?: number
  readonly identity?: string
  readonly store?: string
  /** Default `{ port: 0 }`. */
  readonly admin?: string
  readonly limit?: number
  readonly window?: string
  readonly syncWindow?: string
  readonly tokens?: string
  readonly limits?: string
  readonly trustedProxies?: string
  /** `timeout` of the Data API's upstream. */
  readonly timeout?: string
  /** Further keys of the Data API's upstream. */
  readonly upstream?: string
  /** Further keys of `listen`, after a comma. */
  readonly listen?: string
  readonly routes?: string
  /** Further top-level YAML. */
  readonly more?: string
}

/** The YAML of a gateway on free ports. */
export function yaml(settings: Settings): string {
  const { data, identity = data, store = 'memory', limit = 1000, window = '1m', syncWindow = '5s' } = settings
  return `listen: { host: "${settings.host ?? '127.0.0.1'}", port: ${settings.port ?? 0}, trustedProxies: ${settings.trustedProxies ?? '[]'}${settings.listen ?? ''} }
admin: ${settings.admin ?? '{ port: 0 }'}
log: { level: silent }
store: ${store}
upstreams:
  identity: { url: "${identity}", timeout: 2s, errors: oauth }
  data: { ${settings.upstream?.includes('urls:') === true ? '' : `url: "${data}", `}timeout: ${settings.timeout ?? '2s'}${settings.upstream === undefined ? '' : `, ${settings.upstream}`} }
${settings.tokens ?? TOKENS}
${
  settings.limits ??
  `limits:
  requests: { per: [client], limit: ${limit}, window: ${window} }
  sync: { per: [client, connection], limit: 1, window: ${syncWindow} }`
}
${settings.routes ?? ROUTES}
${settings.more ?? ''}
`
}

/** Gets the audit of gateways whose log is silent. */
const NOWHERE = openSync('/dev/null', 'a')

export interface TestGateway {
  readonly port: number
  readonly adminPort: number
  /** The port that a proxy asks; 0 without `forwardAuth`. */
  readonly askPort: number
  readonly running: Running
  close(): Promise<void>
}

/** Starts a gateway in this process, with these settings or a text. Writes them to the file `given`, if any, whose hash the gateway then shows. */
export async function startGateway(
  settings: Settings | string,
  given?: string,
  logFd?: number,
): Promise<TestGateway> {
  const file = given ?? join(mkdtempSync(join(folder, 'gateway-')), 'sluice.yaml')
  writeFileSync(file, typeof settings === 'string' ? settings : yaml(settings))
  async function load(before?: Texts) {
    const loaded = await (before === undefined
      ? loadOrKept({ file })
      : loadConfig({ file, before, isolate: true }))
    const { log } = loaded.config
    const logged =
      logFd === undefined
        ? log
        : ({ ...log, level: log.level === 'debug' ? 'debug' : 'info', format: 'json' } as const)
    return { ...loaded, config: { ...loaded.config, drainTimeoutMs: 1000, log: logged }, loadMs: 0 }
  }
  const { config, ...loaded } = await load()
  const source = given === undefined ? undefined : { ...loaded, load }
  const running = await start(config, source, 1, logFd ?? NOWHERE)
  closeLater(() => running.close())
  return {
    port: Number(new URL(running.address).port),
    adminPort: Number(new URL(running.adminAddress).port),
    askPort: Number(new URL(running.forwardAuthAddress ?? 'http://none:0').port),
    running,
    close: () => running.close(),
  }
}

export interface LoggingGateway extends TestGateway {
  /** The text of the log, as on standard output. */
  stdout(): string
  lines(): Record<string, unknown>[]
}

/** Starts a gateway in this process like `startGateway`, whose log can be read. */
export async function startLogging(settings: Settings | string, given?: string): Promise<LoggingGateway> {
  const file = join(mkdtempSync(join(folder, 'log-')), 'log')
  const logFd = openSync(file, 'a')
  closeLater(() => closeSync(logFd))
  const gateway = await startGateway(settings, given, logFd)
  const stdout = () => readFileSync(file, 'utf8')
  const lines = linesOf(stdout)
  await until('its start is logged', () => lines().some(({ msg }) => msg === 'gateway started'))
  return { ...gateway, stdout, lines }
}

export interface Got {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  readonly rawHeaders: readonly string[]
  readonly body: string
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly json: any
}

export interface Call {
  readonly method?: string
  readonly path?: string
  readonly token?: string
  readonly headers?: Record<string, string | string[]>
  readonly body?: string | Buffer
  /** Default: an agent that keeps sockets alive. */
  readonly agent?: Agent
}

// Closes idle sockets long before a server does, so that no request meets the end of its socket.
const keepAlive = new Agent({ keepAlive: true, maxSockets: 100, timeout: 1000 })

/** Sends one HTTP request, with an unchanged target. */
export function call(
  port: number,
  { method = 'GET', path = '/transactions', token, headers = {}, body, agent = keepAlive }: Call = {},
): Promise<Got> {
  return new Promise((resolve, reject) => {
    const authorization = token === undefined ? {} : { Authorization: `Bearer ${token}` }
    const request = httpRequest(
      { host: '127.0.0.1', port, method, path, agent, headers: { ...authorization, ...headers } },
      (response) => {
        const chunks: Buffer[] = []
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.on('error', reject)
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString()
          resolve({
            status: response.statusCode!,
            headers: response.headers,
            rawHeaders: response.rawHeaders,
            body: text,
            get json() {
              return JSON.parse(text)
            },
          })
        })
      },
    )
    request.on('error', reject)
    request.end(body)
  })
}

/** Waits until a gateway is ready: on a busy machine, the first read of an issuer's keys may take longer than its timeout. */
export const untilReady = ({ adminPort }: Pick<TestGateway, 'adminPort'>): Promise<void> =>
  until('it is ready', async () => (await call(adminPort, { path: '/readyz' })).status === 200)
