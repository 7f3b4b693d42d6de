import { hostname } from 'node:os'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import type { Overview } from '../../../src/admin/overview/overview.ts'
import { createFolder } from '../../helpers/folder.ts'
import { call, type Settings, startGateway, type TestGateway, token, yaml } from '../../helpers/gateway.ts'
import { serving } from '../../helpers/process.ts'
import { freePort } from '../../helpers/ports.ts'
import { startRedis } from '../../helpers/redis.ts'
import { FULL } from '../../helpers/runs.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

type Shown = Overview['gateways'][number]
const SUMMARIES = 'sluice:{}:~summaries'
type Asked = Pick<TestGateway, 'adminPort'>

const folder = createFolder()
const [upstream, redis] = await Promise.all([startUpstream(), startRedis()])
beforeEach(() => redis.command('FLUSHALL'))

const settings = (more: Partial<Settings> = {}): Settings => ({
  data: upstream.url,
  store: { redis: { url: redis.url }, timeout: '5s' },
  ...more,
})
let files = 0
const start = (more: Partial<Settings> = {}) => startGateway(settings(more), join(folder, `${files++}.yaml`))
/** Starts a gateway as a process of its own. */
const startProcess = (args: readonly string[] = []) =>
  serving(yaml(settings({ more: { drainTimeout: '100ms' } })), args)
const overviewOf = async ({ adminPort }: Asked): Promise<Overview> =>
  (await call(adminPort, { path: '/overview' })).json
const gatewaysOf = async (gateway: Asked): Promise<Overview['gateways']> =>
  (await overviewOf(gateway)).gateways

const summaries = (): Promise<unknown> => redis.command('HLEN', SUMMARIES)

/** Resolves with what a gateway shows of the others, once it shows `count` of them. */
async function othersOf(gateway: Asked, count: number): Promise<readonly Shown[]> {
  let others: readonly Shown[] = []
  await until(`${count} others are shown`, async () => {
    others = (await gatewaysOf(gateway)).filter(({ self }) => !self)
    return others.length === count
  })
  return others
}

describe('gateways that share a Redis', () => {
  it('gateways show each other, with their rates and configurations', async () => {
    const [first, second] = [await start(), await start()]
    const third = await start({ limit: 7 })
    const bearer = await token('acme')
    await until('refused calls are shown', async () => {
      await call(third.port, { token: bearer })
      return (await othersOf(first, 2)).some(({ refused }) => refused > 0)
    })
    const all = (await gatewaysOf(first)).toSorted((a, b) => a.calls - b.calls)
    const busy = all.at(-1)!
    expect(busy).toMatchObject({ host: hostname(), pid: process.pid, outage: null, withoutRedis: 0 })
    expect(busy.calls).toBeGreaterThan(busy.refused)
    expect(new Set(all.map(({ version }) => version)).size).toBe(1)
    for (const { configuration } of all) expect(configuration).toMatch(/^[0-9a-f]{64}$/)
    /** Returns how many others have the configuration of a gateway. */
    async function alike(gateway: Asked): Promise<number> {
      const shown = await gatewaysOf(gateway)
      const own = shown.find(({ self }) => self)!
      return shown.filter(({ configuration }) => configuration === own.configuration).length - 1
    }
    expect(await alike(first)).toBe(1)
    expect(await alike(third)).toBe(0)
    await othersOf(second, 2)
    const { gatewaysReadAt, at } = await overviewOf(first)
    expect(Date.parse(at) - Date.parse(gatewaysReadAt!)).toBeLessThan(60_000)
  })

  it('gateways send their summaries only while one shows them, and only that one reads them', async () => {
    const [asked] = await Promise.all([start(), start(), start()])
    /** Returns the number of calls of a command since the last reset of the statistics. */
    async function callsOf(name: string): Promise<number> {
      const stats = String(await redis.command('INFO', 'commandstats'))
      return Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0)
    }
    await redis.command('CONFIG', 'RESETSTAT')
    // That is every two seconds.
    await until('each has registered again', async () => (await callsOf('evalsha')) > 3)
    expect([await callsOf('hset'), await callsOf('hgetall')]).toEqual([0, 0])
    await othersOf(asked, 2)
    await redis.command('CONFIG', 'RESETSTAT')
    await until('each has sent several summaries', async () => {
      await overviewOf(asked)
      return (await callsOf('hset')) > 6
    })
    expect(await callsOf('hgetall')).toBeLessThan((await callsOf('hset')) / 2)
  })

  it('gateways drop one that stops, and one that is killed', async () => {
    const asked = await start()
    const [stopped, killed] = await Promise.all([start(), startProcess()])
    expect((await othersOf(asked, 2)).map(({ pid }) => pid)).toEqual(
      [process.pid, killed.child.pid!].toSorted((a, b) => a - b),
    )
    await stopped.close()
    await until('its summary is deleted', async () => (await summaries()) === 2)
    expect(await othersOf(asked, 1)).toMatchObject([{ pid: killed.child.pid }])
    killed.kill('SIGKILL')
    await killed.ended()
    // The summary of a killed gateway is deleted after ten seconds: this one is made that old.
    const all = (await redis.command('HGETALL', SUMMARIES)) as string[]
    const at = all.findIndex((text) => text.includes(`"pid":${killed.child.pid},`))
    const [sent, summary] = /^(\d+) (.*)$/.exec(all[at]!)!.slice(1) as [string, string]
    await redis.command('HSET', SUMMARIES, all[at - 1]!, `${Number(sent) - 10_000} ${summary}`)
    await othersOf(asked, 0)
  })

  it.runIf(FULL)('a gateway is one with its workers, whose calls are added up', async () => {
    const asked = await start()
    const group = await startProcess(['--workers', '2'])
    const bearer = await token('acme')
    await until('its calls are shown', async () => {
      await call(group.port, { token: bearer, headers: { Connection: 'close' } })
      return (await othersOf(asked, 1))[0]!.calls > 0
    })
    expect(await othersOf(asked, 1)).toMatchObject([{ pid: group.child.pid, refused: 0, failed: 0 }])
    expect(await summaries()).toBe(2)
    const own = (await gatewaysOf(group)).filter(({ self }) => self)
    expect(own).toMatchObject([{ pid: group.child.pid, ageMs: 0 }])
    group.kill('SIGTERM')
    await group.ended()
    await until('its summary is deleted', async () => (await summaries()) === 1)
  })

  it('gateways ignore damaged summaries', async () => {
    const asked = await start()
    await othersOf(asked, 0)
    await until('Redis has answered', async () => (await overviewOf(asked)).gatewaysReadAt !== null)
    const other = await start()
    await othersOf(asked, 1)
    async function sendDamaged(): Promise<void> {
      const [seconds] = (await redis.command('TIME')) as string[]
      for (const [i, damaged] of ['', '{}', '{"host":"x"}', 'null', '[', '<b>'].entries())
        await redis.command('HSET', SUMMARIES, `x${i}`, `${seconds}000 ${damaged}`)
    }
    await sendDamaged()
    const before = (await overviewOf(asked)).gatewaysReadAt!
    await until('they were read', async () => {
      await sendDamaged()
      return (await overviewOf(asked)).gatewaysReadAt! > before
    })
    expect(await gatewaysOf(asked)).toHaveLength(2)
    await othersOf(other, 1)
  })

  it('gateways show at most 100 of them, by host and process', async () => {
    const asked = await start()
    const [mine] = await gatewaysOf(asked)
    const { self: _, ageMs: __, ...summary } = mine!
    const [seconds] = (await redis.command('TIME')) as string[]
    const fields = Array.from({ length: 120 }, (_, i) => [
      `x${i}`,
      `${seconds}000 ${JSON.stringify({ ...summary, host: `h${i % 2}`, pid: 1000 - i })}`,
    ])
    await redis.command('HSET', SUMMARIES, ...fields.flat())
    await othersOf(asked, 99)
    const others = (await gatewaysOf(asked)).filter(({ self }) => !self)
    expect(others.slice(0, 60).map(({ host, pid }) => `${host} ${pid}`)).toEqual(
      Array.from({ length: 60 }, (_, i) => `h0 ${882 + 2 * i}`),
    )
  })

  it('gateways show the others as last known while Redis is unavailable, and themselves without Redis', async () => {
    const [asked, other] = [await start({ store: { redis: { url: redis.url } } }), await start()]
    await othersOf(asked, 1)
    await redis.kill()
    await until('it counts without Redis', async () => {
      await call(asked.port, { token: await token('acme') })
      return (await gatewaysOf(asked)).some(({ self, outage }) => self && outage !== null)
    })
    const { gateways, gatewaysReadAt, at } = await overviewOf(asked)
    const mine = gateways.find(({ self }) => self)!
    const known = gateways.find(({ self }) => !self)!
    expect(mine).toMatchObject({ ageMs: 0, outage: 'counting in this process' })
    expect(mine.withoutRedis).toBeGreaterThan(0)
    expect(known).toMatchObject({ outage: null })
    expect(known.ageMs).toBeGreaterThanOrEqual(Date.parse(at) - Date.parse(gatewaysReadAt!) - 1)
    await redis.start()
    await until('Redis answers', async () => (await overviewOf(asked)).gatewaysReadAt !== gatewaysReadAt)
    await othersOf(other, 1)
  })
})

it('a gateway with counters in memory shows itself only', async () => {
  const alone = await start({ store: 'memory' })
  await start()
  await call(alone.port)
  expect(await overviewOf(alone)).toMatchObject({
    counts: 'memory',
    gateways: [{ self: true, outage: null, ageMs: 0, admin: null }],
    gatewaysReadAt: null,
  })
})

describe('the address of the admin listener', () => {
  it.for([
    ['127.0.0.1', undefined, null],
    ['127.0.0.1', ['gw.example.com'], null],
    ['0.0.0.0', undefined, null],
    ['0.0.0.0', ['gw.example.com', 'gw'], 'http://gw.example.com'],
  ] as const)(
    'the address of the admin listener of %s with the hosts %j is %s',
    async ([host, hosts, url]) => {
      const port = await freePort()
      const admin = { host, port, token: 'an-operator-s-token', ...(hosts && { hosts }) }
      const gateway = await start({ admin, store: 'memory' })
      const headers = { Authorization: 'Bearer an-operator-s-token' }
      const { gateways } = (await call(gateway.adminPort, { path: '/overview', headers })).json as Overview
      expect(gateways[0]!.admin).toBe(url === null ? null : `${url}:${port}`)
    },
  )
})
