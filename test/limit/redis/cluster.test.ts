import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { hashSlot, tagOf } from '../../../src/limit/redis/hash-slot.ts'
import type { Limit, Quota } from '../../../src/limit/limit.ts'
import { type OutageChange, withOutage } from '../../../src/limit/fallback/store.ts'
import { RedisStore } from '../../../src/limit/redis/store.ts'
import { createUsage } from '../../../src/limit/usage.ts'
import { type RedisCluster, startCluster } from '../../helpers/redis.ts'
import { until } from '../../helpers/wait.ts'

let cluster: RedisCluster
let lone: RedisCluster
beforeAll(async () => {
  ;[cluster, lone] = await Promise.all([startCluster(3), startCluster(1)])
})
afterAll(async () => {
  await Promise.all([cluster.close(), lone.close()])
})

let store: RedisStore
const closers: (() => Promise<unknown>)[] = []
beforeEach(async () => {
  await configure('cluster-preferred-endpoint-type', 'ip')
})
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

async function configure(name: string, value: string | number): Promise<void> {
  for (const node of cluster.nodes) await node.command('CONFIG', 'SET', name, value)
}

async function connect(urls: readonly string[]): Promise<boolean> {
  store = new RedisStore({ topology: { cluster: urls }, prefix: 't' })
  closers.push(() => store.close())
  return await store.connect()
}

/** The hosts by which a node names the masters of all slots. */
async function hosts(): Promise<unknown> {
  const slots = (await cluster.nodes[1]!.command('CLUSTER', 'SLOTS')) as [number, number, [unknown]][]
  return [...new Set(slots.map(([, , [host]]) => host))]
}

const charge = (tag: string) =>
  store.charge([{ name: 'x', key: `t:{${tag}}:x`, limit: 5, windowMs: 60_000, shadow: false }])
const TAGS = Array.from({ length: 30 }, (_, i) => `k${i}`)

test('a node that does not know its own address is where it was asked', async () => {
  await lone.nodes[0]!.command('CONFIG', 'SET', 'cluster-announce-ip', '')
  expect(JSON.stringify(await lone.nodes[0]!.command('CLUSTER', 'SLOTS'))).toContain('[""')
  await connect(lone.urls)
  await until('the slots are known', () => store.server('t:{a}:x') !== 'unknown')
  expect(store.server('t:{a}:x')).toBe(`127.0.0.1:${lone.nodes[0]!.port}`)
  expect((await charge('a')).admitted).toBe(true)
})

test.each([
  ['have no name', 'hostname', '?'],
  ['may not tell their address', 'unknown-endpoint', null],
])('nodes that %s are found, those too to which a slot has moved', async (_, type, host) => {
  await configure('cluster-preferred-endpoint-type', type)
  expect(await hosts()).toEqual([host])
  await connect(cluster.urls.slice(0, 1))
  await until('all three are known', () => store.samples().length === 3)
  for (const tag of TAGS) expect((await charge(tag)).admitted).toBe(true)

  const moved = `moved-${type}`
  const slot = hashSlot(moved)
  const from = await cluster.masterOf(slot)
  const to = cluster.nodes.find((node) => node !== from)!
  const id = String(await to.command('CLUSTER', 'MYID'))
  await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(await from.command('CLUSTER', 'MYID')))
  for (const node of [to, from]) await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', id)
  expect((await charge(moved)).admitted).toBe(true)
})

test('a node at an announced address where nobody is reached is named, with what to set, and the others decide', async () => {
  const last = cluster.nodes[2]
  await last!.command('CONFIG', 'SET', 'cluster-announce-port', 1)
  closers.push(async () => await last!.command('CONFIG', 'SET', 'cluster-announce-port', 0))
  await until('all have heard', async () => {
    const slots = await Promise.all(cluster.nodes.map((node) => node.command('CLUSTER', 'SLOTS')))
    return slots.every((one) => JSON.stringify(one).includes('"127.0.0.1",1,'))
  })
  expect(await connect(cluster.urls.slice(0, 1))).toBe(false)
  const changes: OutageChange[] = []
  const guarded = withOutage(store, { onOutage: 'local', onChange: (change) => changes.push(change) })
  closers.push(() => guarded.close())
  await guarded.begin()
  expect(changes).toMatchObject([{ server: '127.0.0.1:1' }])
  expect(changes[0]!.cause!.message).toMatch(
    /^Redis is not connected: the cluster announces 127\.0\.0\.1:1, which .* never reached .*ECONNREFUSED.*set cluster-announce-ip/,
  )
  const modes = TAGS.map(async (tag) => {
    const key = `t:{${tag}}:x`
    const { mode } = await guarded.charge([{ name: 'x', key, limit: 5, windowMs: 60_000, shadow: false }])
    return [store.server(key) === '127.0.0.1:1' ? 'local' : 'store', mode]
  })
  for (const [expected, mode] of await Promise.all(modes)) expect(mode).toBe(expected)
})

test('slots that no master serves are told with their number, at the start and later, and seen to fail', async () => {
  const [node] = lone.nodes
  await node!.command('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
  await node!.command('CLUSTER', 'DELSLOTSRANGE', 0, 4999)

  const warnings: string[] = []
  const onWarning = (warning: string) => void warnings.push(warning)
  store = new RedisStore({ topology: { cluster: lone.urls }, prefix: 't', onWarning })
  expect(await store.connect()).toBe(false)
  expect(warnings).toEqual([expect.stringMatching(/^5000 of the 16384 slots .* have no master/)])

  const often = { idleEveryMs: 20, probeEveryMs: 20, timeoutMs: 2000 }
  const guarded = withOutage(store, { onOutage: 'local', ...often })
  closers.push(() => guarded.close())
  const callersOfOthersAreDecidedFor = async (unserved: number) => {
    for (const tag of TAGS) {
      const key = `t:{${tag}}:x`
      const { mode } = await guarded.charge([{ name: 'x', key, limit: 5, windowMs: 60_000, shadow: false }])
      expect(mode, tag).toBe(hashSlot(tag) < unserved ? 'local' : 'store')
    }
  }
  await guarded.begin()
  expect(guarded.mode()).toBe('local')
  expect(store.server(`t:{${tagOf(0)}}:x`)).toBe('slots without a master')
  expect(store.server(`t:{${tagOf(5000)}}:x`)).toBe(`127.0.0.1:${node!.port}`)
  await callersOfOthersAreDecidedFor(5000)

  await node!.command('CLUSTER', 'ADDSLOTSRANGE', 0, 4999)
  await until('Redis decides for all', () => guarded.mode() === 'store')
  store.reconnect(`t:{${tagOf(0)}}:x`)
  await until('the slots are known', () => store.samples().length === 1)
  await callersOfOthersAreDecidedFor(0)

  await node!.command('CLUSTER', 'DELSLOTSRANGE', 0, 3999)
  await until('it is told again', () => warnings.length === 2)
  expect(warnings[1]).toMatch(/^4000 of /)
  await until('it is seen without callers', () => guarded.mode() === 'local' && store.samples().length === 2)
  // Until it was told, the node was asked, and may have been taken for one that fails.
  const kept: Quota = { name: 'x', key: `t:{${tagOf(4000)}}:x`, limit: 1000, windowMs: 60_000, shadow: false }
  await until('the others are decided for', async () => (await guarded.charge([kept])).mode === 'store')
  await callersOfOthersAreDecidedFor(4000)
  await node!.command('CLUSTER', 'ADDSLOTSRANGE', 0, 3999)
})

test('of a client whose master is gone operators are told nothing, and it is not said to be freed; of others they are told all', async () => {
  await configure('cluster-require-full-coverage', 'no')
  const limits: readonly Limit[] = [
    { name: 'x', per: ['client'], limit: 5, windowMs: 60_000, shadow: false, changes: [] },
  ]
  await connect(cluster.urls)
  const guarded = withOutage(store, { onOutage: 'local' })
  closers.push(() => guarded.close())
  const usage = createUsage({ store: guarded, counters: store, prefix: 't', limits })
  const [gone] = cluster.nodes
  const isLost = (tag: string) => store.server(`t:{${tag}}:x`) === `127.0.0.1:${gone!.port}`
  await until('all three are known', () => store.samples().length === 3)
  const [lost, kept] = [TAGS.find(isLost)!, TAGS.find((tag) => !isLost(tag))!]
  await charge(kept)
  await gone!.kill()
  const why = /^Redis is not connected: 127\.0\.0\.1:\d+: connect ECONNREFUSED/
  await until('the reason is known', () =>
    charge(lost).then(
      () => false,
      ({ message }: Error) => why.test(message),
    ),
  )

  await expect(usage.ofClient(lost)).rejects.toThrow(why)
  await expect(usage.free(lost)).rejects.toThrow(why)
  expect(await usage.ofClient(kept)).toMatchObject({ limits: [{ name: 'x' }] })
  expect(await usage.free(kept)).toBe(1)
  const anywhere = createUsage({ store, prefix: 't', limits: [{ ...limits[0]!, per: ['ip', 'client'] }] })
  await expect(anywhere.free(kept)).rejects.toThrow('not connected')
})
