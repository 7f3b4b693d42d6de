import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { hashSlot } from '../../src/limit/redis/hash-slot.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, token, yaml } from '../helpers/gateway.ts'
import { mostInAWindow, type Observed, wronglyAdmitted, wronglyRefused } from '../helpers/judge.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { sharedCluster, sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Three gateways get random bursts. The judge uses only the instants at which calls were sent, and were refused or reached the upstream. */

const WINDOW_MS = 500

interface Ground {
  readonly data: TestUpstream
  readonly gateways: readonly ServingProcess[]
  /** Changes the limit of all gateways; resolves when all have applied it. */
  setLimit(limit: number): Promise<void>
}

async function ground(redis: object, limit: number): Promise<Ground> {
  const data = await startUpstream()
  const folder = createFolder()
  const file = join(folder, 'sluice.yaml')
  const write = (now: number) =>
    writeFileSync(
      file,
      yaml({
        data: data.url,
        limit: now,
        window: `${WINDOW_MS}ms`,
        store: { redis, prefix: 'exactness', timeout: '10s', onOutage: 'deny' },
        timeout: '20s',
      }),
    )
  write(limit)
  const gateways = await Promise.all([1, 2, 3].map(() => serving({ file })))
  return {
    data,
    gateways,
    async setLimit(now) {
      write(now)
      const hash = createHash('sha256').update(readFileSync(file)).digest('hex')
      // Immediately, so that the current window still contains calls counted under the previous limit.
      for (const gateway of gateways) gateway.kill('SIGHUP')
      const isInForce = ({ lines }: ServingProcess) =>
        lines().some((line) => line['msg'] === 'configuration reloaded' && line['hash'] === hash)
      await until('every gateway has the new limit', () => gateways.every(isInForce))
    },
  }
}

/** Sends random bursts until `meanwhile` resolves. Returns the outcomes of each client's calls. */
async function bursts(
  { data, gateways }: Ground,
  tokens: readonly string[],
  meanwhile: (calls: readonly (readonly Observed[])[]) => Promise<void>,
): Promise<Observed[][]> {
  const calls: (Observed & { readonly id: string })[][] = tokens.map(() => [])
  const pending: Promise<void>[] = []
  const state = { isOver: false }
  const over = meanwhile(calls).finally(() => {
    state.isOver = true
  })
  while (!state.isOver) {
    const client = Math.floor(Math.random() * tokens.length)
    for (let i = Math.ceil(Math.random() * 8); i > 0; i--) {
      const { port } = gateways[Math.floor(Math.random() * gateways.length)]!
      const id = `call-${pending.length}`
      const sentAt = performance.now()
      pending.push(
        call(port, { token: tokens[client]!, headers: { 'x-request-id': id } }).then(({ status }) => {
          expect([200, 429]).toContain(status)
          calls[client]!.push({ id, sentAt, answeredAt: performance.now(), admitted: status === 200 })
        }),
      )
    }
    await pause(Math.random() * 50)
  }
  await Promise.all([over, ...pending])
  const arrivals = new Map(data.seen.map(({ headers, at }) => [headers['x-request-id'], at]))
  expect(arrivals.size).toBe(calls.flat().filter(({ admitted }) => admitted).length)
  return calls.map((of) =>
    of.map((one) => (one.admitted ? { ...one, answeredAt: arrivals.get(one.id)! } : one)),
  )
}

/** Creates tokens of `clients` new clients, distributed over the three masters of a cluster. */
const newTokens = (clients: number) =>
  Promise.all(
    Array.from({ length: clients }, (_, i) => {
      for (;;) {
        const client = `client-${Math.random()}`
        if (Math.floor((hashSlot(client) * 3) / 16_384) === i % 3) return token(client)
      }
    }),
  )

const pause = (ms: number) => new Promise<void>((resolve) => void setTimeout(resolve, ms))

const SINGLE = ['a single Redis', async () => ({ url: (await sharedRedis()).url })] as const
const CLUSTER = [
  'a cluster of three masters',
  async () => ({ cluster: (await sharedCluster()).urls }),
] as const

// What is exact on a cluster, where each master counts for itself, is on one server: that is in `npm run test:long`.
describe.each(process.env['SLUICE_LONG'] === '1' ? [SINGLE, CLUSTER] : [CLUSTER])('on %s', (_, open) => {
  it('no window contains more calls than the limit, and no call is refused below it, also while limits are raised and lowered', async () => {
    const three = await ground(await open(), 20)
    const { setLimit } = three
    let [raisingAt, raisedAt, loweringAt, loweredAt] = [0, 0, 0, 0]
    const clients = await bursts(three, await newTokens(3), async (sofar) => {
      await pause(2 * WINDOW_MS)
      // A busy machine may send too few calls at first.
      await until('some are refused', () => sofar.flat().some(({ admitted }) => !admitted))
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
      // Calls counted under another limit also count under this one.
      expect(within(wronglyAdmitted(calls, 10, WINDOW_MS), loweredAt, Infinity)).toEqual([])
      expect(within(wronglyAdmitted(calls, 20, WINDOW_MS), 0, raisingAt)).toEqual([])
      expect(wronglyAdmitted(calls, 40, WINDOW_MS)).toEqual([])
      expect(mostInAWindow(within(calls, loweredAt, Infinity), WINDOW_MS)).toBeLessThanOrEqual(10)

      expect(within(wronglyRefused(calls, 20, WINDOW_MS), 0, loweringAt)).toEqual([])
      // An earlier refusal may be cached for a window.
      const inForceAt = raisedAt + WINDOW_MS
      expect(within(wronglyRefused(calls, 40, WINDOW_MS), inForceAt, loweringAt)).toEqual([])
      expect(wronglyRefused(calls, 10, WINDOW_MS)).toEqual([])
    }
  }, 60_000)
})
