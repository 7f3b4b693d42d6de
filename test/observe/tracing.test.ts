import { createServer, type IncomingHttpHeaders } from 'node:http'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Exchange } from '../../src/gateway/exchange.ts'
import type { Log } from '../../src/observe/log.ts'
import { createTracing } from '../../src/observe/tracing.ts'
import { fileOf, sluice } from '../commands/run.ts'
import { completed, load } from '../config/load-text.ts'
import { createFolder } from '../helpers/folder.ts'
import {
  call,
  startGateway,
  startLogging,
  type Settings,
  type TestGateway,
  token,
  yaml,
} from '../helpers/gateway.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { deadUrl } from '../helpers/ports.ts'
import { serving } from '../helpers/process.ts'
import { FULL } from '../helpers/runs.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: readonly { readonly key: string; readonly value: Record<string, unknown> }[]
  readonly status: { readonly code: number; readonly message?: string }
}

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'
const SERVER_KIND = 2
const ERROR = 2

let spans: Span[]
let fields: IncomingHttpHeaders[]
/** The attributes of the resources of all spans. */
let resources: Record<string, unknown>[]
/** The status of the next responses. */
let answer: number
/** A real receiver of OTLP/HTTP in JSON. */
const receiver = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    const { resourceSpans } = JSON.parse(Buffer.concat(chunks).toString()) as {
      resourceSpans: { resource: Pick<Span, 'attributes'>; scopeSpans: { spans: Span[] }[] }[]
    }
    resources.push(...resourceSpans.map(({ resource }) => attributesOf(resource)))
    fields.push(request.headers)
    if (answer === 200) {
      spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans)))
    }
    response.writeHead(answer, { 'content-type': 'application/json' }).end('{}')
  })
})
const endpoint = `${(await listenLocally(receiver)).url}/v1/traces`
beforeEach(() => {
  spans = []
  resources = []
  fields = []
  answer = 200
})

const attributesOf = ({ attributes }: Pick<Span, 'attributes'>): Record<string, unknown> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))

describe('a traced request', () => {
  let data: TestUpstream
  let gateway: TestGateway
  const start = async (more: Partial<Settings> = {}, sampleRatio = 1, refused = 0) => {
    gateway = await startGateway({
      data: data.url,
      more: { tracing: { endpoint, sampleRatio, refused } },
      ...more,
    })
  }
  beforeEach(async () => {
    data = await startUpstream((request, response) =>
      response.writeHead(request.url === '/v3/broken' ? 500 : 200).end(),
    )
  })
  /** Returns the spans of all requests, in the order of their start; closing the gateway flushes them. */
  async function ended(): Promise<Span[]> {
    await gateway.close()
    return spans.toSorted((a, b) => (a.startTimeUnixNano < b.startTimeUnixNano ? -1 : 1))
  }
  const sent = () => data.seen.at(-1)!.headers

  it('a traced request is a child span of a trusted proxy’s span, and the parent of the upstream’s span', async () => {
    await start({ trustedProxies: ['127.0.0.1/32'] })
    const before = Date.now()
    const headers = {
      traceparent: `00-${TRACE}-${PARENT}-01`,
      tracestate: 'a=b',
      'X-Request-Id': 'request-1',
    }
    const mine = await token('client-1')
    await call(gateway.port, { path: '/v3/x?secret=hunter2', token: mine, headers })
    const { traceparent, tracestate } = sent()
    const [span] = await ended()
    expect(span).toMatchObject({ traceId: TRACE, parentSpanId: PARENT, name: 'GET /v3/*', kind: SERVER_KIND })
    expect(span!.status.code).not.toBe(ERROR)
    expect([traceparent, tracestate]).toEqual([`00-${TRACE}-${span!.spanId}-01`, 'a=b'])
    const { 'sluice.upstream.duration_ms': upstreamMs, ...attributes } = attributesOf(span!)
    expect(attributes).toMatchObject({
      'http.request.method': 'GET',
      'http.route': '/v3/*',
      'http.response.status_code': 200,
      'url.path': '/v3/x',
      'url.scheme': 'http',
      'server.address': '127.0.0.1',
      'client.address': '127.0.0.1',
      'sluice.request_id': 'request-1',
      'sluice.source': 'upstream',
      'sluice.upstream': 'data',
      'sluice.client': 'client-1',
      'sluice.decision': 'admitted',
      'sluice.limit': 'requests',
      'sluice.remaining': 999,
      'sluice.store.mode': 'store',
      'sluice.store.duration_ms': expect.any(Number) as number,
    })
    const [beginMs, endMs] = [span!.startTimeUnixNano, span!.endTimeUnixNano].map((at) => Number(at) / 1e6)
    expect(beginMs).toBeGreaterThan(before - 5)
    expect(endMs).toBeLessThan(Date.now() + 5)
    expect(endMs! - beginMs!).toBeGreaterThanOrEqual(upstreamMs as number)
    expect(JSON.stringify(span)).not.toMatch(new RegExp(`hunter2|${mine}`))
  })

  it('shows a refusal, and the source of an error', async () => {
    await start({ identity: await deadUrl(), limit: 1 })
    const mine = await token('client-1')
    const paths = ['/v3/broken', '/v3/x', '/nowhere', '/oidc/x']
    for (const path of paths) await call(gateway.port, { path, token: mine })
    const [broken, over, unmatched, unreachable] = await ended()
    expect(attributesOf(broken!)).toMatchObject({ 'sluice.source': 'upstream', 'error.type': '500' })
    expect(broken!.status.code).toBe(ERROR)
    expect(attributesOf(over!)).toMatchObject({
      'http.response.status_code': 429,
      'sluice.decision': 'refused',
      'sluice.remaining': 0,
      'sluice.source': 'gateway',
    })
    expect(over!.status.code).not.toBe(ERROR)
    expect(unmatched).toMatchObject({ name: 'GET', status: {} })
    expect(attributesOf(unmatched!)).not.toHaveProperty('http.route')
    expect(unreachable!.status).toEqual({ code: ERROR, message: 'The upstream cannot be reached.' })
    expect(attributesOf(unreachable!)).toMatchObject({
      ...{ 'http.response.status_code': 502, 'error.type': '502', 'sluice.source': 'gateway' },
    })
  })

  it('starts a new trace for an untrusted caller, with a link to the trace of the caller', async () => {
    await start()
    await call(gateway.port, {
      path: '/v3/x',
      token: await token('client-1'),
      headers: { traceparent: `00-${TRACE}-${PARENT}-00`, tracestate: 'a=b' },
    })
    const { traceparent, tracestate } = sent()
    const [span] = await ended()
    expect(span).toMatchObject({ links: [{ traceId: TRACE, spanId: PARENT }] })
    expect(span!.traceId).not.toBe(TRACE)
    expect(span!.parentSpanId).toBeUndefined()
    expect([traceparent, tracestate]).toEqual([`00-${span!.traceId}-${span!.spanId}-01`, undefined])
  })

  it('a traced request is sampled at the configured ratio, regardless of the flag of an untrusted caller', async () => {
    await start({}, 0)
    const headers = { traceparent: `00-${TRACE}-${PARENT}-01` }
    await call(gateway.port, { path: '/v3/x', token: await token('client-1'), headers })
    expect(sent()['traceparent']).toMatch(new RegExp(`^00-(?!${TRACE})[0-9a-f]{32}-[0-9a-f]{16}-00$`))
    expect(await ended()).toEqual([])
  })

  it('a traced request is sampled by the flag of a trusted proxy, or else at the configured ratio', async () => {
    await start({ trustedProxies: ['127.0.0.1/32'] }, 0)
    const mine = await token('client-1')
    const upstreamGot = async (traceparent?: string) => {
      const headers = { ...(traceparent !== undefined && { traceparent, tracestate: 'a=b' }) }
      await call(gateway.port, { token: mine, headers })
      return sent()
    }
    const unsampled = await upstreamGot(`00-${TRACE}-${PARENT}-00`)
    expect(unsampled['traceparent']).toMatch(new RegExp(`^00-${TRACE}-(?!${PARENT})[0-9a-f]{16}-00$`))
    expect(unsampled['tracestate']).toBe('a=b')
    expect((await upstreamGot())['traceparent']).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/)
    const later = await upstreamGot(`01-${TRACE}-${PARENT}-03-more`)
    for (const wrong of [
      `ff-${TRACE}-${PARENT}-01`,
      `00-${TRACE}-${PARENT}-01-more`,
      `00-${'0'.repeat(32)}-${PARENT}-01`,
      `00-${TRACE}-${'0'.repeat(16)}-01`,
      `00-${TRACE.toUpperCase()}-${PARENT}-01`,
      `00-${TRACE}-${PARENT}-01, 00-${TRACE}-${PARENT}-01`,
      '1',
    ]) {
      const { traceparent, tracestate } = await upstreamGot(wrong)
      expect(traceparent, wrong).toMatch(new RegExp(`^00-(?!${TRACE})[0-9a-f]{32}-[0-9a-f]{16}-00$`))
      expect(tracestate).toBeUndefined()
    }
    const [span, ...others] = await ended()
    expect(others).toEqual([])
    expect(later['traceparent']).toBe(`00-${TRACE}-${span!.spanId}-01`)
  })

  it('refused: 1 traces what the gateway refuses, also if a trusted proxy does not sample it, and nothing else', async () => {
    const limits = { key: { per: ['client', 'header:x-key'], limit: 1, window: '1m' } }
    const routes = [
      {
        match: '/v3/*',
        name: 'all',
        labels: { team: 'a' },
        upstream: 'data',
        authenticate: 'bearer',
        limits: ['key'],
      },
      { match: '/dead', upstream: 'identity', authenticate: 'none' },
    ]
    const trustedProxies = ['127.0.0.1/32']
    await start({ identity: await deadUrl(), limits, routes, trustedProxies }, 0, 1)
    const mine = await token('client-1')
    const headers = { 'x-key': 'secret-of-client-1' }
    for (let i = 0; i < 2; i++) await call(gateway.port, { path: '/v3/x', token: mine, headers })
    await call(gateway.port, { path: '/v3/broken', token: mine, headers: { 'x-key': 'other-secret' } })
    const traceparent = `00-${TRACE}-${PARENT}-00`
    await call(gateway.port, { path: '/v3/x', token: 'x.y.z', headers: { traceparent } })
    await call(gateway.port, { path: '/dead', headers: { traceparent } })
    const found = await ended()
    expect(found.map((span) => attributesOf(span)['http.response.status_code'])).toEqual([429, 401, 502])
    const [over, unauthorized, unreachable] = found
    expect(attributesOf(over!)).toMatchObject({
      ...{ 'sluice.limit': 'key', 'sluice.of': 1, 'sluice.retry_after_secs': expect.any(Number) as number },
      ...{ 'sluice.code': 'TooManyRequests', 'sluice.route': 'all', 'sluice.label.team': 'a' },
      'sluice.caller': expect.stringMatching(/^client:client-1 header:x-key=secr…[0-9a-f]{8}$/) as string,
    })
    expect(JSON.stringify(over)).not.toContain('secret-of-client-1')
    expect(attributesOf(unauthorized!)).toMatchObject({ 'sluice.code': 'Unauthorized' })
    for (const span of [unauthorized, unreachable])
      expect(span).toMatchObject({ traceId: TRACE, parentSpanId: PARENT })
  })

  it('/metrics as OpenMetrics has the trace of a sampled call as an exemplar of its bucket', async () => {
    await start()
    await call(gateway.port, { path: '/v3/x', token: await token('client-1') })
    const headers = { accept: 'application/openmetrics-text; version=1.0.0' }
    const read = async () => await call(gateway.adminPort, { path: '/metrics', headers })
    const bucket =
      /^sluice_http_request_duration_seconds_bucket\{.*route="\/v3\/\*".* # \{trace_id="(\w+)"\} \S+ \S+$/m
    await until('it is counted', async () => bucket.test((await read()).body))
    const { body, headers: got } = await read()
    expect(got).toMatchObject({
      ...{ 'content-type': 'application/openmetrics-text; version=1.0.0; charset=utf-8', vary: 'Accept' },
    })
    expect(body).toMatch(/\n# EOF\n$/)
    const plain = await call(gateway.adminPort, { path: '/metrics' })
    expect(plain.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8')
    expect(plain.body).not.toMatch(/trace_id|# EOF/)
    const [span] = await ended()
    expect(bucket.exec(body)![1]).toBe(span!.traceId)
  })

  it('refused: 0, the default, traces no more than the sampler', async () => {
    await start({}, 0)
    await call(gateway.port, { path: '/v3/x', token: 'x.y.z' })
    expect(await ended()).toEqual([])
  })

  it('the span of a refused request has the id that its upstream got', async () => {
    const broken = await startUpstream((request) => void request.socket.destroy())
    await start({ data: broken.url }, 0, 1)
    await call(gateway.port, { method: 'POST', path: '/v3/x', token: await token('client-1') })
    const [span] = await ended()
    expect(attributesOf(span!)).toMatchObject({ 'http.response.status_code': 502 })
    expect(broken.seen.at(-1)!.headers['traceparent']).toBe(`00-${span!.traceId}-${span!.spanId}-00`)
  })

  it('the log names the trace of the gateway, not that of an untrusted caller', async () => {
    const logging = await startLogging({ data: data.url, more: { tracing: { endpoint, sampleRatio: 1 } } })
    const headers = { traceparent: `00-${TRACE}-${PARENT}-01` }
    await call(logging.port, { token: await token('client-1'), headers })
    await until('it is logged', () => logging.lines().some(({ msg }) => msg === 'request'))
    await logging.close()
    const [span] = spans
    expect(logging.lines().find(({ msg }) => msg === 'request')).toMatchObject({ traceId: span!.traceId })
    expect(span!.traceId).not.toBe(TRACE)
  })

  it('passes traceparent unchanged without tracing', async () => {
    await start({ more: {} })
    const headers = { traceparent: `00-${TRACE}-${PARENT}-00`, tracestate: 'a=b' }
    await call(gateway.port, { token: await token('client-1'), headers })
    expect(sent()).toMatchObject(headers)
  })
})

describe('spans', () => {
  const lines: object[] = []
  const warn = (fields: object | string, msg?: string) =>
    lines.push(typeof fields === 'string' ? { msg: fields } : { ...fields, msg })
  const log = { warn } as unknown as Log
  const open = (to = endpoint) =>
    createTracing({ endpoint: to, sampleRatio: 1, refused: 0, headers: { 'x-key': 's3cret' } }, log)
  const finished = (): Exchange => {
    const request = { headers: {}, socket: {} }
    const x = { request, method: 'GET', startedAt: 1, endedAt: 2, status: 404, ip: '::1', requestId: 'r' }
    return x as unknown as Exchange
  }
  beforeEach(() => void lines.splice(0))

  it('spans that the receiver rejects are logged once, without secrets', async () => {
    answer = 400
    const tracing = open()
    for (let i = 0; i < 300; i++) tracing.end(finished())
    await tracing.close(1000)
    await until('all batches are refused', () => fields.length >= 3)
    expect(fields[0]).toMatchObject({ 'x-key': 's3cret' })
    expect(lines).toEqual([{ reason: 'answered 400', msg: 'trace export failed; its spans are lost' }])
  })

  describe('with variables of the environment', () => {
    afterEach(() => void vi.unstubAllEnvs())
    async function exported(): Promise<Record<string, unknown>> {
      const tracing = open()
      tracing.end(finished())
      await tracing.close(1000)
      await until('it is exported', () => resources.length > 0)
      return resources[0]!
    }

    it('have the attributes of OTEL_RESOURCE_ATTRIBUTES and the name of OTEL_SERVICE_NAME', async () => {
      vi.stubEnv('OTEL_RESOURCE_ATTRIBUTES', 'service.name=x, k8s.pod.name=sluice-1,team=a%2Cb')
      vi.stubEnv('OTEL_SERVICE_NAME', 'payments-gateway')
      expect(await exported()).toMatchObject({
        ...{ 'service.name': 'payments-gateway', 'k8s.pod.name': 'sluice-1', team: 'a,b' },
        'service.instance.id': expect.any(String) as string,
      })
      expect(lines).toEqual([])
    })

    it('have none of a malformed OTEL_RESOURCE_ATTRIBUTES, which is logged', async () => {
      vi.stubEnv('OTEL_RESOURCE_ATTRIBUTES', 'team=a,wrong')
      const attributes = await exported()
      expect(attributes).toMatchObject({ 'service.name': 'sluice' })
      expect(attributes).not.toHaveProperty('team')
      const msg = 'OTEL_RESOURCE_ATTRIBUTES is malformed and ignored; write key=value,key=value'
      expect(lines).toEqual([{ msg }])
    })
  })

  it('beyond the queue are dropped while the receiver does not respond, and delay the shutdown only briefly', async () => {
    let posts = 0
    const silent = await listenLocally(createServer(() => posts++))
    const tracing = open(silent.url)
    for (let i = 0; i < 10_000; i++) tracing.end(finished())
    // `close` does not wait for the responses.
    await tracing.close(200)
    // One batch was being sent, and 2048 spans were in the queue, in batches of 128.
    await until('the last ones are posted', () => posts === 17)
    expect(lines).toEqual([])
  })
})

describe.runIf(FULL)('the SDK of OpenTelemetry', () => {
  const folder = createFolder()
  let data: TestUpstream
  beforeAll(async () => {
    data = await startUpstream()
  })
  /** Starts a gateway whose processes print, on SIGUSR2, whether the SDK is loaded. */
  async function start(more: object, args: readonly string[] = [], store: object | 'memory' = 'memory') {
    const preload = `import Module from 'node:module'
      process.on('SIGUSR2', () => {
        console.error('loaded: ' + Object.keys(Module._cache).some((file) => file.includes('/sdk-trace/')))
      })`
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(preload)}`
    const gateway = await serving(yaml({ data: data.url, store, more }), args, { NODE_OPTIONS })
    await call(gateway.port, { token: await token('client-1') })
    return gateway
  }

  it('traces in workers, reads secrets from files, and exports the last spans before the workers exit', async () => {
    const secret = join(folder, 'token')
    writeFileSync(secret, 'Bearer s3cret\n')
    const tracing = { endpoint, sampleRatio: 1, headers: { authorization: `file:${secret}` } }
    const store = { redis: { url: 'redis://127.0.0.1:1' } }
    const gateway = await start({ drainTimeout: '1s', tracing }, ['--workers', '2'], store)
    const { pid } = gateway.child
    const [worker] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number)
    process.kill(worker!, 'SIGUSR2')
    await until('it is loaded', () => gateway.stderr().includes('loaded: true'))
    gateway.kill('SIGTERM')
    expect(await gateway.ended()).toBe(0)
    expect(spans.map(({ name }) => name)).toEqual(['GET /transactions'])
    expect(fields.map(({ authorization }) => authorization)).toEqual(['Bearer s3cret'])
  })

  it('the SDK of OpenTelemetry is not loaded without tracing', async () => {
    const gateway = await start({})
    gateway.kill('SIGUSR2')
    await until('it is known', () => gateway.stderr().includes('loaded: '))
    expect(gateway.stderr()).toContain('loaded: false')
  })
})

it('the printed configuration contains no secret of tracing', async () => {
  const text = 'tracing: { endpoint: "https://o.example.com/v1?key=s3cret", headers: { x-key: s3cret } }'
  const { config } = await load(completed(text))
  expect(config.tracing).toEqual({
    ...{
      endpoint: 'https://o.example.com/v1?key=s3cret',
      sampleRatio: 0.01,
      refused: 0,
      headers: { 'x-key': 's3cret' },
    },
  })
  const { stdout } = await sluice(['check', '--config', fileOf(completed(text)), '--json'])
  expect(JSON.parse(stdout)).toMatchObject({
    tracing: {
      endpoint: 'https://o.example.com/v1?***',
      sampleRatio: 0.01,
      refused: 0,
      headers: { 'x-key': '***' },
    },
  })
})
