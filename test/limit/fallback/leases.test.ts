import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type FallbackOptions, type FallbackStore, withFallback } from '../../../src/limit/fallback/store.ts'
import type { Quota } from '../../../src/limit/quota.ts'
import { createRedisStore } from '../../../src/limit/redis/store.ts'
import type { Charge } from '../../../src/limit/store.ts'
import { type RedisServer, startRedis } from '../../helpers/redis.ts'
import { until } from '../../helpers/wait.ts'

/** Gateways that share a real Redis, which is stopped, continued and emptied. */

let redis: RedisServer
beforeAll(async () => {
  redis = await startRedis()
  return () => redis.close()
})
beforeEach(() => redis.command('FLUSHALL'))

const opened: FallbackStore[] = []
afterEach(async () => {
  redis.thaw()
  await Promise.all(opened.splice(0).map((store) => store.close()))
})

async function gateway(options: Partial<FallbackOptions> = {}, timeoutMs = 200): Promise<FallbackStore> {
  const counters = createRedisStore({ topology: { url: redis.url }, prefix: 'l', timeoutMs })
  const store = withFallback(counters, { onOutage: 'local', probeEveryMs: 50, ...options })
  opened.push(store)
  await counters.connect()
  return store
}

const exports = (limit: number, windowMs = 60_000): Quota => ({
  ...{ name: 'exports', key: 'l:{a}:exports', limit, windowMs, shadow: false, isConcurrent: true },
})

/** Makes calls one after another, until one is refused; returns those that were admitted. */
async function fill(store: FallbackStore, quota: Quota): Promise<Charge[]> {
  const calls: Charge[] = []
  for (;;) {
    const charge = store.ownRefusal(quota) === undefined ? await store.charge([quota]) : undefined
    if (charge?.admitted !== true) return calls
    calls.push(charge)
  }
}
const stored = async () => Number(await redis.command('ZCARD', 'l:{a}:exports'))
const isDown = (store: FallbackStore, quota: Quota) =>
  until('the store is down', async () => {
    const { admitted, lease } = await store.charge([quota])
    if (admitted) store.release([quota], lease!)
    return store.mode() === 'local'
  })

describe('calls at once with a fallback', () => {
  it('are admitted up to the part of the gateway without Redis, at least one', async () => {
    const [half, little] = [await gateway({ instances: 2 }), await gateway({ instances: 20 })]
    redis.freeze()
    await isDown(half, exports(10))
    await isDown(little, exports(10))
    expect((await fill(half, exports(10))).length).toBe(5)
    expect((await fill(little, exports(10))).length).toBe(1)
  })

  it('without Redis, the allowance of each call says whether there was room for it', async () => {
    const store = await gateway()
    redis.freeze()
    await isDown(store, exports(2))
    const allowances = async () => (await store.charge([exports(2)])).allowances
    expect(await allowances()).toMatchObject([{ admitted: true, remaining: 1, retryAfterMs: 0 }])
    expect(await allowances()).toMatchObject([{ admitted: true, remaining: 0 }])
    expect(await allowances()).toMatchObject([{ admitted: false, remaining: 0, retryAfterMs: 1000 }])
  })

  it('that were admitted before an outage go on counting during it', async () => {
    const store = await gateway()
    const quota = exports(3)
    const [first] = [await store.charge([quota]), await store.charge([quota])]
    redis.freeze()
    await isDown(store, { ...quota, key: 'l:{a}:other' })
    expect((await fill(store, quota)).length).toBe(1)
    store.release([quota], first.lease!)
    expect((await fill(store, quota)).length).toBe(1)
  })

  it('that were admitted without Redis reach it after the outage, and fill the limit of other gateways', async () => {
    const [store, other] = [await gateway(), await gateway()]
    const quota = exports(4)
    redis.freeze()
    await isDown(store, { ...quota, key: 'l:{a}:other' })
    const calls = await fill(store, quota)
    expect(calls.length).toBeGreaterThan(0)
    redis.thaw()
    await until('Redis has the calls', async () => (await stored()) === calls.length)
    await until('the other gateway is up', () => other.mode() === 'store')
    expect((await fill(other, quota)).length).toBe(4 - calls.length)
    for (const { lease } of calls) store.release([quota], lease!)
    await until('the other gateway has all places', async () => (await stored()) === 4 - calls.length)
  })

  it('are never more than the limit at one gateway, even if Redis loses its data', async () => {
    const store = await gateway()
    const quota = exports(3)
    expect((await fill(store, quota)).length).toBe(3)
    await redis.command('FLUSHALL')
    expect(store.ownRefusal(quota)).toMatchObject({ admitted: false, remaining: 0, retryAfterMs: 1000 })
  })

  it('are stored again by the first answer that shows that Redis has lost its data', async () => {
    const [store, other] = [await gateway(), await gateway()]
    const quota = exports(4)
    for (let i = 0; i < 2; i++) await store.charge([quota])
    await redis.command('FLUSHALL')
    await store.charge([quota])
    // At once: the leases count in addition to those of Redis.
    expect((await store.peek([quota]))[0]).toMatchObject({ used: 3 })
    await until('Redis has all leases', async () => (await stored()) === 3)
    expect((await fill(other, quota)).length).toBe(1)
  })

  it('are stored again at once when Redis is seen to have lost its data', async () => {
    const store = await gateway()
    const [quota, elsewhere] = [exports(4), { ...exports(4), key: 'l:{b}:exports' }]
    for (let i = 0; i < 2; i++) await store.charge([quota])
    await store.charge([elsewhere])
    await redis.command('FLUSHALL')
    store.restoreLeases('another server')
    store.restoreLeases('redis')
    await until('Redis has all leases', async () => (await stored()) === 2)
    expect(await redis.command('ZCARD', elsewhere.key)).toBe(1)
  })

  it('that were reset are stored again at once', async () => {
    const store = await gateway()
    const quota = exports(4)
    for (let i = 0; i < 2; i++) await store.charge([quota])
    const matches = (key: string) => key === quota.key
    expect(await store.reset({ named: [quota.key], glob: undefined, matches })).toBe(1)
    await until('Redis has all leases', async () => (await stored()) === 2)
  })

  it('are stored again if Redis has lost one of several', async () => {
    const store = await gateway()
    const quota = exports(4)
    const calls = [await store.charge([quota]), await store.charge([quota])]
    await redis.command('ZREM', quota.key, calls[0]!.lease!)
    expect((await store.charge([quota])).admitted).toBe(true)
    await until('Redis has all leases', async () => (await stored()) === 3)
  })

  it('of a long lease do not lose their key by the renewal of a short one', async () => {
    const store = await gateway()
    await store.charge([exports(4, 60_000)])
    await store.charge([exports(4, 2000)])
    const end = async () =>
      Number(((await redis.command('ZRANGE', 'l:{a}:exports', 0, 0, 'WITHSCORES')) as string[])[1])
    const first = await end()
    await until('the short lease is renewed', async () => (await end()) > first)
    expect(Number(await redis.command('PTTL', 'l:{a}:exports'))).toBeGreaterThan(30_000)
  })

  it('keep their key alive that began under a shorter lease', async () => {
    const store = await gateway()
    await store.charge([exports(4, 2000)])
    await store.charge([exports(4, 60_000)])
    expect(Number(await redis.command('PTTL', 'l:{a}:exports'))).toBeGreaterThan(30_000)
  })

  it('give their places back when Redis did not take their end at first', async () => {
    const store = await gateway()
    const quota = exports(4)
    const { lease } = await store.charge([quota])
    await redis.command('ACL', 'SETUSER', 'default', '-zrem')
    try {
      store.release([quota], lease!)
      await until('Redis has refused the end', async () =>
        String(await redis.command('ACL', 'LOG')).includes('zrem'),
      )
      expect(await stored()).toBe(1)
    } finally {
      await redis.command('ACL', 'SETUSER', 'default', '+zrem')
    }
    await until('the place is free', async () => (await stored()) === 0)
  })

  it('are not renewed by a question that comes too late', async () => {
    const counters = createRedisStore({ topology: { url: redis.url }, prefix: 'l', timeoutMs: 200 })
    await counters.connect()
    const quota = exports(4)
    await counters.charge([quota], undefined, '1:a')
    await counters.endLeases([{ quota, id: '1:a' }])
    redis.freeze()
    await expect(counters.renewLeases([{ quota, id: '1:a' }], [60_000])).rejects.toThrow('within')
    redis.thaw()
    await until('Redis answers again', () =>
      counters.peek([quota]).then(
        () => true,
        () => false,
      ),
    )
    expect(await stored()).toBe(0)
    await counters.close()
  })

  it('keep their places for longer than a lease', async () => {
    // Patient, so that a busy machine does not cause an outage.
    const [store, other] = [await gateway({}, 10_000), await gateway({}, 10_000)]
    const quota = exports(2, 2000)
    await fill(store, quota)
    const end = Date.now() + 4000
    while (Date.now() < end) expect((await other.charge([quota])).admitted).toBe(false)
  })

  it('lose no place by an answer that comes too late', async () => {
    const store = await gateway({ onOutage: 'deny' })
    const quota = exports(2)
    redis.freeze()
    await expect(store.charge([quota])).rejects.toThrow('cannot be checked')
    redis.thaw()
    await until('the place is free', async () => {
      const charge = await Promise.resolve(store.charge([quota])).catch(() => undefined)
      if (charge?.admitted) store.release([quota], charge.lease!)
      return charge?.admitted === true && charge.allowances[0]!.used === 1
    })
  })

  it('show when the oldest began, with Redis and without', async () => {
    const store = await gateway()
    const quota = exports(3)
    const before = Date.now()
    await store.charge([quota])
    await store.charge([quota])
    const read = async () => (await store.inspect([quota]))[0]!.allowance
    expect((await read()).sinceAt! - before).toBeGreaterThan(-1000)
    const { sinceAt } = await read()
    redis.freeze()
    await isDown(store, { ...quota, key: 'l:{a}:other' })
    expect(await read()).toMatchObject({ used: 2, sinceAt })
    expect((await store.inspect([{ ...quota, key: 'l:{a}:other' }]))[0]!.allowance.sinceAt).toBeUndefined()
  })
})
