import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import type { Exchange } from '../../src/gateway/exchange.ts'
import { parseCaller, showCaller } from '../../src/policy/counted-caller.ts'
import { accessLine as lineOf, routeText, withOmitted } from '../../src/observe/log-lines.ts'
import { prettyLines } from '../../src/observe/pretty-lines.ts'

const allowance = {
  ...{ name: 'requests', limit: 10, windowMs: 1000, used: 1, remaining: 9, resetAt: 0, resetAfterMs: 0 },
  ...{ retryAfterMs: 0, admitted: true, shadow: false, own: 0 },
}
const bare = {
  ...{
    requestId: 'r1',
    method: 'GET',
    startedAt: 1,
    endedAt: 2.23456,
    peer: '::1',
    ip: '::1',
    trusted: false,
  },
  ...{ source: 'gateway', status: 404, bytes: 7, request: { headers: {} }, response: {}, callers: [] },
} as unknown as Shown
/** The exchange without its method, which no line shows. */
type Shown = Omit<Exchange, 'field'>
const accessLine = (exchange: Shown, level?: Parameters<typeof lineOf>[1]): string =>
  lineOf(exchange as Exchange, level)
const read = (exchange: Shown): Record<string, unknown> =>
  JSON.parse(accessLine(exchange)) as Record<string, unknown>

it('shows a request without a route, caller or decision', () => {
  expect(read(bare)).toEqual({
    ...{
      level: 'info',
      time: expect.stringMatching(/^\d{4}-.*Z$/) as string,
      requestId: 'r1',
      method: 'GET',
    },
    ...{ ip: '::1', source: 'gateway', status: 404, bytes: 7, durationMs: 1.235, msg: 'request' },
  })
})

it('escapes and shortens a method', () => {
  const method = 'GET","client":"victim\u009b'
  const line = accessLine({ ...bare, method })
  expect(JSON.parse(line)).toMatchObject({ method })
  expect(JSON.parse(line)).not.toHaveProperty('client')
  expect(line).not.toContain('\u009b')
  expect(read({ ...bare, method: 'A'.repeat(300) })).toMatchObject({ method: `${'A'.repeat(256)}…` })
})

it('shows the callers whom the limits count, secrets shortened, in JSON and in pretty lines', () => {
  const callers = [parseCaller('header:x-api-key=abc123'), parseCaller('ip:192.0.2.7')].map((parts) => ({
    parts,
    shown: showCaller(parts),
  }))
  const key = 'header:x-api-key=abc1…6ca13d52'
  expect(read({ ...bare, callers: callers.slice(0, 1) })).toMatchObject({ caller: key })
  const line = accessLine({ ...bare, callers })
  expect(JSON.parse(line)).toMatchObject({ caller: `${key}, ip:192.0.2.7` })
  expect(prettyLines(line)).toContain(` ms ${key}, ip:192.0.2.7`)
  const long = { ...callers[1]!, shown: 'x'.repeat(257) }
  const both = read({ ...bare, callers: [long, callers[1]!] })
  expect(both).toMatchObject({ caller: `${'x'.repeat(256)}…, ip:192.0.2.7` })
  expect(read({ ...bare, callers: [long] })).toMatchObject({ caller: `${'x'.repeat(256)}…` })
})

it('shows the deciding limit, and the shadow limits that would have refused', () => {
  const shadow = { ...allowance, name: 'trial', shadow: true, admitted: false }
  const decision = { admitted: true, allowances: [allowance, shadow], mode: 'store', cached: false } as const
  expect(read({ ...bare, decision })).toMatchObject({
    ...{
      decision: 'admitted',
      limit: 'requests',
      of: 10,
      remaining: 9,
      mode: 'store',
      shadowOver: ['trial'],
    },
  })
  const refusedBy = { ...allowance, name: 'sync', remaining: 0, admitted: false }
  const refused = { ...decision, admitted: false, allowances: [allowance, refusedBy], refusedBy }
  const line = read({ ...bare, decision: refused })
  expect(line).toMatchObject({ decision: 'refused', limit: 'sync', remaining: 0 })
  expect(line).not.toHaveProperty('shadowOver')
  expect(read({ ...bare, decision: { ...decision, allowances: [], mode: 'allow' } })).toMatchObject({
    ...{ decision: 'admitted', mode: 'allow' },
  })
})

it('shows the client of a verified token that was refused, and marks the unverified client of a pushed request', () => {
  const refusal = new Refusal('Unauthorized', 'The access token expired.', { client: 'acme' })
  expect(read({ ...bare, refusal })).toMatchObject({ client: 'acme' })
  expect(read({ ...bare, refusal })).not.toHaveProperty('claimed')
  const caller = { ip: '::1' }
  expect(read({ ...bare, caller, claimed: 'a"\n' })).toMatchObject({ client: 'a"\n', claimed: true })
})

const TRACE = '0af7651916cd43dd8448eb211c80319c'
it.each([
  [`00-${TRACE}-b7ad6b7169203331-01`, TRACE],
  [`00-${'0'.repeat(32)}-b7ad6b7169203331-01`, undefined],
  [`00-${TRACE}-${'0'.repeat(16)}-01`, undefined],
  [`01-${TRACE}-b7ad6b7169203331-01`, TRACE],
  [`00-${TRACE.toUpperCase()}-b7ad6b7169203331-01`, undefined],
  [`00-${TRACE}-b7ad6b7169203331-01-x`, undefined],
  [`00-${TRACE}-b7ad6b7169203331-01, 00-${TRACE}-b7ad6b7169203331-01`, undefined],
])('shows for the traceparent %s the trace id %s', (traceparent, traceId) => {
  const request = { headers: { traceparent } } as unknown as Exchange['request']
  expect(read({ ...bare, request })['traceId']).toBe(traceId)
})

it('shows the number of omitted lines', () => {
  const line = accessLine(bare)
  expect(withOmitted(line, 0)).toBe(line)
  expect(JSON.parse(withOmitted(line, 3))).toEqual({ ...(JSON.parse(line) as object), omitted: 3 })
  expect(withOmitted(line, 3)).toMatch(/\n$/)
})

it('shows mode deny for requests without a decision, but not for those that a drain aborted', () => {
  const error = new Refusal('ServiceUnavailable', 'Not now.')
  const denied: Shown = { ...bare, status: 503, limitAt: 2, error }
  expect(read(denied)).toMatchObject({ mode: 'deny', code: 'ServiceUnavailable' })
  expect(read(denied)).not.toHaveProperty('decision')
  for (const other of [
    { ...denied, incomplete: 'cut' } as const,
    { ...denied, decidedAt: 3 },
    { ...denied, limitAt: undefined as never },
    { ...denied, error: new Refusal('InternalServer', 'A fault.') },
  ]) {
    expect(read(other)).not.toHaveProperty('mode')
  }
})

it('shows the instant of the decision in microseconds, of the store’s clock if it has one', () => {
  const [before, now] = [Date.now(), performance.now()]
  const { decidedAt } = read({ ...bare, startedAt: now - 9000, endedAt: now, decidedAt: now - 3000 })
  expect(decidedAt).toBeGreaterThan(before - 3100)
  expect(decidedAt).toBeLessThan(Date.now() - 2900)
  const decision = {
    admitted: true,
    allowances: [],
    mode: 'store',
    decidedAt: 1.0006,
    cached: false,
  } as const
  expect(read({ ...bare, decision, decidedAt: now })).toMatchObject({ decidedAt: 1.001 })
  expect(String(decidedAt)).toMatch(/^\d{13}(\.\d{1,3})?$/)
})

it('is one line of JSON for any input of callers and upstreams', () => {
  const unit = fc.integer({ min: 0, max: 0xffff }).map((code) => String.fromCharCode(code))
  const sent = fc.string({ unit, maxLength: 20 })
  fc.assert(
    fc.property(sent, sent, sent, (path, client, why) => {
      const error = new Refusal('BadGateway', 'The upstream broke off.', { cause: new Error(why) })
      const exchange: Shown = { ...bare, path: `/${path}`, caller: { client, ip: '::1' }, error }
      const line = accessLine(exchange, 'error')
      expect(line.indexOf('\n')).toBe(line.length - 1)
      expect(JSON.parse(line)).toMatchObject({
        ...{ level: 'error', client, code: 'BadGateway' },
        ...{ error: 'The upstream broke off.', cause: why },
      })
    }),
  )
})

it('escapes control characters, and characters that are not shown', () => {
  const client = 'a\u007f\u009b31m\u202e\u2066\u2028é\u200b\ufeff\u{e0041}'
  const line = accessLine({ ...bare, path: client, caller: { client, ip: '::1' } })
  expect(line).toContain(String.raw`"a\u007f\u009b31m\u202e\u2066\u2028é\u200b\ufeff\udb40\udc41"`)
  expect(JSON.parse(line)).toMatchObject({ client })
})

it('truncates long paths and hosts', () => {
  const [host, path] = ['h'.repeat(300), `/${'x'.repeat(999)}`]
  const line = read({
    ...bare,
    target: { host, path, segments: [], query: '', received: path, isAmbiguous: false },
    path,
    response: { errored: new Error('slow') } as Exchange['response'],
  })
  expect(line).toMatchObject({ path: `/${'x'.repeat(255)}…`, cause: 'slow' })
  expect(line['host']).toBe(`${'h'.repeat(256)}…`)
})

it('escapes the names and labels of a route', () => {
  const names = { match: '/é"\u202e', name: '"\u202e', labels: { team: '"\u202e' } }
  const route = { logText: routeText({ ...names, upstream: 'data' }) } as NonNullable<Exchange['route']>
  expect(accessLine({ ...bare, route })).toContain(
    String.raw`,"route":"/é\"\u202e","routeName":"\"\u202e","upstream":"data","labels":{"team":"\"\u202e"},`,
  )
})

it('shows of a route what it has', () => {
  expect(routeText({ match: '/*' })).toBe(',"route":"/*"')
})

const shownAs = (line: object): string =>
  prettyLines(`${JSON.stringify({ level: 'info', time: '2026-11-22T08:15:30.123Z', ...line })}\n`)

it.each([
  [{ msg: 'gateway stopped' }, 'INFO: gateway stopped'],
  [
    { level: 'warn', msg: 'Redis unavailable', server: 'redis', cause: undefined },
    'WARN: Redis unavailable server=redis',
  ],
  [
    {
      msg: 'request',
      method: 'POST',
      path: '/sync/a',
      status: 429,
      durationMs: 0.3,
      client: 'acme',
      decision: 'refused',
      limit: 'sync',
      remaining: 0,
      source: 'gateway',
    },
    'INFO: POST /sync/a 429 0.3 ms client acme refused by sync',
  ],
  [
    {
      msg: 'request',
      method: 'GET',
      host: 'api.example.com',
      path: '/x',
      status: 200,
      durationMs: 2,
      decidedAt: 1763632800000.123,
      client: 'acme',
      decision: 'admitted',
      limit: 'requests',
      remaining: 9,
      source: 'upstream',
      shadowOver: ['trial'],
    },
    'INFO: GET /x 200 2 ms client acme 9 left of requests shadowOver=["trial"]',
  ],
  [
    {
      ...{ msg: 'request', method: 'GET', path: '/x', status: 499, durationMs: 2, source: 'gateway' },
      ...{ incomplete: 'left', waitedMs: 1.5, cause: 'the caller left while waiting for data' },
    },
    'INFO: GET /x 499 2 ms incomplete=left waitedMs=1.5 cause=the caller left while waiting for data',
  ],
  [
    {
      msg: 'request',
      method: 'GET',
      path: '/x',
      status: 502,
      durationMs: 2,
      source: 'gateway',
      error: 'The upstream broke off.',
      cause: 'data: reset',
    },
    'INFO: GET /x 502 2 ms "The upstream broke off." cause=data: reset',
  ],
])('formats %j as one line', (line, shown) => {
  expect(shownAs(line)).toBe(`[08:15:30.123] ${shown}\n`)
})

it('escapes control characters in text that callers choose', () => {
  const line = {
    msg: 'request',
    method: 'GET',
    path: '/\u009b31m',
    status: 400,
    durationMs: 1,
    client: 'a\n\u001b[2Jsluice stopped',
    source: 'gateway',
    error: 'b\r',
  }
  expect(shownAs(line)).toContain(
    ': GET /\\u009b31m 400 1 ms client a\\u000a\\u001b[2Jsluice stopped "b\\u000d"\n',
  )
})

it('does not change text that is not JSON', () => {
  expect(prettyLines('{ a: 1 }\nnull\n')).toBe('{ a: 1 }\nnull\n')
})
