import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { request as httpRequest, type ServerResponse } from 'node:http'
import { rmSync, writeFileSync } from 'node:fs'
import { beforeEach, describe, expect, it } from 'vitest'
import { call, type Call, dataRoute, type Settings, startLogging, token, yaml } from '../helpers/gateway.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** The rest of `scenarios/charged-by-use.yaml`: responses in pieces, cut or never ended, and long bodies. */

const JSON_TYPE = { 'content-type': 'application/json' }
const EVENTS = [
  'data: {"choices":[{"delta":{"content":"Grüße"}}],"usage":null}\r\n\r\n',
  'data: {"choices":[],"usage":{"total_tokens":1234}}\r\n\r\n',
  'data: [DONE]\r\n\r\n',
].join('')

/** Responses that are begun, which their tests end. */
const open = new Map<string, ServerResponse>()
const upstream = await startUpstream((request, response, body) => {
  const [how, what = ''] = String(request.headers['x-answer']).split('=')
  if (how === 'tokens') response.writeHead(200, JSON_TYPE).end(`{"usage":{"total_tokens":${what}}}`)
  else if (how === 'none') response.writeHead(200, JSON_TYPE).end('{"usage":{}}')
  else if (how === 'body') response.writeHead(200).end(body)
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
    route('/response', ['volume'], cost('volume', { bytes: 'response' }, 10)),
    route('/request', ['volume'], cost('volume', { bytes: 'request' }, 10)),
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
    ['cut', 'the response was cut'],
    ['reset', 'the gateway itself answered 502'],
    ['never', 'the gateway itself answered 504'],
  ])('stays charged its reserve if the response is %s: %s', async (answer, unsettled) => {
    const { line } = await send('/json', answer)
    expect(line).toMatchObject({ reserved: 4000, unsettled })
    await expectUsed(4000)
  })

  it('stays charged its reserve by a field if its upstream resets the connection', async () => {
    const { got, line } = await send('/field', 'reset')
    expect(line).toMatchObject({ reserved: 4000, unsettled: 'the gateway itself answered 502' })
    expect(got.headers['x-ratelimit-remaining']).toBe('6000')
    await expectUsed(4000)
  })

  it('is charged nothing by a limit that counts successes if its response did not come whole', async () => {
    expect((await send('/good', 'reset')).line).toMatchObject({ settled: 0 })
    expect((await send('/good', 'cut')).line).toMatchObject({ settled: 0 })
    await expectUsed(0, 'good')
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
