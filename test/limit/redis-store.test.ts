import { afterAll, beforeAll } from 'vitest'
import { hashSlot } from '../../src/limit/hash-slot.ts'
import { withOutage } from '../../src/limit/outage.ts'
import type { RemoteStore } from '../../src/limit/store.ts'
import { type RedisCluster, type RedisServer, startCluster, startRedis } from '../helpers/redis.ts'
import { storeContract } from './store-contract.ts'
import { redisSubject, throughLimiter } from './subjects.ts'

let server: RedisServer
let cluster: RedisCluster
beforeAll(async () => {
  ;[server, cluster] = await Promise.all([startRedis(), startCluster()])
})
afterAll(async () => {
  await Promise.all([server?.close(), cluster?.close()])
})

const single = () => redisSubject({ url: server.url }, (_, [name, ...args]) => server.command(name!, ...args))

storeContract('the Redis store', single, { runs: 300 })

storeContract('the Redis store through a limiter', async () => throughLimiter(await single()), {
  runs: 100,
  refusalsAlone: true,
  monotonic: true,
})

storeContract(
  'the Redis store that may fail',
  async () => {
    const subject = await single()
    const store = withOutage(subject.store as RemoteStore, { onOutage: 'deny', timeoutMs: 10_000 })
    return { ...subject, store }
  },
  { runs: 120 },
)

storeContract(
  'the Redis store on a cluster',
  async () => {
    const owners = new Map<number, RedisServer>()
    return await redisSubject({ cluster: cluster.urls }, async (tag, [name, ...args]) => {
      const slot = hashSlot(tag)
      const owner = owners.get(slot) ?? (await cluster.masterOf(slot))
      owners.set(slot, owner)
      return await owner.command(name!, ...args)
    })
  },
  { runs: 120 },
)
