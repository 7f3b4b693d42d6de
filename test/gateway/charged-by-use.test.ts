import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { request as httpRequest, type ServerResponse } from 'node:http'
import { rmSync, writeFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { beforeEach, describe, expect, it } from 'vitest'
import { call, type Call, dataRoute, type Settings, startLogging, token, yaml } from '../helpers/gateway.ts'
import { freePort } from '../helpers/ports.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const JSON_TYPE = { 'content-type': 'application/json' }
const withTokens = (tokens: unknown) =>
  `{"text":"{\\"usage\\":1}","usage":{"total_tokens":${String(tokens)}}}`
const EVENTS = [
  'data: {"choices":[{"delta":{"content":"Grüße"}}],"usage":null}\r\n\r\n',
  'data: {"choices":[],"usage":{"total_tokens":1234}}\r\n\r\n',
  'data: [DONE]\r\n\r\n',
].join('')

/** Responses that are begun, which their tests end. */
const open = new Map<string, ServerResponse>()
const upstream = await startUpstream((request, response, body) => {
  const [how, what = ''] = String(request.headers['x-answer']).split('=')
  if (how === 'tokens') response.writeHead(200, JSON_TYPE).end(withTokens(what))
  else if (how === 'failed') response.writeHead(500, { ...JSON_TYPE, 'X-Usage': what }).end(withTokens(what))
  else if (how === 'field') response.writeHead(200, { 'X-Usage': what.split('|') }).end('{}')
  else if (how === 'none') response.writeHead(200, JSON_TYPE).end('{"usage":{}}')
  else if (how === 'body') response.writeHead(200).end(body)
  else if (how === 'page') response.writeHead(200, { 'content-type': 'text/html' }).end(withTokens(5))
  else if (how === 'zipped')
    response.writeHead(200, { ...JSON_TYPE, 'content-encoding': 'gzip' }).end(gzipSync(withTokens(5)))
  else if (how === 'part') response.writeHead(206, { 'content-range': 'bytes 0-9/99' }).end(withTokens(5))
  else if (how === 'cut')
    response.writeHead(200, { 'content-length': 99 }).write('{', () => response.destroy())
  else if (how === 'reset') response.destroy()
  else if (how === 'open') {
    open.set(what, response)
    response.writeHead(200, { ...JSON_TYPE, 'X-Usage': '7' }).write('{')
  } else if (how === 'events') {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    void writeInPieces(response, Buffer.from(EVENTS), Number(what))
  }
})

async function writeInPieces(response: ServerResponse, body: Buffer, bytes: number): Promise<void> {
  for (let i = 0; i < body.length; i += bytes)
    await new Promise((resolve) => response.write(body.subarray(i, i + bytes), resolve))
  response.end()
}

/** The cost of calls that reserve points of a limit, 4000 by default. */
const cost = (limit: string, actual: object, reserve = 4000) => ({ [limit]: { reserve, actual } })
const OF_BODY = { json: 'usage.total_tokens' }
const OF_FIELD = { field: 'X-Usage' }
const MIXED = { ...cost('tokens', OF_BODY), ...cost('volume', { bytes: 'both' }, 10) }
const route = (path: string, limits: readonly string[], cost?: unknown) =>
  dataRoute(path, limits, cost === undefined ? {} : { cost })
const settings = (store: Settings['store'], tokens = 10_000, reserve = 4000): Settings => ({
  data: upstream.url,
  store: store!,
  timeout: '500ms',
  limits: {
    tokens: { per: ['client'], limit: tokens, window: '1m' },
    day: { per: ['client'], limit: 1_000_000_000, window: { calendar: 'day' } },
    good: { per: ['client'], limit: 10_000, window: '1m', count: 'success' },
    volume: { per: ['client'], limit: 100_000, window: '1h' },
  },
  routes: [
    route('/json', ['tokens'], cost('tokens', OF_BODY, reserve)),
    route('/both', ['tokens', 'day'], { reserve, actual: OF_BODY }),
    route('/field', ['tokens'], cost('tokens', OF_FIELD, reserve)),
    route('/good', ['good'], cost('good', OF_BODY)),
    route('/good-field', ['good'], cost('good', OF_FIELD)),
    route('/response', ['volume'], cost('volume', { bytes: 'response' }, 10)),
    route('/request', ['volume'], cost('volume', { bytes: 'request' }, 10)),
    ...(reserve === 4000 ? [route('/mixed', ['tokens', 'volume'], MIXED)] : []),
    route('/plain', ['tokens'], 3),
  ],
})

const redis = await sharedRedis()
const IN_REDIS = { redis: { url: redis.url }, prefix: randomUUID() }
const STORES = [
  ['memory', 'memory', await startLogging(settings('memory'))],
  ['Redis', IN_REDIS, await startLogging(settings(IN_REDIS))],
] as const

describe.each(STORES)('with counters in %s, a call that is charged by what it used', (_, store, gateway) => {
  let client = ''
  beforeEach(() => {
    client = randomUUID()
  })

  /** Sends a call. Returns the response and its line of the log. */
  async function send(path: string, answer: string, options: Call = {}) {
    const id = randomUUID()
    const headers = { 'X-Request-Id': id, 'X-Answer': answer, ...options.headers }
    const got = await call(gateway.port, { path, token: await token(client), ...options, headers }).catch(
      () => undefined,
    )
    const line = () => gateway.lines().find(({ requestId }) => requestId === id)
    await until('its line', () => line() !== undefined, 5000)
    return { got: got!, line: line()! }
  }

  async function usage(): Promise<Record<string, { used: number; reserved: number; remaining: number }>> {
    const { json } = await call(gateway.adminPort, { path: `/limits/client:${client}` })
    const limits = json.limits as { name: string }[]
    return Object.fromEntries(limits.map((limit) => [limit.name, limit])) as never
  }

  /** Waits until the used points are these. */
  async function expectUsed(used: number, limit = 'tokens'): Promise<void> {
    let last: number | undefined
    await until(
      `${used} points are used`,
      async () => (last = (await usage())[limit]?.used) === used,
      5000,
    ).catch(() => {})
    expect(last).toBe(used)
  }

  it('is charged the number of its body, which its line of the log has', async () => {
    const { got, line } = await send('/json', 'tokens=1234.2')
    expect(got.body).toBe(withTokens('1234.2'))
    // The head was sent before the number was known.
    expect(got.headers['x-ratelimit-remaining']).toBe('6000')
    expect(line).toMatchObject({
      limit: 'tokens',
      of: 10_000,
      reserved: 4000,
      settled: 1235,
      remaining: 8765,
    })
    expect(line).not.toHaveProperty('unsettled')
    await expectUsed(1235)
    expect((await usage())['tokens']).toMatchObject({ reserved: 0, remaining: 8765 })
    expect((await send('/plain', 'none')).got.headers['x-ratelimit-remaining']).toBe('8762')
  })

  it.each([1, 7, 100_000])(
    'is charged by the last event that has it, in pieces of %s bytes',
    async (bytes) => {
      const { got, line } = await send('/both', `events=${bytes}`)
      expect(got.body).toBe(EVENTS)
      expect(line).toMatchObject({ reserved: 4000, settled: 1234 })
      await expectUsed(1234)
      await expectUsed(1234, 'day')
    },
  )

  it('owes what it used beyond its reserve: the next calls wait', async () => {
    expect((await send('/both', 'tokens=12000')).line).toMatchObject({ settled: 12_000, remaining: 0 })
    await expectUsed(12_000)
    const { got, line } = await send('/json', 'tokens=1')
    expect(got.status).toBe(429)
    expect(got.headers['x-ratelimit-remaining']).toBe('0')
    expect(Number(got.headers['retry-after'])).toBeGreaterThan(50)
    expect(line).not.toHaveProperty('reserved')
    await expectUsed(12_000, 'day')
  })

  it('is charged by a field before its head is sent', async () => {
    const { got, line } = await send('/field', 'field=10')
    expect(got.headers).toMatchObject({ 'x-ratelimit-remaining': '9990', 'x-usage': '10' })
    expect(line).toMatchObject({ reserved: 4000, settled: 10, remaining: 9990 })
    expect((await send('/field', 'field=5000')).got.headers['x-ratelimit-remaining']).toBe('4990')
    expect((await send('/field', 'field=5000')).got.headers['x-ratelimit-remaining']).toBe('0')
    await expectUsed(10_010)
  })

  it('is charged by a field while its body is still coming, and if its caller leaves then', async () => {
    const key = randomUUID()
    const headers = {
      authorization: `Bearer ${await token(client)}`,
      'x-answer': `open=${key}`,
      'x-request-id': key,
    }
    const request = httpRequest({ port: gateway.port, path: '/field', headers }).end()
    await once(request, 'response')
    await expectUsed(7)
    expect((await usage())['tokens']).toMatchObject({ reserved: 0 })
    request.on('error', () => {}).destroy()
    const line = () => gateway.lines().find(({ requestId }) => requestId === key)
    await until('its line', () => line() !== undefined, 5000)
    expect(line()).toMatchObject({ incomplete: 'left', reserved: 4000, settled: 7 })
    await expectUsed(7)
  })

  it('holds its reserve while it is in progress, which operators see, and afterwards if its caller left', async () => {
    const key = randomUUID()
    const headers = {
      authorization: `Bearer ${await token(client)}`,
      'x-answer': `open=${key}`,
      'x-request-id': key,
    }
    const request = httpRequest({ port: gateway.port, path: '/json', headers }).end()
    await once(request, 'response')
    expect((await usage())['tokens']).toMatchObject({ used: 4000, reserved: 4000 })
    const { json } = await call(gateway.adminPort, { path: `/limits/client:${client}` })
    expect(json.notes).toContainEqual(
      expect.stringMatching(/^Calls in progress at this gateway hold a reserve of 4000 of .*tokens/),
    )
    const asked = await call(gateway.adminPort, { path: `/explain?request=GET+/json&client=${client}` })
    expect(asked.json.limits).toMatchObject([
      { cost: 4000, actual: { json: 'usage.total_tokens' }, used: 4000, reserved: 4000 },
    ])
    request.on('error', () => {}).destroy()
    const line = () => gateway.lines().find(({ requestId }) => requestId === key)
    await until('its line', () => line() !== undefined, 5000)
    expect(line()).toMatchObject({ incomplete: 'left', reserved: 4000, unsettled: 'the caller left' })
    expect(line()).not.toHaveProperty('settled')
    expect((await usage())['tokens']).toMatchObject({ used: 4000, reserved: 0 })
  })

  it.each([
    ['none', 'the end of the response has no usage.total_tokens'],
    ['tokens="5"', 'usage.total_tokens is not a number from 0 to 2^40'],
    ['tokens=-5', 'usage.total_tokens is not a number from 0 to 2^40'],
    ['tokens=NaN', 'usage.total_tokens is not a number from 0 to 2^40'],
    ['tokens=1e400', 'usage.total_tokens is not a number from 0 to 2^40'],
    ['tokens=null', 'the end of the response has no usage.total_tokens'],
    ['zipped', 'the response is compressed, although that was not asked for'],
    ['part', 'the response is a part of a body'],
    ['page', 'the response is neither JSON nor an event stream'],
    ['cut', 'the response was cut'],
    ['reset', 'the gateway itself answered 502'],
    ['never', 'the gateway itself answered 504'],
  ])('stays charged its reserve if the response is %s: %s', async (answer, unsettled) => {
    const { line } = await send('/json', answer)
    expect(line).toMatchObject({ reserved: 4000, unsettled })
    await expectUsed(4000)
  })

  it.each([
    ['none', 'the response has no field X-Usage'],
    ['field=many', 'the field X-Usage is not a number from 0 to 2^40'],
    ['field=1|2', 'the response has the field X-Usage several times'],
    ['reset', 'the gateway itself answered 502'],
  ])('stays charged its reserve if the field is %s: %s', async (answer, unsettled) => {
    const { got, line } = await send('/field', answer)
    expect(line).toMatchObject({ reserved: 4000, unsettled })
    expect(got.headers['x-ratelimit-remaining']).toBe('6000')
    await expectUsed(4000)
  })

  it('stays charged its reserve without a body', async () => {
    const { line } = await send('/json', 'tokens=5', { method: 'HEAD' })
    expect(line).toMatchObject({ reserved: 4000, unsettled: 'the response has no body' })
  })

  it('is charged nothing by a limit that counts successes if it failed, else what it used', async () => {
    expect((await send('/good', 'failed=9')).line).toMatchObject({
      reserved: 4000,
      settled: 0,
      remaining: 10_000,
    })
    expect((await send('/good', 'reset')).line).toMatchObject({ settled: 0 })
    expect((await send('/good', 'cut')).line).toMatchObject({ settled: 0 })
    expect((await send('/good-field', 'failed=9')).line).toMatchObject({ settled: 0 })
    expect((await send('/good', 'tokens=9')).line).toMatchObject({ settled: 9 })
    expect((await send('/good-field', 'field=6')).line).toMatchObject({ settled: 6 })
    await expectUsed(15, 'good')
  })

  it('is shown what its field says by a limit that counts successes, unless it failed', async () => {
    const shownOf = async (answer: string) =>
      (await send('/good-field', answer)).got.headers['x-ratelimit-remaining']
    expect(await shownOf('field=6')).toBe('9994')
    await expectUsed(6, 'good')
    // The reserve, which its end gives back.
    expect(await shownOf('failed=9')).toBe('5994')
    await expectUsed(6, 'good')
  })

  it('holds no reserve after a response whose field has no number', async () => {
    await send('/field', 'field=many')
    expect((await usage())['tokens']).toMatchObject({ used: 4000, reserved: 0 })
  })

  it('is charged the size of its bodies, in points of 1 kB begun', async () => {
    const body = 'x'.repeat(3000)
    expect((await send('/response', 'body', { method: 'POST', body })).line).toMatchObject({ settled: 3 })
    expect((await send('/request', 'none', { method: 'POST', body })).line).toMatchObject({ settled: 3 })
    expect((await send('/response', 'body')).line).toMatchObject({ reserved: 10, settled: 0 })
    expect(
      (await send('/response', 'body', { method: 'POST', body: 'x'.repeat(2 ** 20) })).line,
    ).toMatchObject({ settled: 1024 })
    expect(
      (await send('/request', 'none', { method: 'POST', body: 'x'.repeat(2 ** 20) })).line,
    ).toMatchObject({ settled: 1024 })
    await expectUsed(2054, 'volume')
  })

  it('shows the numbers of each limit if they differ', async () => {
    const { line } = await send('/mixed', 'tokens=20')
    expect(line).toMatchObject({ reserved: { tokens: 4000, volume: 10 }, settled: { tokens: 20, volume: 1 } })
    const other = await send('/mixed', 'none')
    expect(other.line).toMatchObject({
      settled: { volume: 1 },
      unsettled: { tokens: 'the end of the response has no usage.total_tokens' },
    })
    await expectUsed(4020)
    await expectUsed(2, 'volume')
  })

  it('asks its upstream for no compression, also if its caller asks for one', async () => {
    const askedFor = async (path: string, headers: Call['headers']) => {
      client = randomUUID()
      await send(path, 'none', { headers: headers! })
      return upstream.seen.at(-1)!.headers['accept-encoding']
    }
    expect(await askedFor('/json', { 'Accept-Encoding': 'gzip, br' })).toBe('identity')
    expect(await askedFor('/json', { 'Accept-Encoding': 'gzip', Connection: 'accept-encoding' })).toBe(
      'identity',
    )
    expect(await askedFor('/json', {})).toBe('identity')
    expect(await askedFor('/field', { 'Accept-Encoding': 'gzip, br' })).toBe('gzip, br')
    expect(await askedFor('/plain', { 'Accept-Encoding': 'gzip, br' })).toBe('gzip, br')
  })

  it('counts what was reserved, and what became of it', async () => {
    const counted = async () => {
      const { body } = await call(gateway.adminPort, { path: '/metrics' })
      const of = (series: string) =>
        Number(
          body
            .split('\n')
            .find((row) => row.startsWith(series))!
            .split(' ')
            .at(-1),
        )
      return [
        of('sluice_limit_reserved_points_total{limit="day"}'),
        of('sluice_limit_settled_points_total{limit="day"}'),
        of('sluice_limit_settlements_total{limit="day",outcome="settled"}'),
        of('sluice_limit_settlements_total{limit="day",outcome="unsettled"}'),
      ]
    }
    const before = await counted()
    await send('/both', 'tokens=100')
    await send('/both', 'none')
    expect((await counted()).map((count, i) => count - before[i]!)).toEqual([8000, 100, 1, 1])
  })

  it('has the same number on the console', async () => {
    await send('/json', 'tokens=5')
    const shown = async () => {
      const { json } = await call(gateway.adminPort, { path: '/overview' })
      const callers = json.activity.callers as { caller: string; limits: unknown }[]
      return callers.find(({ caller }) => caller === `client:${client}`)?.limits
    }
    await until('it is shown', async () => (await shown()) !== undefined, 5000)
    expect(await shown()).toMatchObject([{ name: 'tokens', used: 5, remaining: 9995 }])
  })

  it('is settled by what it was charged, although a reload changed the limit and the cost meanwhile', async () => {
    const file = `/tmp/sluice-reload-${randomUUID()}.yaml`
    const reloaded = await startLogging(settings(store), file)
    const key = randomUUID()
    const headers = {
      authorization: `Bearer ${await token(client)}`,
      'x-answer': `open=${key}`,
      'x-request-id': key,
    }
    const request = httpRequest({ port: reloaded.port, path: '/json', headers }).end()
    const [response] = await once(request, 'response')
    const changed = yaml(settings(store, 300, 300))
    writeFileSync(file, changed)
    await reloaded.running.reload('signal')
    open.get(key)!.end('"usage":{"total_tokens":100}}')
    response.resume()
    const line = () => reloaded.lines().find(({ requestId }) => requestId === key)
    await until('its line', () => line() !== undefined, 5000)
    expect(line()).toMatchObject({ reserved: 4000, settled: 100 })
    rmSync(file)
    const after = await call(reloaded.port, {
      path: '/plain',
      token: await token(client),
      headers: { 'x-answer': 'none' },
    })
    expect(after.headers).toMatchObject({ 'x-ratelimit-limit': '300', 'x-ratelimit-remaining': '197' })
  })
})

it('in an outage, a call is charged what it used, also under a limit after one that is not counted then', async () => {
  const store = { redis: { url: `redis://127.0.0.1:${await freePort()}` }, onOutage: 'local' }
  const limits = {
    visits: { per: ['client'], limit: 100, window: '1m', onOutage: 'allow' },
    tokens: { per: ['client'], limit: 10_000, window: '1m' },
  }
  const routes = [route('/json', ['visits', 'tokens'], cost('tokens', OF_BODY))]
  const gateway = await startLogging({ ...settings(store), limits, routes })
  const client = randomUUID()
  const remaining: string[] = []
  for (let i = 0; i < 2; i++) {
    const sent = { path: '/json', token: await token(client), headers: { 'x-answer': 'tokens=100' } }
    const { headers } = await call(gateway.port, sent)
    remaining.push(headers['x-ratelimit-remaining'] as string)
    await until('its line', () => gateway.lines().filter(({ msg }) => msg === 'request').length > i, 5000)
  }
  expect(gateway.lines().find(({ msg }) => msg === 'request')).toMatchObject({
    mode: 'local',
    reserved: 4000,
    settled: 100,
  })
  expect(remaining).toEqual(['6000', '5900'])
})
