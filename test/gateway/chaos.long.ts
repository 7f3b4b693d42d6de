import { readdirSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { describe, it } from 'vitest'
import { call, token, yaml } from '../helpers/gateway.ts'
import { mostInAWindow, type Observed } from '../helpers/judge.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { type FragileUpstream, startFragileUpstream } from '../helpers/fragile-upstream.ts'
import { until } from '../helpers/wait.ts'

/** Duration of the load, during which Redis and the upstream are killed, frozen and restarted at random. */
const LOAD_MS = 180_000
const CALLERS = 12
const CLIENTS = 2
const LIMIT = 2
const WINDOW_MS = 500

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))
const anyOf = <T>(list: readonly T[]): T => list[Math.floor(Math.random() * list.length)]!

/** The outcome of one request. */
interface Sent extends Observed {
  readonly id: string
  readonly client: number
  /** `cut`: the response was incomplete; `left`: the caller disconnected. */
  readonly outcome: number | 'cut' | 'left'
}

/** Sends one request, sometimes with a body. Sometimes disconnects before the response. */
async function send(port: number, client: number, bearer: string): Promise<Sent> {
  const id = crypto.randomUUID()
  const sentAt = performance.now()
  const done = (outcome: Sent['outcome']): Sent => ({
    id,
    client,
    sentAt,
    answeredAt: performance.now(),
    outcome,
    // Any response of the upstream. Unknown, so false, without a response.
    admitted: typeof outcome === 'number' && outcome !== 429 && outcome !== 503,
  })
  const headers = { 'X-Request-Id': id }
  if (Math.random() < 0.03) {
    const leaving = httpRequest({ port, host: '127.0.0.1', path: '/transactions', headers, agent: false })
    leaving
      .setHeader('Authorization', `Bearer ${bearer}`)
      .on('error', () => {})
      .end()
    await pause(Math.random() * 20)
    leaving.destroy()
    return done('left')
  }
  const body = Math.random() < 0.3 ? { method: 'POST', body: Buffer.alloc(Math.random() * 100_000) } : {}
  try {
    return done((await call(port, { ...body, token: bearer, headers })).status)
  } catch {
    return done('cut')
  }
}

/** Causes and repairs one fault after another: each fault once, and again while `on` returns true. */
async function havoc(redis: RedisServer, upstream: FragileUpstream, on: () => boolean): Promise<void> {
  const faults: readonly (() => Promise<void>)[] = [
    async () => {
      redis.freeze()
      await pause(Math.random() * 1500)
      redis.thaw()
    },
    async () => {
      await redis.kill()
      await pause(WINDOW_MS + Math.random() * 500)
      await redis.start()
    },
    async () => {
      await upstream.kill()
      await pause(500 + Math.random() * 500)
      await upstream.start()
    },
    async () => {
      upstream.hang()
      await pause(Math.random() * 3000)
      upstream.resume()
    },
    async () => upstream.reset(),
  ]
  do {
    for (const fault of faults.toSorted(() => Math.random() - 0.5)) {
      await fault()
      await pause(Math.random() * 300)
    }
  } while (on())
}

const bytesOf = async (gateway: ServingProcess): Promise<number> =>
  Number(
    /^process_resident_memory_bytes (\d+)/m.exec(
      (await call(gateway.adminPort, { path: '/metrics' })).body,
    )![1],
  )
/** Returns the number of open descriptors; 0 if the system does not report them. */
function descriptorsOf({ child }: ServingProcess): number {
  return process.platform === 'linux' ? readdirSync(`/proc/${child.pid}/fd`).length : 0
}

describe.concurrent.each([
  // A killed Redis loses the calls of one window; a frozen one loses nothing.
  { onOutage: 'deny', most: 2 * LIMIT },
  // In addition, the gateways' own counters admit up to the limit.
  { onOutage: 'local', most: 3 * LIMIT },
])('under onOutage: $onOutage', ({ onOutage, most }) => {
  it('each request has at most one response and one log line, no limit is exceeded by more than is documented, and no resource leaks', async ({
    expect,
    onTestFinished,
  }) => {
    const redis = await startRedis()
    const upstream = await startFragileUpstream()
    const config = yaml({
      data: upstream.url,
      limit: LIMIT,
      window: `${WINDOW_MS}ms`,
      store: { redis: { url: redis.url }, timeout: '100ms', onOutage, instances: 2 },
    })
    const gateways = await Promise.all([serving(config), serving(config)])
    onTestFinished(() => gateways.forEach((gateway) => gateway.kill()))
    const bearers = await Promise.all(
      Array.from({ length: CLIENTS }, (_, i) => token(`client-${i}`, { padding: 'x'.repeat(i) })),
    )
    const load = async (on: () => boolean): Promise<Sent[]> => {
      const sent: Sent[] = []
      const caller = async () => {
        while (on()) {
          const client = Math.floor(Math.random() * CLIENTS)
          sent.push(await send(anyOf(gateways).port, client, bearers[client]!))
          await pause(Math.random() * 30)
        }
      }
      await Promise.all(Array.from({ length: CALLERS }, caller))
      return sent
    }
    const forMs = (ms: number) => {
      const end = performance.now() + ms
      return () => performance.now() < end
    }

    const warm = await load(forMs(10_000))
    const before = await Promise.all(gateways.map(bytesOf))
    const descriptorsBefore = gateways.map(descriptorsOf)
    let broken = false
    const breaking = havoc(redis, upstream, forMs(LOAD_MS)).finally(() => (broken = true))
    const sent = await load(() => !broken)
    await breaking
    for (const { port } of gateways) {
      await until(
        'calls are answered again',
        async () => (await call(port, { token: bearers[0]! })).status === 200,
      )
    }

    const outcomes = new Set(sent.map(({ outcome }) => outcome))
    expect(
      [...outcomes].filter((outcome) => ![200, 429, 502, 503, 504, 'cut', 'left'].includes(outcome)),
    ).toEqual([])
    expect(outcomes).toContain(200)
    expect(outcomes).toContain(429)
    expect(outcomes).toContain(502)
    for (let client = 0; client < CLIENTS; client++) {
      const calls = sent.filter((one) => one.client === client)
      expect(mostInAWindow(calls, WINDOW_MS)).toBeLessThanOrEqual(most)
    }

    const lines = new Map<string, number>()
    const isLogged = () => {
      lines.clear()
      for (const gateway of gateways) {
        for (const { msg, requestId } of gateway.lines()) {
          if (msg === 'request') lines.set(String(requestId), (lines.get(String(requestId)) ?? 0) + 1)
        }
      }
      return [...warm, ...sent].every(({ id, outcome }) => outcome === 'left' || lines.has(id))
    }
    await until('every request has its log line', isLogged)
    expect([...lines].filter(([, count]) => count > 1)).toEqual([])

    await until(
      'sockets are about as many as before',
      () => gateways.every((gateway, i) => descriptorsOf(gateway) <= descriptorsBefore[i]! + CALLERS),
      20_000,
    )
    const after = await Promise.all(gateways.map(bytesOf))
    for (const [i, bytes] of after.entries()) expect(bytes - before[i]!).toBeLessThan(60 * 2 ** 20)
    for (const { child } of gateways) expect(child.exitCode).toBeNull()
  }, 400_000)
})
