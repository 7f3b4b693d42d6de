import type { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import type { OutageChange } from '../../../src/limit/fallback/breakers.ts'
import { withFallback } from '../../../src/limit/fallback/store.ts'
import type { Limit } from '../../../src/policy/limit.ts'
import { openClient } from '../../../src/limit/redis/client.ts'
import { hashSlot, tagOf } from '../../../src/limit/redis/hash-slot.ts'
import { clusterOptions } from '../../../src/limit/redis/options.ts'
import { createRedisStore, type RedisStore } from '../../../src/limit/redis/store.ts'
import { parseCaller } from '../../../src/policy/counted-caller.ts'
import { createCounters } from '../../../src/admin/requests/counters.ts'
import { Reserves } from '../../../src/gateway/reserves.ts'
import { inspectedStore } from '../../helpers/inspected.ts'
import { type RedisCluster, type RedisServer, startCluster } from '../../helpers/redis.ts'
import { until } from '../../helpers/wait.ts'

let cluster: RedisCluster
let lone: RedisCluster
beforeAll(async () => {
  ;[cluster, lone] = await Promise.all([startCluster(3), startCluster(1)])
})
afterAll(async () => {
  await Promise.all([cluster.close(), lone.close()])
})

const closers: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

async function connect(urls: readonly string[]): Promise<{ store: RedisStore; connected: boolean }> {
  const store = createRedisStore({ topology: { cluster: urls }, prefix: 't', timeoutMs: 2000 })
  closers.push(() => store.close())
  return { store, connected: await store.connect() }
}

const quota = (tag: string) => ({
  name: 'x',
  key: `t:{${tag}}:x`,
  limit: 1000,
  windowMs: 60_000,
  shadow: false,
})
const TAGS = Array.from({ length: 30 }, (_, i) => `k${i}`)

test('charges a slot that moved to another master there', async () => {
  const { store } = await connect(cluster.urls.slice(0, 1))
  const slot = hashSlot('moved')
  const from = await cluster.masterOf(slot)
  const to = cluster.nodes.find((node) => node !== from)!
  const id = String(await to.command('CLUSTER', 'MYID'))
  await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(await from.command('CLUSTER', 'MYID')))
  for (const node of [to, from]) await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', id)
  expect((await store.charge([quota('moved')])).admitted).toBe(true)
})

test('connects a replica that becomes a master before its first command', async () => {
  const replicated = await startCluster(3, 1)
  closers.push(() => replicated.close())
  const client = openClient({ topology: { cluster: replicated.urls } }, () => {})
  closers.push(async () => client.close())
  await client.connect()
  const replica = replicated.nodes[3]!
  await replica.command('CLUSTER', 'FAILOVER', 'TAKEOVER')
  await until('the replica is connected as the master', () =>
    client.masters().some(({ options, status }) => options.port === replica.port && status === 'ready'),
  )
  expect(client.masters()).toHaveLength(3)
})

/** Has the other nodes and clients believe that a node is at a port where nothing is. */
async function announceNothing(node: RedisServer): Promise<void> {
  await node.command('CONFIG', 'SET', 'cluster-announce-port', 1)
  closers.push(async () => await node.command('CONFIG', 'SET', 'cluster-announce-port', 0))
  await until('all nodes know the address', async () => {
    const slots = await Promise.all(cluster.nodes.map(({ command }) => command('CLUSTER', 'SLOTS')))
    return slots.every((reply) => JSON.stringify(reply).includes('"127.0.0.1",1,'))
  })
}

test('waits longer for a node each time it cannot be connected', async () => {
  await announceNothing(cluster.nodes[2]!)
  const client = openClient({ topology: { cluster: cluster.urls.slice(0, 1) } }, () => {})
  closers.push(async () => client.close())
  const timeouts: unknown[] = []
  client.commands.on('+node', ({ options }: Redis) => {
    if (options.port === 1) timeouts.push(options.connectTimeout)
  })
  await client.connect().catch(() => 'a node is missing')
  await until('it is tried again', () => {
    client.reconnect('127.0.0.1:1')
    return timeouts.length >= 3
  })
  expect(timeouts.slice(0, 3)).toEqual([1000, 2000, 4000])
})

test('names a node that is unreachable at its announced address, and the others decide', async () => {
  await announceNothing(cluster.nodes[2]!)
  const { store, connected } = await connect(cluster.urls.slice(0, 1))
  expect(connected).toBe(false)
  const changes: OutageChange[] = []
  const guarded = withFallback(store, { onOutage: 'local', onChange: (change) => changes.push(change) })
  closers.push(() => guarded.close())
  await guarded.begin()
  expect(changes).toMatchObject([{ server: '127.0.0.1:1' }])
  expect(changes[0]!.cause!.message).toMatch(/^Redis is not connected: 127\.0\.0\.1:1: .*ECONNREFUSED/)
  for (const tag of TAGS) {
    const { mode } = await guarded.charge([quota(tag)])
    expect(mode).toBe(store.server(quota(tag).key) === '127.0.0.1:1' ? 'local' : 'store')
  }
})

test('uses the fallback for slots without a master, until they have a master', async () => {
  const node = lone.nodes[0]!
  await node.command('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
  await node.command('CLUSTER', 'DELSLOTSRANGE', 0, 4999)
  const { store, connected } = await connect(lone.urls)
  expect(connected).toBe(false)

  const guarded = withFallback(store, { onOutage: 'local', idleEveryMs: 20, probeEveryMs: 20 })
  closers.push(() => guarded.close())
  await guarded.begin()
  expect(guarded.mode()).toBe('local')
  expect(store.server(`t:{${tagOf(0)}}:x`)).toBe('slots without a master')
  expect(store.server(`t:{${tagOf(5000)}}:x`)).toBe(`127.0.0.1:${node.port}`)
  for (const tag of TAGS) {
    expect((await guarded.charge([quota(tag)])).mode).toBe(hashSlot(tag) < 5000 ? 'local' : 'store')
  }
  await node.command('CLUSTER', 'ADDSLOTSRANGE', 0, 4999)
  await until('Redis decides for all slots', () => guarded.mode() === 'store')
  for (const tag of TAGS) expect((await guarded.charge([quota(tag)])).mode).toBe('store')
})

test('reads and frees only the callers of masters that are available', async () => {
  for (const node of cluster.nodes) {
    await node.command('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
  }
  const limits: readonly Limit[] = [
    { name: 'x', per: ['client'], limit: 5, windowMs: 60_000, shadow: false, changes: [] },
  ]
  const { store } = await connect(cluster.urls)
  const guarded = withFallback(store, { onOutage: 'local' })
  closers.push(() => guarded.close())
  const inspected = inspectedStore(store)
  const reserves = new Reserves()
  const counters = createCounters({
    store: { ...inspected, reset: guarded.reset },
    reserves,
    prefix: 't',
    limits,
  })
  const [dead] = cluster.nodes
  const isLost = (tag: string) => store.server(quota(tag).key) === `127.0.0.1:${dead!.port}`
  const [lost, kept] = [TAGS.find(isLost)!, TAGS.find((tag) => !isLost(tag))!]
  await store.charge([quota(kept)])
  await dead!.kill()
  const notConnected = /^Redis is not connected: 127\.0\.0\.1:\d+: connect ECONNREFUSED/
  await until('the reason is known', () =>
    store.charge([quota(lost)]).then(
      () => false,
      ({ message }: Error) => notConnected.test(message),
    ),
  )

  await expect(counters.ofCaller(parseCaller(lost))).rejects.toThrow(notConnected)
  await expect(counters.free(parseCaller(lost))).rejects.toThrow(notConnected)
  expect(await counters.ofCaller(parseCaller(kept))).toMatchObject({ limits: [{ name: 'x' }] })
  expect(await counters.free(parseCaller(kept))).toBe(1)
  const anywhere = createCounters({
    store: inspected,
    reserves,
    prefix: 't',
    limits: [{ ...limits[0]!, per: ['ip', 'client'] }],
  })
  await expect(anywhere.free(parseCaller(kept))).rejects.toThrow('not connected')
})

test('the hosts of nodes are not resolved with TLS, whose certificates name hosts', () => {
  expect(clusterOptions(['rediss://a.internal:1'], {}).options).toHaveProperty('dnsLookup')
  expect(clusterOptions(['redis://a.internal:1'], {}).options).not.toHaveProperty('dnsLookup')
})

test('is found again after a fault of the network when all nodes of the file were replaced', async () => {
  const replaced = await startCluster(1, 1)
  closers.push(() => replaced.close())
  const [old, successor] = replaced.nodes
  const { store } = await connect([old!.url])
  const charges = () => store.charge([quota('a')]).then(Boolean, () => false)
  expect(await charges()).toBe(true)
  await successor!.command('CLUSTER', 'FAILOVER', 'TAKEOVER')
  await until('the successor decides', async () =>
    store.servers().every((name) => name.endsWith(`:${successor!.port}`)),
  )
  await until('it is connected', charges)
  await old!.kill()
  await until('the client knows it', async () => charges())
  await successor!.command('CLIENT', 'KILL', 'TYPE', 'normal')
  await until('it is connected again', charges)
})
