import { describe, it } from 'vitest'
import type { StoreConfig } from '../../src/config/config.ts'
import { openStore } from '../../src/process/open-store.ts'
import type { Log } from '../../src/observe/log.ts'
import { showGauges } from '../../src/observe/gauges.ts'
import { showCaller } from '../../src/policy/counted-caller.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import { mergeStatus } from '../../src/observe/status.ts'
import { startForwarder } from '../helpers/forwarder.ts'
import { type RedisServer, type RedisServerOptions, startCluster, startRedis } from '../helpers/redis.ts'
import { until } from '../helpers/wait.ts'

/** Registers a cleanup. Each test has its own server, so that the tests can run concurrently. */
type Closing = (close: () => Promise<void>) => void

interface Opened {
  readonly opened: Awaited<ReturnType<typeof openStore>>
  /** Levels and messages of the log. */
  readonly lines: readonly string[]
  up(): Promise<boolean>
  /** Returns the value of a metric as it is printed. */
  metric(name: string): Promise<string | undefined>
}

async function open(
  closing: Closing,
  redis: Exclude<StoreConfig, 'memory'>['redis'],
  onOutage: 'local' | 'deny' = 'local',
): Promise<Opened> {
  const lines: string[] = []
  const write = (level: string) => (fields: unknown, words?: string) =>
    void lines.push(`${level}: ${words ?? (fields as string)}`)
  const log = { info: write('info'), warn: write('warn'), error: write('error') } as unknown as Log
  const metrics = createMetrics()
  const opened = await openStore(
    { store: { redis, prefix: 't', timeoutMs: 200, onOutage, instances: 1 }, prefix: 't', parameters: {} },
    log,
    metrics,
    { showKey: String, callerText: showCaller },
  )
  closing(() => opened.store.close())
  showGauges(metrics, () => ({ ...mergeStatus([]), store: opened.status() }))
  const metric = async (name: string) => {
    const line = (await metrics.text()).split('\n').find((line) => line.startsWith(`${name} `))
    return line?.slice(name.length + 1)
  }
  return { opened, lines, metric, up: async () => (await metric('sluice_store_up')) === '1' }
}

async function serverThat(closing: Closing, options: RedisServerOptions): Promise<RedisServer> {
  const server = await startRedis({ tcp: true, ...options })
  closing(() => server.close())
  return server
}

const OVERRIDES_UNKNOWN = 'warn: limit overrides unknown; starting without them'
const quota = { name: 'x', key: 't:{a}:x', limit: 1000, windowMs: 60_000, shadow: false }

describe.concurrent('a Redis that starts after the gateway and', () => {
  const replica = { args: ['--replicaof', '127.0.0.1', '1'] }
  const node = { args: ['--cluster-enabled', 'yes'] }
  it.for<[string, RedisServerOptions, (url: string) => Parameters<typeof open>[1]['topology'], string]>([
    ['is a replica', replica, (url) => ({ url }), 'store.redis.url is a replica'],
    ['is a node of a cluster', node, (url) => ({ url }), 'store.redis.url is one node of a cluster'],
    ['is not a cluster', {}, (url) => ({ cluster: [url] }), 'names a server of another kind'],
    [
      'is not a Sentinel',
      {},
      (url) => ({ sentinels: [url], name: 'main' }),
      'names a server of another kind',
    ],
    [
      'asks for a password',
      { password: 'open sesame' },
      (url) => ({ url }),
      'refuses the user name or password',
    ],
    [
      'asks for another password',
      { password: 'open sesame' },
      (url) => ({ url: url.replace('//', '//:guess@') }),
      'refuses the user name or password',
    ],
  ])(
    '%s is reported once, as at a start, and counts as down',
    async ([, options, topology, words], { expect, onTestFinished }) => {
      const server = await serverThat(onTestFinished, options)
      await server.kill()
      const { opened, lines, up } = await open(onTestFinished, { topology: topology(server.url) })
      expect(lines).toEqual(['warn: Redis unavailable; counting in this process', OVERRIDES_UNKNOWN])
      await server.start()
      const errors = () => lines.filter((line) => line.startsWith('error'))
      await until('it is logged', () => errors().length > 0)
      for (let i = 0; i < 12; i++) {
        expect((await opened.store.charge([quota])).mode).toBe('local')
        expect(await up()).toBe(false)
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
      expect(errors()).toEqual([expect.stringContaining(words)])
      expect(lines).toHaveLength(3)
    },
  )

  it('becomes misconfigured is logged in one line, and no longer decides', async ({
    expect,
    onTestFinished,
  }) => {
    const server = await serverThat(onTestFinished, {})
    const { lines, metric } = await open(onTestFinished, { topology: { url: server.url } })
    await server.command('CONFIG', 'SET', 'requirepass', 'open sesame')
    await server.command('CLIENT', 'KILL', 'TYPE', 'normal')
    await until('it is logged', () => lines.length > 0)
    expect(await metric('sluice_store_mode{mode="local"}')).toBe('1')
    expect(await metric('sluice_store_up')).toBe('0')
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(lines).toEqual([expect.stringMatching(/^error: .*correct store\.redis\.username/)])
  })

  it('a Redis that starts after the gateway and is misconfigured under deny makes the gateway unready until it is corrected', async ({
    expect,
    onTestFinished,
  }) => {
    const server = await serverThat(onTestFinished, replica)
    await server.kill()
    const { opened, lines } = await open(onTestFinished, { topology: { url: server.url } }, 'deny')
    await server.start()
    await until('it is logged', () => lines.some((line) => line.startsWith('error')))
    expect(opened.notReadyReason(true)).toContain('every route has a limit under onOutage: deny')
    await server.command('REPLICAOF', 'NO', 'ONE')
    await until('it is ready', () => opened.notReadyReason(true) === undefined)
  })

  it('a Redis that starts after the gateway and is corrected decides, and can become misconfigured again', async ({
    expect,
    onTestFinished,
  }) => {
    const server = await serverThat(onTestFinished, replica)
    await server.kill()
    const { opened, lines, up } = await open(onTestFinished, { topology: { url: server.url } })
    await server.start()
    const errors = () => lines.filter((line) => line.startsWith('error')).length
    await until('it is logged', () => errors() === 1)
    await server.command('REPLICAOF', 'NO', 'ONE')
    await until('Redis decides', async () => (await opened.store.charge([quota])).mode === 'store')
    await until('it is up', up)
    await server.command('REPLICAOF', '127.0.0.1', '1')
    await until('it is logged again', async () => {
      await opened.store.charge([quota])
      return errors() === 2
    })
    expect(await up()).toBe(false)
  })
})

it.concurrent('a gateway whose Redis is a replica starts with the fallback, and follows the name of the master', async ({
  expect,
  onTestFinished,
}) => {
  const [replica, master] = await Promise.all([
    serverThat(onTestFinished, { args: ['--replicaof', '127.0.0.1', '1'] }),
    serverThat(onTestFinished, {}),
  ])
  const name = await startForwarder(replica.port)
  onTestFinished(name.close)
  const { opened, lines, up } = await open(onTestFinished, { topology: { url: name.url } })
  const isReplica = /^error: store\.redis\.url is a replica; in a failover/
  expect(lines).toEqual([expect.stringMatching(isReplica), OVERRIDES_UNKNOWN])
  expect((await opened.store.charge([quota])).mode).toBe('local')
  // The connections to the former master stay open.
  name.leadTo(master.port)
  await until('the master decides', async () => (await opened.store.charge([quota])).mode === 'store')
  expect(await master.command('EXISTS', quota.key)).toBe(1)

  await master.command('REPLICAOF', '127.0.0.1', '1')
  await until('the fallback decides', async () => {
    await opened.store.charge([quota])
    return !(await up())
  })
  await replica.command('REPLICAOF', 'NO', 'ONE')
  name.leadTo(replica.port)
  await until('the new master decides', up)
})

it.concurrent('calls in progress are stored again when a Redis without its data is seen', async ({
  expect,
  onTestFinished,
}) => {
  const server = await serverThat(onTestFinished, {})
  const { opened, lines, up } = await open(onTestFinished, { topology: { url: server.url } })
  await until('it is up', up)
  const atOnce = { ...quota, limit: 5, isConcurrent: true }
  await opened.store.charge([atOnce])
  await server.command('FLUSHALL')
  // A lease is due after 15 s.
  await until(
    'the lease is there again',
    async () => (await server.command('ZCARD', atOnce.key)) === 1,
    12_000,
  )
  expect(lines).toEqual(['warn: Redis data lost; earlier calls are no longer counted'])
})

it.concurrent('a Redis that hangs is detected as down and as up again, also without calls', async ({
  expect,
  onTestFinished,
}) => {
  const server = await serverThat(onTestFinished, {})
  const { opened, lines, up } = await open(onTestFinished, { topology: { url: server.url } })
  expect(await up()).toBe(true)
  expect(opened.status().outage).toBeNull()
  server.freeze()
  await until('it is down', async () => !(await up()))
  const { outage } = opened.status()
  expect(outage).toMatchObject({ text: 'counting in this process' })
  await until('time passes', () => new Date().toISOString() > outage!.since)
  expect(opened.status().outage).toEqual(outage)
  server.thaw()
  await until('it is up', up)
  expect(opened.status().outage).toBeNull()
  expect(lines.map((line) => line.split(/[:;]/).slice(0, 2).join())).toEqual([
    'warn, Redis unavailable',
    'info, Redis available again',
  ])
})

it.concurrent('an outage appears in the log, the metrics and the readiness at the same time, and earlier decisions of the fallback are counted', async ({
  expect,
  onTestFinished,
}) => {
  const server = await serverThat(onTestFinished, {})
  const { opened, lines, metric } = await open(onTestFinished, { topology: { url: server.url } }, 'deny')
  /** Returns the metrics, the readiness and the log of the same instant. */
  const state = async (): Promise<readonly unknown[]> => {
    const others = () => [
      opened.notReadyReason(true) === undefined,
      lines.filter((line) => line.includes('available')).length % 2,
    ]
    const before = others()
    const shown = await Promise.all(
      ['sluice_store_up', 'sluice_store_mode{mode="store"}', 'sluice_store_mode{mode="deny"}'].map(metric),
    )
    return String(before) === String(others()) ? [...shown, ...before] : await state()
  }
  /** Redis decides, the fallback decides single calls too, and it decides all. */
  const answers = [
    ['1', '1', '0', true, 0],
    ['1', '1', '1', true, 0],
    ['0', '0', '1', false, 1],
  ]
  const fallbackDecisions = () => metric('sluice_store_fallback_decisions_total{mode="deny"}')
  expect(await state()).toEqual(answers[0])
  expect(await fallbackDecisions()).toBe('0')

  server.freeze()
  // Checks without calls fail, too, so that the fallback decides all after at most three calls.
  let least = 1
  for (const failures of [1, 2, 3, 4]) {
    await expect(opened.store.charge([quota])).rejects.toThrow('cannot be checked')
    expect(await fallbackDecisions()).toBe(String(failures))
    const now = await state()
    if (failures >= 3 || now[0] === '0') least = 2
    expect(now).toEqual(answers[least])
  }
  server.thaw()
  await until('Redis decides', () => opened.notReadyReason(true) === undefined)
  expect(await state()).toEqual(answers[0])

  // A lost connection is checked immediately, also without calls.
  await server.kill()
  await until('the outage is seen', async () => {
    const now = await state()
    expect(answers).toContainEqual(now)
    return now[0] === '0'
  })
})

it.concurrent('a single late answer is logged, counted and shown in the mode for a while, although there is no outage', async ({
  expect,
  onTestFinished,
}) => {
  const server = await serverThat(onTestFinished, {})
  const { opened, lines, metric } = await open(onTestFinished, { topology: { url: server.url } })
  server.freeze()
  expect((await opened.store.charge([quota])).mode).toBe('local')
  server.thaw()
  expect(await metric('sluice_store_mode{mode="local"}')).toBe('1')
  expect(await metric('sluice_store_mode{mode="store"}')).toBe('1')
  await until('it is logged', () => lines.length > 0)
  expect(lines).toEqual(['warn: decisions made without Redis'])
  expect(await metric('sluice_store_mode{mode="local"}')).toBe('0')
  expect(await metric('sluice_store_fallback_decisions_total{mode="local"}')).toBe('1')
  expect(Number(await metric('sluice_store_fallback_last_timestamp_seconds'))).toBeGreaterThan(
    Date.now() / 1000 - 60,
  )
})

describe.concurrent('a gateway that stops after an outage', () => {
  it.for([
    ['still lasts, says that its calls are lost', false],
    ['is over, hands its calls over', true],
  ] as const)('which %s', async ([, isOver], { expect, onTestFinished }) => {
    const server = await serverThat(onTestFinished, {})
    const { opened, lines } = await open(onTestFinished, { topology: { url: server.url } })
    await server.kill()
    await until('it counts itself', async () => (await opened.store.charge([quota])).mode === 'local')
    if (isOver) {
      await server.start()
      await until('Redis decides', async () => (await opened.store.charge([quota])).mode === 'store')
    }
    await opened.store.close()
    const lost = 'warn: calls lost that Redis has not counted'
    expect(lines.filter((line) => line === lost)).toEqual(isOver ? [] : [lost])
  })
})

it.concurrent('the overrides in a cluster are known at the start although other slots have no server', async ({
  expect,
  onTestFinished,
}) => {
  const cluster = await startCluster(1)
  onTestFinished(cluster.close)
  const node = cluster.nodes[0]!
  const key = 't:{}:~overrides'
  await node.command('HSET', key, 'version', '1 x', '["acme","requests"]', '{"limit":0,"setAt":1}')
  const slot = Number(await node.command('CLUSTER', 'KEYSLOT', key))
  await node.command('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
  await node.command('CLUSTER', 'DELSLOTSRANGE', slot + 1, slot + 100)
  const { opened, lines } = await open(onTestFinished, { topology: { cluster: cluster.urls } })
  expect(opened.overrides.values()).toMatchObject([{ name: 'requests', limit: 0 }])
  expect(lines).toEqual([
    'warn: Redis unavailable; counting in this process',
    'info: limit overrides changed',
  ])
})
