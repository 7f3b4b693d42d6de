import { once } from 'node:events'
import { Agent, get, type IncomingMessage, request as httpRequest } from 'node:http'
import { get as getTls } from 'node:https'
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it } from 'vitest'
import { drain, loads } from '../../../src/downstream/listener/drain.ts'
import type { Serve } from '../../../src/downstream/listener/pipelining.ts'
import { createListener, listen } from '../../../src/downstream/listener/server.ts'
import { makeCertificate } from '../../helpers/self-signed.ts'
import { call, ROUTES, yaml } from '../../helpers/gateway.ts'
import { SILENT } from '../../helpers/listener.ts'
import { serving, type ServingProcess } from '../../helpers/process.ts'
import { raw, statuses } from '../../helpers/raw.ts'
import { quickly } from '../../helpers/runs.ts'
import { sharedRedis } from '../../helpers/shared-redis.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

let gateway: ServingProcess | undefined
const data = await startUpstream((_, response) => void setTimeout(() => response.end('{}'), 20))
const redis = await sharedRedis()

/** Outcome of a call: the status and whether the response closes the socket, or the failure and whether the socket was reused. */
interface Outcome {
  readonly at: number
  readonly got: number | string
  readonly last?: boolean
  readonly reused?: boolean
}

function post(port: number, agent: Agent): Promise<Outcome> {
  return new Promise((resolve) => {
    const request = httpRequest(
      { port, host: '127.0.0.1', method: 'POST', path: '/oidc/x', agent },
      (response) => {
        const last = response.headers.connection === 'close'
        const end = () =>
          resolve({ at: performance.now(), got: response.complete ? response.statusCode! : 'cut', last })
        response.resume().on('close', end)
      },
    )
    request.on('error', ({ code }: NodeJS.ErrnoException) =>
      resolve({ at: performance.now(), got: String(code), reused: request.reusedSocket }),
    )
    request.end('x')
  })
}

/** Acts as a load balancer that has not seen the failing readiness: keeps sending, and reopens closed sockets until that fails. */
async function balance(port: number, agent: Agent, pauseMs: number): Promise<Outcome[]> {
  const outcomes: Outcome[] = []
  for (;;) {
    const outcome = await post(port, agent)
    outcomes.push(outcome)
    if (outcome.got !== 200) return outcomes
    await sleep(pauseMs)
  }
}

it.each(quickly([1], [1, 2]))(
  'serves requests on old and new sockets from failing readiness until the port is closed: workers %i',
  async (workers) => {
    const text = yaml({
      data: data.url,
      store: { redis: { url: redis.url }, prefix: 'drain' },
      routes: [...ROUTES, { match: 'GET /health', respond: 'health', authenticate: 'none' }],
      more: { drainTimeout: '4s' },
    })
    gateway = await serving(text, ['--workers', String(workers)])
    const { port, adminPort } = gateway
    const callers = Array.from({ length: 8 }, (_, i) => {
      const keepAlive = i % 2 === 0
      const agent = new Agent({ keepAlive, maxSockets: 1 })
      // Some are idle when the gateway stops accepting sockets.
      return { keepAlive, agent, outcomes: balance(port, agent, i < 4 ? 0 : 200) }
    })
    gateway.kill('SIGTERM')
    await until('readiness fails', async () => (await call(adminPort, { path: '/readyz' })).status === 503)
    const unreadyAt = performance.now()
    const health = await call(port, { path: '/health', agent: new Agent() })
    expect([health.status, health.body]).toEqual([503, 'not ready\n'])
    let served = 1
    for (const { keepAlive, agent, outcomes } of callers) {
      const all = await outcomes
      agent.destroy()
      const failure = all.pop()!
      // A connection that the kernel accepts at that instant is reset; no reused one fails.
      expect(['ECONNREFUSED', 'ECONNRESET']).toContain(failure.got)
      expect(failure.reused).toBe(false)
      expect(all.at(-1)!.at).toBeGreaterThan(unreadyAt)
      expect(new Set(all.map(({ got }) => got))).toEqual(new Set([200]))
      // A response announces the close of each socket, so that no socket closes while a request is on its way.
      if (keepAlive) expect(all.at(-1)).toMatchObject({ last: true })
      served += all.length
    }
    expect(await gateway.ended()).toBe(0)
    expect(gateway.lines().filter(({ msg }) => msg === 'request')).toHaveLength(served)
  },
)

const bounds = {
  maxHeaderSize: 4096,
  headersTimeoutMs: 60_000,
  requestTimeoutMs: 60_000,
  keepAliveTimeoutMs: 60_000,
  maxConnections: 100,
  maxConnectionsPerAddress: 100,
}

const { cert, key } = makeCertificate()
const TLS = { cert, key, clientCa: undefined, requestClientCert: false }

it.each([
  ['HTTP', undefined],
  ['HTTPS', TLS],
])('only requests in flight delay the drain, of all sockets to an %s server', async (_, tls) => {
  let answer: (() => void) | undefined
  const serve: Serve = (response, __, done) => {
    answer = () => void response.end('ok')
    response.once('close', done)
  }
  const server = createListener(serve, bounds, SILENT, tls)
  const port = Number(new URL(await listen(server, '127.0.0.1', 0, 'listen')).port)
  const options = { port, host: '127.0.0.1', rejectUnauthorized: false }
  const quiet = [connect(options), ...(tls === undefined ? [] : [connectTls(options)])]
  const ended = quiet.map((socket) => once(socket.on('error', () => {}).resume(), 'close'))
  await Promise.all([
    once(quiet[0]!, 'connect'),
    ...quiet.slice(1).map((socket) => once(socket, 'secureConnect')),
  ])
  const under = (tls === undefined ? get : getTls)({ ...options, agent: false })
  const answered = once(under, 'response')
  await until('the request is in flight', () => answer !== undefined)
  const drained = drain(server, 60_000)
  await Promise.all(ended)
  answer!()
  const [{ statusCode }] = (await answered) as [IncomingMessage]
  expect(statusCode).toBe(200)
  under.destroy()
  expect(await drained).toBe(0)
})

it('serves callers that connected before the port closed', async () => {
  const server = createListener((response, _, done) => void response.end('ok', done), bounds, SILENT)
  const port = Number(new URL(await listen(server, '127.0.0.1', 0, 'listen')).port)
  const answers = Array.from({ length: 20 }, () =>
    raw(port, 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'),
  )
  // The kernel has accepted the connections, and the server not yet.
  await new Promise<void>((resolve) => process.nextTick(resolve))
  await drain(server, 5000, 1000)
  const got = (await Promise.all(answers)).flatMap(({ text }) => statuses(text))
  expect(got).toEqual(Array.from({ length: 20 }, () => 200))
})

/** Serves a call and drains. Returns the server and its sockets, which nothing here refers to. */
async function drainedServer(): Promise<readonly WeakRef<object>[]> {
  const server = createListener((response, _, done) => void response.end('ok', done), bounds, SILENT)
  const port = Number(new URL(await listen(server, '127.0.0.1', 0, 'listen')).port)
  expect((await call(port, { agent: new Agent() })).body).toBe('ok')
  await drain(server, 1000)
  return [new WeakRef(server), new WeakRef(loads.get(server)!.sockets)]
}

it('keeps nothing of a server in memory after its drain', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const parts = await drainedServer()
  const kept = () => parts.filter((part) => part.deref() !== undefined)
  await until('its parts are collected', () => {
    collect()
    return kept().length === 0
  })
  expect(kept()).toEqual([])
})
