import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { call, token, yaml } from './helpers/gateway.ts'
import { mostInAWindow, type Observed, wronglyRefused } from './helpers/judge.ts'
import { serving, type ServingProcess } from './helpers/process.ts'
import { startCluster, startRedis } from './helpers/redis.ts'
import { startUpstream, type TestUpstream } from './helpers/upstream.ts'
import { until } from './helpers/wait.ts'

/** Three gateways, random bursts, one judge who believes nothing but when calls were sent and answered. */

const WINDOW_MS = 500

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

interface Ground {
  readonly data: TestUpstream
  readonly gateways: readonly ServingProcess[]
  /** Gives all gateways another limit; resolves when all have it. */
  setLimit(limit: number): Promise<void>
}

async function ground(redis: string, limit: number): Promise<Ground> {
  const data = await startUpstream()
  closers.push(data.close)
  const folder = mkdtempSync(join(tmpdir(), 'sluice-exactness-'))
  closers.push(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'sluice.yaml')
  const write = (now: number) =>
    writeFileSync(
      file,
      yaml({
        data: data.url,
        limit: now,
        window: `${WINDOW_MS}ms`,
        store: `{ redis: ${redis}, timeout: 10s, onOutage: deny }`,
      }),
    )
  write(limit)
  const gateways = await Promise.all([1, 2, 3].map(() => serving({ file })))
  closers.push(() => gateways.forEach((gateway) => gateway.kill()))
  let written = 0
  return {
    data,
    gateways,
    async setLimit(now) {
      write(now)
      written++
      await until('every gateway has the new limit', () =>
        gateways.every(
          ({ lines }) =>
            lines().filter(({ msg }) => msg === 'the configuration is read anew').length >= written,
        ),
      )
    },
  }
}

/** Random bursts until `meanwhile` is over; what became of each client's calls. */
async function bursts(
  gateways: readonly ServingProcess[],
  tokens: readonly string[],
  meanwhile: () => Promise<void>,
): Promise<Observed[][]> {
  const calls: Observed[][] = tokens.map(() => [])
  const pending: Promise<void>[] = []
  const state = { isOver: false }
  const over = meanwhile().finally(() => {
    state.isOver = true
  })
  while (!state.isOver) {
    const client = Math.floor(Math.random() * tokens.length)
    for (let i = Math.ceil(Math.random() * 8); i > 0; i--) {
      const { port } = gateways[Math.floor(Math.random() * gateways.length)]!
      const sentAt = performance.now()
      pending.push(
        call(port, { token: tokens[client]! }).then(({ status }) => {
          expect([200, 429]).toContain(status)
          calls[client]!.push({ sentAt, answeredAt: performance.now(), admitted: status === 200 })
        }),
      )
    }
    await pause(Math.random() * 25)
  }
  await Promise.all([over, ...pending])
  return calls
}

const newTokens = (clients: number) =>
  Promise.all(Array.from({ length: clients }, (_, i) => token(`client-${i}-${Math.random()}`)))

const pause = (ms: number) => new Promise<void>((resolve) => void setTimeout(resolve, ms))

describe.each([
  [
    'a single Redis',
    async () => {
      const redis = await startRedis()
      closers.push(redis.close)
      return `{ url: "${redis.url}" }`
    },
  ],
  [
    'a cluster of three masters',
    async () => {
      const cluster = await startCluster(3)
      closers.push(cluster.close)
      return `{ cluster: ${JSON.stringify(cluster.urls)} }`
    },
  ],
])('on %s', (_, open) => {
  it('no window holds more than the limit, and no call is refused while one holds fewer', async () => {
    const { data, gateways } = await ground(await open(), 20)
    const calls = await bursts(gateways, await newTokens(4), () => pause(4 * WINDOW_MS))
    for (const one of calls) {
      expect(mostInAWindow(one, WINDOW_MS)).toBeLessThanOrEqual(20)
      expect(wronglyRefused(one, 20, WINDOW_MS)).toEqual([])
    }
    const admitted = calls.flat().filter((one) => one.admitted).length
    expect(data.seen.length).toBe(admitted)
    expect(calls.flat().length).toBeGreaterThan(admitted)
  }, 60_000)

  it('limits raised and lowered under load lose and gain nothing', async () => {
    const { gateways, setLimit } = await ground(await open(), 20)
    let [raisingAt, raisedAt, loweringAt, loweredAt] = [0, 0, 0, 0]
    const clients = await bursts(gateways, await newTokens(2), async () => {
      await pause(WINDOW_MS)
      raisingAt = performance.now()
      await setLimit(40)
      raisedAt = performance.now()
      await pause(3 * WINDOW_MS)
      loweringAt = performance.now()
      await setLimit(10)
      loweredAt = performance.now()
      await pause(2 * WINDOW_MS)
    })
    for (const calls of clients) {
      const within = (some: readonly Observed[], from: number, to: number) =>
        some.filter(({ sentAt, answeredAt }) => sentAt > from && answeredAt < to)
      expect(mostInAWindow(within(calls, 0, raisingAt), WINDOW_MS)).toBeLessThanOrEqual(20)
      expect(mostInAWindow(calls, WINDOW_MS)).toBeLessThanOrEqual(40)
      expect(mostInAWindow(within(calls, loweredAt, Infinity), WINDOW_MS)).toBeLessThanOrEqual(10)

      expect(within(wronglyRefused(calls, 20, WINDOW_MS), 0, loweringAt)).toEqual([])
      // A refusal of before may be remembered for a window.
      const inForceAt = raisedAt + WINDOW_MS
      expect(within(wronglyRefused(calls, 40, WINDOW_MS), inForceAt, loweringAt)).toEqual([])
      expect(wronglyRefused(calls, 10, WINDOW_MS)).toEqual([])
    }
  }, 60_000)
})
