import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** Two gateways get 200 calls at once that reserve points and use fewer, or any number. The judge has only the log of the upstream. */

const LIMIT = 400
const WINDOW_MS = 2000
/** Points that a call reserves at each route. */
const RESERVES = [4, 10, 25]

interface Logged {
  readonly reserved: number
  readonly used: number
  /** When its caller sent it: Redis decided it between then and `beganAt`. */
  readonly sentAt: number
  readonly beganAt: number
  endedAt: number
}

const redis = await sharedRedis()
const log: Logged[] = []
const upstream = await startUpstream((request, response) => {
  const written = String(request.headers['x-call']).split(' ').map(Number)
  const [reserved, used, ms, sentAt] = written as [number, number, number, number]
  const logged = { reserved, used, sentAt, beganAt: performance.now(), endedAt: Infinity }
  log.push(logged)
  setTimeout(() => {
    response.once('close', () => (logged.endedAt = performance.now()))
    response.writeHead(200, { 'content-type': 'application/json' }).end(`{"usage":{"total":${used}}}`)
  }, ms)
})

const actual = { json: 'usage.total' }
const start = (prefix: string) =>
  startGateway({
    data: upstream.url,
    store: { redis: { url: redis.url }, prefix, timeout: '5s', onOutage: 'deny' },
    limits: { tokens: { per: ['client'], limit: LIMIT, window: `${WINDOW_MS}ms` } },
    routes: RESERVES.map((reserve) => ({
      ...{ match: `/${reserve}`, upstream: 'data', authenticate: 'bearer', limits: ['tokens'] },
      cost: { tokens: { reserve, actual } },
    })),
  })

/** Returns how long Redis may take to settle a call that has ended: as long as it takes, at that time, to decide one. */
function patienceAt({ beganAt }: Logged): number {
  const waits = log.flatMap((one) =>
    Math.abs(one.beganAt - beganAt) < WINDOW_MS ? one.beganAt - one.sentAt : [],
  )
  return 100 + 2 * Math.max(...waits)
}

/**
 * Returns the points that the window of a call had at least when it was admitted: those of calls that had been settled for certain, and
 * of the others what they reserved, or used if that is less.
 */
function leastAt(call: Logged): number {
  const patienceMs = patienceAt(call)
  const inWindow = log.filter(
    (other) => other === call || (other.sentAt > call.beganAt - WINDOW_MS && other.beganAt <= call.sentAt),
  )
  const pointsOf = ({ reserved, used, endedAt }: Logged): number =>
    endedAt < call.sentAt - patienceMs ? used : Math.min(reserved, used)
  return inWindow.reduce((sum, other) => sum + pointsOf(other), 0)
}

it.each([
  ['fewer points than they reserved', (reserve: number) => Math.floor(Math.random() * (reserve + 1))],
  ['any number of points', (reserve: number) => Math.floor(Math.random() * 3 * reserve)],
])(
  'two gateways admit no call for whose reserve a window has no room, if calls use %s',
  async (how, usedOf) => {
    log.length = 0
    const gateways = await Promise.all(['a', 'b'].map(() => start(`settled-${how.length}`)))
    const bearer = await token(randomUUID())
    const statuses = { admitted: 0, refused: 0 }
    const endAt = performance.now() + 3 * WINDOW_MS
    /** Makes one call after the other. */
    async function caller(number: number): Promise<void> {
      while (performance.now() < endAt) {
        const reserve = RESERVES[Math.floor(Math.random() * RESERVES.length)]!
        const what = `${reserve} ${usedOf(reserve)} ${Math.floor(Math.random() * 100)} ${performance.now()}`
        const { port } = gateways[number % 2]!
        const { status } = await call(port, {
          path: `/${reserve}`,
          token: bearer,
          headers: { 'X-Call': what },
        })
        if (status === 200) statuses.admitted++
        else statuses.refused++
      }
    }
    await Promise.all(Array.from({ length: 200 }, (_, number) => caller(number)))
    expect(statuses.admitted).toBeGreaterThan(20)
    expect(statuses.refused).toBeGreaterThan(20)
    expect(Math.max(...log.map(leastAt))).toBeLessThanOrEqual(LIMIT)
  },
)
