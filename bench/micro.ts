/**
 * Compares code that is written for speed with plain code, in one process:
 * `npm run bench:micro [-- NAME …]`. Prints the processor time of a call of each, and how much of a
 * request's time (65 us) the plain code would add. For code that acts on sockets, the event loop or
 * the garbage collector, `npm run bench:gate` is the measure.
 */
import { hash } from 'node:crypto'
import { IncomingMessage, ServerResponse, STATUS_CODES } from 'node:http'
import { Socket } from 'node:net'
import { Counter, Histogram, Registry } from 'prom-client'
import { normalizeAddress } from '../src/runtime/address.ts'
import { refusalReply } from '../src/downstream/reply.ts'
import { segmentsOf } from '../src/downstream/target.ts'
import type { Refusal } from '../src/errors.ts'
import { exceeded } from '../src/gateway/exceeded.ts'
import { type Exchange, peerAddress } from '../src/gateway/exchange.ts'
import type { Allowance } from '../src/limit/store.ts'
import type { Limit } from '../src/policy/limit.ts'
import { instant } from '../src/runtime/instant.ts'
import { accessLine, routeText } from '../src/observe/log-lines.ts'
import { createHotCounter } from '../src/observe/hot-counter.ts'
import { createHotHistogram } from '../src/observe/hot-histogram.ts'
import { appendFields } from '../src/runtime/node-http.ts'
import { UnorderedList } from '../src/runtime/unordered-list.ts'
import { createRequestFields, decideAction } from '../src/downstream/request-fields.ts'
import { markdown } from './report.ts'

const { actionOf } = createRequestFields({
  requestId: 'x-request-id',
  counted: [],
  identity: [],
  callers: [],
})

const REQUEST_US = 65
const CALLS = 5000
const ROUNDS = 60

interface Case {
  /** Calls of a request. */
  readonly calls: number
  readonly fast: (i: number) => unknown
  readonly plain: (i: number) => unknown
}

const FIELDS =
  'host user-agent accept accept-encoding authorization connection cookie x-fapi-interaction-id'.split(' ')
const labelNames = ['route', 'method', 'code', 'source']
const buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
const registers = [new Registry()]
const counter = new Counter({ name: 'plain', help: 'help', labelNames, registers })
const histogram = new Histogram({
  name: 'plain_seconds',
  help: 'help',
  buckets,
  labelNames: ['route'],
  registers,
})
const hotCounter = createHotCounter(registers[0]!, { name: 'hot', help: 'help', labelNames })
const described = { name: 'hot_seconds', help: 'help' }
const hotDurations = createHotHistogram(registers[0]!, described, buckets).of({ route: 'GET /v3/*' })
const LIST = [
  ...[
    'Content-Type',
    'application/json',
    'ETag',
    '"abc"',
    'X-RateLimit-Limit',
    '1000',
    'X-RateLimit-Remaining',
    '999',
  ],
  ...['X-RateLimit-Reset', '2026-11-23T20:00:00.000Z', 'X-Request-Id', '0123'],
]
const TEXT = LIST.map((part, i) => (i % 2 === 0 ? `\r\n${part}: ` : part)).join('')
const FRAMING = ['Date', 'Mon, 23 Nov 2026 20:00:00 GMT', 'Content-Length', '2']
const request = new IncomingMessage(new Socket())
const NOW = Date.now()
const token = `eyJhbGciOiJSUzI1NiJ9.${'x'.repeat(900)}`
const items = Array.from({ length: 64 }, () => ({ index: -1 }))
const [list, set] = [new UnorderedList(), new Set<object>()]

const ROUTE = { match: 'GET /v3/*', upstream: 'data' }

const allowance = { name: 'requests', limit: 1000, remaining: 999, shadow: false, admitted: true }
const exchange = {
  ...{
    request,
    requestId: '0b6cf3ba-3b6a-4b5c-9b4e-3f9b5d0c9a10',
    method: 'GET',
    ip: '127.0.0.1',
    source: 'upstream',
    status: 200,
  },
  ...{ bytes: 2, startedAt: 1.1, endedAt: 3.3, decidedAt: 1.5, forwardedAt: 1.6, forwarded: { headAt: 2.2 } },
  ...{
    target: { host: 'api.example.com', path: '/v3/accounts' },
    path: '/v3/accounts',
    callers: [],
    response: {},
    route: { ...ROUTE, logText: routeText(ROUTE) },
  },
  ...{
    caller: { client: 'client-0000001' },
    decision: { admitted: true, allowances: [allowance], mode: 'store', decidedAt: 1_790_000_000_000.5 },
  },
} as unknown as Exchange

/** The members of a line, as a logger would get them. */
const plainLine = ({ target, route, caller, decision, ...rest }: Exchange, level: string): string =>
  `${JSON.stringify({
    level,
    time: new Date().toISOString(),
    requestId: rest.requestId,
    method: rest.method,
    host: target!.host,
    path: target!.path,
    route: route!.match,
    upstream: route!.upstream,
    client: caller!.client,
    ip: rest.ip,
    decision: 'admitted',
    limit: decision!.allowances[0]!.name,
    of: decision!.allowances[0]!.limit,
    remaining: decision!.allowances[0]!.remaining,
    mode: decision!.mode,
    source: rest.source,
    status: rest.status,
    bytes: rest.bytes,
    durationMs: 2.2,
    decidedAt: decision!.decidedAt,
    upstreamMs: 0.6,
    msg: 'request',
  })}\n`

/** Lines are encoded into a page. */
const page = Buffer.alloc(4096)

const LIMIT: Limit = {
  name: 'requests',
  per: ['client'],
  limit: 1000,
  windowMs: 60_000,
  shadow: false,
  changes: [],
}
const refusing = { ...allowance, windowMs: 60_000, admitted: false, retryAfterMs: 11_500 } as Allowance
const refused = { allowances: [refusing], refusedBy: refusing }

const plainProblem = (
  { status, code, message, violatedPolicies, retryAfterSecs }: Refusal,
  id: string,
): string =>
  JSON.stringify({
    type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    title: STATUS_CODES[status],
    status,
    detail: message,
    'violated-policies': violatedPolicies,
    code,
    message: STATUS_CODES[status],
    retryAfterSecs,
    correlationId: id,
  })

/** Paths of requests: flat strings, as the parser of HTTP makes them. */
const PATHS = Array.from({ length: 1024 }, (_, i) =>
  Buffer.from(`/v3/accounts/${i * 7919}/transactions`).toString('latin1'),
)

const CASES: Readonly<Record<string, Case>> = {
  'request-fields': {
    calls: 8,
    fast: (i) => actionOf(FIELDS[i % 8]!),
    plain: (i) => decideAction(FIELDS[i % 8]!),
  },
  'peer-address': {
    calls: 1,
    fast: () => peerAddress('::ffff:127.0.0.1'),
    plain: () => normalizeAddress('::ffff:127.0.0.1'),
  },
  'token-key': { calls: 1, fast: () => token.slice(-43), plain: () => hash('sha256', token, 'base64') },
  'response-head': {
    calls: 1,
    fast: () => appendFields(new ServerResponse(request).writeHead(200, FRAMING), TEXT),
    plain: () => new ServerResponse(request).writeHead(200, [...FRAMING, ...LIST]),
  },
  refusal: {
    calls: 1,
    fast: () => refusalReply(exceeded(refused, [LIMIT]), 'problem', '0123').body,
    // Without a limit, none is kept.
    plain: () => plainProblem(exceeded(refused, []), '0123'),
  },
  'reset-time': {
    calls: 1,
    fast: (i) => instant(NOW + 7 * i),
    plain: (i) => new Date(NOW + 7 * i).toISOString(),
  },
  'log-line': {
    calls: 1,
    fast: () => page.write(accessLine(exchange, 'info')),
    plain: () => page.write(plainLine(exchange, 'info')),
  },
  segments: {
    calls: 1,
    fast: (i) => segmentsOf(PATHS[i & 1023]!),
    plain: (i) => PATHS[i & 1023]!.slice(1).split('/'),
  },
  metrics: {
    calls: 1,
    fast: () => {
      for (let i = 0; i < 2; i++) hotCounter.inc('GET /v3/*', 'GET', '200', 'upstream')
      for (let i = 0; i < 3; i++) hotDurations.observe(0.02)
    },
    plain: () => {
      for (let i = 0; i < 2; i++)
        counter.inc({ route: 'GET /v3/*', method: 'GET', code: '200', source: 'upstream' })
      for (let i = 0; i < 3; i++) histogram.observe({ route: 'GET /v3/*' }, 0.02)
    },
  },
  list: {
    calls: 1,
    fast: (i) => (list.add(items[i & 63]!), list.delete(items[i & 63]!)),
    plain: (i) => (set.add(items[i & 63]!), set.delete(items[i & 63]!)),
  },
}

/** Returns microseconds of processor time per call: the least of all rounds, which other processes disturb least. */
function measure(act: (i: number) => unknown): number {
  let least = Number.POSITIVE_INFINITY
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage()
    for (let i = 0; i < CALLS; i++) act(i)
    const { user, system } = process.cpuUsage(before)
    least = Math.min(least, (user + system) / CALLS)
  }
  return least
}

const names = process.argv.slice(2)
const rows = Object.entries(CASES)
  .filter(([name]) => names.length === 0 || names.includes(name))
  .map(([name, { calls, fast, plain }]) => {
    const [fastUs, plainUs] = [measure(fast), measure(plain)]
    const added = calls * (plainUs - fastUs)
    const cells = [plainUs, fastUs, added].map((us) => us.toFixed(2))
    return [name, String(calls), ...cells, `${((100 * added) / REQUEST_US).toFixed(1)} %`]
  })
console.log(markdown(['code', 'calls', 'plain us', 'fast us', 'plain adds us', 'of a request'], rows))
