import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request as httpRequest } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { stringify } from 'yaml'
import { closeLater } from './closing.ts'
import { linesOf } from './lines.ts'
import { until } from './wait.ts'
import { loadOrKept } from '../../src/config/kept/load-or-kept.ts'
import { loadConfig } from '../../src/config/load.ts'
import type { InForce } from '../../src/config/load.ts'
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
export const TOKENS = { issuer: ISSUER, audience: AUDIENCE, jwks }

/** A value of the configuration, as it would be written in YAML. */
type Values = object

const open = { upstream: 'identity', authenticate: 'none' }
const counted = { upstream: 'data', authenticate: 'bearer', limits: ['requests'] }
const synced = { ...counted, limits: ['requests', 'sync'] }

/** The service's routes on one host, distinguished by path. */
export const ROUTES: readonly Values[] = [
  { match: 'POST /oidc/request', ...open },
  { match: '/oidc/*', ...open },
  { match: 'GET /:version/global-counterparties', ...open, upstream: 'data' },
  { match: 'POST /sync/:connection', ...synced },
  { match: 'POST /:version/sync/:connection', ...synced },
  { match: '/v3/*', ...counted },
  { match: 'GET,POST /transactions', ...counted },
]

/** The route by which callers read their limits. */
export const READS_LIMITS = { match: 'GET /v3/rate-limits', respond: 'limits', authenticate: 'bearer' }

/** The settings of a test: values as they would be written in YAML, with defaults for all the rest. */
export interface Settings {
  /** The address of the upstream `data`. */
  readonly data: string
  /** The address of the upstream `identity`. Default: `data`. */
  readonly identity?: string
  /** Further keys of the upstream `data`. With `urls`, it has no `url`. */
  readonly upstream?: Values
  /** Further upstreams. */
  readonly upstreams?: Values
  /** Default 127.0.0.1. */
  readonly host?: string
  /** Default: a free port. */
  readonly port?: number
  readonly trustedProxies?: readonly string[]
  /** Further keys of `listen`. */
  readonly listen?: Values
  /** Default: a free port. */
  readonly admin?: Values
  /** Default `memory`. */
  readonly store?: 'memory' | Values
  /** Default: those of the limits `requests` and `sync`. */
  readonly limit?: number
  readonly window?: string
  readonly syncWindow?: string
  /** In place of the limits `requests` and `sync`. */
  readonly limits?: Values
  /** In place of `TOKENS`; none if empty. */
  readonly tokens?: Values | readonly Values[]
  /** In place of `ROUTES`. */
  readonly routes?: readonly Values[] | Values
  /** `timeout` of the upstream `data`. Default 30 s. */
  readonly timeout?: string
  /** Further top-level keys, or others for those above. */
  readonly more?: Values
}

/** Generous: on a busy machine, a backend of a test may take seconds to answer. */
const UPSTREAM_TIMEOUT = '30s'

/** The configuration of a gateway on free ports. */
export function configOf(settings: Settings): Values {
  const { data, identity = data, limit = 1000, window = '1m', syncWindow = '5s', upstream = {} } = settings
  const defaults = {
    requests: { per: ['client'], limit, window },
    sync: { per: ['client', 'connection'], limit: 1, window: syncWindow },
  }
  const { host = '127.0.0.1', port = 0, trustedProxies = [], timeout = UPSTREAM_TIMEOUT } = settings
  return {
    listen: { host, port, trustedProxies, ...settings.listen },
    admin: settings.admin ?? { port: 0 },
    log: { level: 'silent' },
    store: settings.store ?? 'memory',
    upstreams: {
      identity: { url: identity, timeout: UPSTREAM_TIMEOUT, errors: 'oauth' },
      data: { ...('urls' in upstream ? {} : { url: data }), timeout, ...upstream },
      ...settings.upstreams,
    },
    tokens: settings.tokens ?? TOKENS,
    limits: settings.limits ?? defaults,
    routes: settings.routes ?? ROUTES,
    ...settings.more,
  }
}

const isEmpty = (value: unknown): boolean => typeof value === 'object' && Object.keys(value!).length === 0

/** Writes values as YAML, a line for each top-level key that is not empty, in the order in which they are given. */
export function textOf(values: Values): string {
  const lines = Object.entries(values)
    .filter(([, value]) => !isEmpty(value))
    .map(([key, value]) => stringify({ [key]: value }, { collectionStyle: 'flow', lineWidth: 0 }))
  return lines.map((line) => line.replace(/^\{ (.*) \}\n$/s, '$1\n')).join('')
}

/** The YAML of a gateway on free ports, where the text itself is the subject. */
export const yaml = (settings: Settings): string => textOf(configOf(settings))

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

/** A file whose text is the subject of a test. */
interface Written {
  readonly file: string
}

/** Writes a text to a file, for a gateway that is started with it. */
export function written(
  text: string,
  file = join(mkdtempSync(join(folder, 'written-')), 'sluice.yaml'),
): Written {
  writeFileSync(file, text)
  return { file }
}

/** Starts a gateway in this process. Writes the settings to the file `given`, if any, which the gateway then reads again at a reload. */
export async function startGateway(
  settings: Settings | Written,
  given = 'file' in settings ? settings.file : undefined,
  logFd?: number,
): Promise<TestGateway> {
  const file = given ?? join(mkdtempSync(join(folder, 'gateway-')), 'sluice.yaml')
  if (!('file' in settings)) writeFileSync(file, yaml(settings))
  async function load(before?: InForce) {
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
export async function startLogging(settings: Settings | Written, given?: string): Promise<LoggingGateway> {
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

/** Returns a route of the upstream `data` for callers with tokens, and what else it has. */
export const dataRoute = (path: string, limits: readonly string[], more: object = {}) => ({
  match: path,
  upstream: 'data',
  authenticate: 'bearer',
  limits,
  ...more,
})
