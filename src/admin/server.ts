import { readdirSync, readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type RequestListener } from 'node:http'
import type { Server, ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { TlsOptions } from 'node:tls'
import { createFailures } from '../gateway/failures.ts'
import { type MetricsFormat, OPEN_METRICS_TYPE, prefersOpenMetrics } from '../observe/open-metrics.ts'
import { Registry } from '../observe/prom-client.ts'
import { normalizeAddress } from '../runtime/address.ts'
import {
  type AdminAccess,
  type AdminResponse,
  forbidden,
  problem,
  recognize,
  type WrongTokens,
} from './access.ts'
import { type Attempt, AUDIT_RESULTS, createAudit, resultOf } from './audit.ts'
import { type Asked, callerOfPath, createLimits, type LimitsParts } from './limits.ts'
import { lackedRight, NOBODY, type OperationName, OPERATIONS, operationsOf } from './rights.ts'

export interface AdminParts extends LimitsParts {
  /** Returns the access in force: a reload may replace the token. */
  access(): AdminAccess
  /** Returns why the gateway should get no requests; undefined if it should. */
  notReadyReason(): string | undefined | Promise<string | undefined>
  metrics(format: MetricsFormat): Promise<string>
  overview(): Promise<object>
  /** Certificates of the listener; without them, it is HTTP. */
  readonly tls?: TlsOptions | undefined
  /** Counts the requests. */
  readonly requests: { inc(labels: Readonly<Record<'operation' | 'result', string>>, by?: number): void }
  /** Writes the fields of a line of the audit. */
  audit(fields: object): void
}

/** Maximum open connections: without one, their descriptors would be missing for callers. */
const MAX_CONNECTIONS = 100
const SHARED_MS = 1000
/** Wrong tokens that an address may send before each further one gets a 429. */
const MAX_WRONG_TOKENS = { limit: 20, windowMs: 60_000 }
const UNCOUNTED = { failures: { inc() {} }, failuresRefused: { inc() {} } }
const CONSOLE = new URL('console/', import.meta.url)
const CONTENT_TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}
const PAGE_HEADERS = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
} as const
const NO_CALLER = 'Ask for /limits/CALLER: a client id, percent-encoded, or ip:192.0.2.7.'
const NOT_FOUND =
  'Not found. See /, /healthz, /readyz, /metrics, /overview, /limits/CALLER, /overrides, /explain.'

export function createAdmin(parts: AdminParts): Server {
  const pages = readPages()
  const audit = createAudit(parts.audit)
  const wrongTokens = countWrongTokens()
  for (const { operation } of [...OPERATIONS, { operation: 'other' }])
    for (const result of AUDIT_RESULTS) parts.requests.inc({ operation, result }, 0)
  const limits = createLimits(parts)
  const shared = createSharedOverview(parts.overview)

  const overview = ({ by: operator }: Asked): Promise<AdminResponse> =>
    shared.read().then(
      (body) => ({ status: 200, body: { ...body, operator } }),
      () => problem(503, 'The gateway does not answer.', { 'Retry-After': '1' }),
    )

  async function readiness(): Promise<AdminResponse> {
    const reason = await parts.notReadyReason()
    return reason === undefined ? text(200, 'ready') : text(503, `not ready: ${reason}`)
  }

  function metrics({ request }: Asked): Promise<AdminResponse> {
    const isOpen = prefersOpenMetrics(request.headers.accept)
    const type = isOpen ? OPEN_METRICS_TYPE : Registry.PROMETHEUS_CONTENT_TYPE
    return parts.metrics(isOpen ? 'openmetrics' : 'prometheus').then(
      (body) => ({ status: 200, body, headers: { 'Content-Type': type, Vary: 'Accept' } }),
      () => text(500, 'The metrics could not be collected.'),
    )
  }

  const handlers: Readonly<Record<OperationName, (asked: Asked) => AdminResponse | Promise<AdminResponse>>> =
    {
      health: () => text(200, 'ok'),
      readiness,
      metrics,
      console: ({ path }) => pages.get(path) ?? text(404, NOT_FOUND),
      overview,
      ...limits,
    }

  /** Checks the site, the operator and the right, and then serves a request. */
  async function serve(asked: Omit<Asked, 'by'>): Promise<AdminResponse> {
    const { path, request, attempt } = asked
    if (!isOwnSite(request) && !(pages.has(path) && isNavigation(request)))
      return text(403, 'Pages of other sites have no access.')
    const rows = operationsOf(path)
    if (rows.length === 0) return path.startsWith('/limits') ? problem(404, NO_CALLER) : text(404, NOT_FOUND)
    const row = rows.find(({ operation }) => operation === attempt.operation)
    // Another method gets its 405 only if the path needs no right.
    const isOpen = rows.every(({ needs }) => needs === 'nothing')
    const by = isOpen ? NOBODY : recognize(request, parts.access(), wrongTokens)
    if ('status' in by) return by
    attempt.name = isOpen ? null : by.name
    if (row === undefined) return methodNotAllowed(rows)
    const lacked = lackedRight(by, row.needs)
    if (lacked !== undefined) return forbidden(lacked)
    const answer = await handlers[row.operation]({ ...asked, by })
    // An operator who has seen or changed limits sees the same in the next overview.
    if (row.operation in limits) shared.drop()
    return answer
  }

  /** Never rejects. */
  async function reply(request: IncomingMessage, response: ServerResponse): Promise<AdminResponse> {
    const [path = ''] = request.url?.split('?', 1) ?? []
    const attempt = attemptOf(request, path, parts.secrets())
    const answer = await serve({ path, request, response, attempt })
    audit.record(attempt, answer)
    parts.requests.inc({ operation: attempt.operation, result: resultOf(answer.status) })
    return answer
  }

  const server = createServerFor(parts.tls, (request, response) => {
    void reply(request, response).then((answer) => send(response, answer))
  })
  server.maxConnections = MAX_CONNECTIONS
  // Room for the next connection, such as that of a probe.
  server.on('drop', () => server.closeIdleConnections())
  server.once('close', audit.close)
  return server
}

/** Reads the console's files, by path. They hold no data, so anyone may load them. */
function readPages(): ReadonlyMap<string, AdminResponse> {
  const pages = new Map<string, AdminResponse>()
  for (const name of readdirSync(CONSOLE)) {
    const type = CONTENT_TYPES[name.slice(name.lastIndexOf('.') + 1)]
    if (type === undefined) continue
    const body = readFileSync(new URL(name, CONSOLE), 'utf8')
    const path = name === 'index.html' ? '/' : `/console/${name}`
    pages.set(path, { status: 200, body, headers: { ...PAGE_HEADERS, 'Content-Type': type } })
  }
  return pages
}

/** Reads the overview at most once a second and after each change: many consoles cost what one does. */
function createSharedOverview(readOverview: () => Promise<object>) {
  let latest: Promise<object> | undefined
  function drop(): void {
    latest = undefined
  }
  return {
    drop,
    read(): Promise<object> {
      if (latest === undefined) setTimeout(drop, SHARED_MS).unref()
      return (latest ??= readOverview())
    },
  }
}

/** Creates the server; without `tls`, it is HTTP. */
function createServerFor(tls: TlsOptions | undefined, onRequest: RequestListener): Server {
  const options = { requestTimeout: 10_000, connectionsCheckingInterval: 5000, insecureHTTPParser: false }
  if (tls === undefined) return createServer(options, onRequest)
  return createSecureServer({ ...options, handshakeTimeout: 10_000, ...tls }, onRequest)
}

function send(response: ServerResponse, { status, body, headers }: AdminResponse): void {
  const isText = typeof body === 'string'
  const bytes = Buffer.from(isText ? body : `${JSON.stringify(body)}\n`)
  response.writeHead(status, {
    'Content-Type': isText ? 'text/plain; charset=utf-8' : 'application/json',
    'Content-Length': bytes.length,
    'Cache-Control': 'no-store',
    ...headers,
  })
  // Node sends no body after a HEAD.
  response.end(bytes)
}

/** Returns the description of a request whose method and path only are known. */
function attemptOf({ method, socket }: IncomingMessage, path: string, secrets: ReadonlySet<string>): Attempt {
  const read = method === 'HEAD' ? 'GET' : method
  const operation = operationsOf(path).find((row) => row.method === read)?.operation ?? 'other'
  const caller = callerOfPath(path, secrets)
  const address = normalizeAddress(socket.remoteAddress ?? '')
  return { operation, address, name: null, changes: [], ...(caller !== undefined && { caller }) }
}

function methodNotAllowed(rows: ReturnType<typeof operationsOf>): AdminResponse {
  const allow = rows.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method])).join(', ')
  return problem(405, `Use ${allow}.`, { Allow: allow })
}

/** Counts the wrong tokens of each address, and refuses addresses that sent too many. */
function countWrongTokens(): WrongTokens {
  const { refusal, count } = createFailures(UNCOUNTED)(MAX_WRONG_TOKENS)
  const responseOf = (refused: ReturnType<typeof refusal>): AdminResponse | undefined =>
    refused &&
    problem(429, 'Too many wrong tokens from this address; wait, then send the right one.', {
      'Retry-After': String(refused.retryAfterSecs),
    })
  return {
    refusal: (address) => responseOf(refusal(address)),
    count: (address) => responseOf(count(address)),
  }
}

function text(status: number, line: string, headers = {}): AdminResponse {
  return { status, body: `${line}\n`, headers }
}

/** False for a request from a page of another site, if the browser reports it. */
const isOwnSite = ({ headers }: IncomingMessage): boolean =>
  ['none', 'same-origin', undefined].includes(headers['sec-fetch-site'])

/** True for a followed link: the page that contains it cannot read the response. */
const isNavigation = ({ headers }: IncomingMessage): boolean =>
  headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document'
