import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { withCounters } from '../../src/commands/limits.ts'
import { hashSlot } from '../../src/limit/redis/hash-slot.ts'
import { compileLimits, type Limit } from '../../src/limit/limit.ts'
import type { RedisTopology } from '../../src/limit/redis/options.ts'
import { createRedisStore } from '../../src/limit/redis/store.ts'
import { load } from '../config/load-text.ts'
import {
  type RedisCluster,
  type RedisSentinels,
  type RedisServer,
  startCluster,
  startRedis,
  startSentinels,
} from '../helpers/redis.ts'
import { until } from '../helpers/wait.ts'
import { fileOf, itEndsWrongUsage, sluice } from './run.ts'

const PASSWORD = 'hunter2'
const config = (store: string): string => `
admin: { host: "::1", port: 7000 }
store: ${store}
upstreams: { data: { url: http://data.internal:4000 } }
tokens: { issuer: https://id.example.com/oidc, audience: https://api.example.com }
clients: [{ id: acme, limits: { requests: { limit: 50, until: 2100-01-01T00:00:00Z } } }]
limits:
  requests:
    per: [client]
    limit: 10
    window: 10m
    changes: [{ announced: 2026-01-01T00:00:00Z, from: 2100-01-01T00:00:00Z, limit: 20 }]
  sync: { per: [client, connection], limit: 1, window: 1500s }
  trial: { per: [client], limit: 5, window: 10m, shadow: true }
routes:
  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync, trial] }
`
const LIMITS: readonly Limit[] = [
  { name: 'requests', per: ['client'], limit: 50, windowMs: 600_000, shadow: false, changes: [] },
  { name: 'sync', per: ['client', 'connection'], limit: 1, windowMs: 1_500_000, shadow: false, changes: [] },
]

/** Counts calls as a gateway would. */
async function count(
  topology: RedisTopology,
  calls: readonly (readonly [client: string, connection: string])[],
  password?: string,
): Promise<void> {
  const store = createRedisStore({ topology, prefix: 'sluice', password })
  await store.connect()
  const apply = compileLimits(LIMITS, 'sluice')
  for (const [client, connection] of calls) {
    const quotas = apply({ client, ip: '192.0.2.1' }, { connection }, Date.now())
    await until('a call is counted', () =>
      store.charge(quotas).then(
        ({ admitted }) => admitted,
        () => false,
      ),
    )
  }
  await store.close()
}

/** Two calls of acme and one of another client. */
const CALLS = [
  ['acme', 'x'],
  ['acme', 'y'],
  ['other', 'x'],
] as const

const quoted = (urls: readonly string[]): string => urls.map((url) => JSON.stringify(url)).join(', ')

function limits(store: string, args: readonly string[], client = 'acme') {
  return sluice(['limits', ...args, client, '--config', fileOf(config(store))])
}

describe('sluice limits', () => {
  let redis: RedisServer
  const store = () => `{ redis: { url: "${redis.url}", password: ${PASSWORD} } }`
  beforeAll(async () => {
    redis = await startRedis({ password: PASSWORD })
  })
  afterAll(() => redis.close())

  it('shows a client’s counters as a table and as JSON, then frees them and no other’s', async () => {
    await count({ url: redis.url }, CALLS, PASSWORD)
    const shown = await limits(store(), ['show'])
    expect(shown).toMatchObject({ code: 0, stderr: '' })
    const instant = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g
    const end = '2100-01-01T00:00:00.000Z'
    expect(shown.stdout.replaceAll(instant, (text) => (text === end ? 'END' : 'NOW')).split(/ *\n/)).toEqual([
      expect.stringMatching(/^KEY +LIMIT +CALLS +USED +REMAINING +WINDOW +RESET +UNTIL +MODE$/),
      expect.stringMatching(/^sluice:\{acme\}:requests +requests +50 +2 +48 +10m +NOW +END +live$/),
      expect.stringMatching(/^sluice:\{acme\}:trial +trial +5 +0 +5 +10m +- +- +shadow$/),
      expect.stringMatching(/^sluice:\{acme\}:sync:x +sync +1 +1 +0 +25m +NOW +- +live$/),
      expect.stringMatching(/^sluice:\{acme\}:sync:y +sync +1 +1 +0 +25m +NOW +- +live$/),
      '',
      'From END on, "requests" allows 20.',
      '',
    ])
    const json = JSON.parse((await limits(store(), ['show', '--json'])).stdout) as unknown
    expect(json).toMatchObject({
      client: 'acme',
      truncated: false,
      limits: [{ key: 'sluice:{acme}:requests', limit: 50, remaining: 48, until: end }, {}, {}, {}],
    })

    expect(await limits(store(), ['reset'])).toEqual({
      code: 0,
      stdout: 'Freed 3 keys of the client "acme".\n',
      stderr: '',
    })
    const again = await limits(store(), ['reset', '--json'])
    expect(JSON.parse(again.stdout)).toEqual({ client: 'acme', freed: 0 })
    const other = await limits(store(), ['show', '--json'], 'other')
    expect(JSON.parse(other.stdout)).toMatchObject({ limits: [{ limit: 10, remaining: 9 }, {}, {}] })
  })

  it('ends soon where Redis gives no answer, and names it', async () => {
    const { config: read } = await load(config(store()))
    redis.freeze()
    const shown = await withCounters(
      read,
      'acme',
      ({ ofClient }) => ofClient('acme'),
      () => {},
      300,
    ).catch(String)
    redis.thaw()
    expect(shown).toBe(`Error: Redis at ${redis.url} gave no answer in time.`)
  })

  it('lists no flag that does nothing there', async () => {
    const { stdout } = await sluice(['limits', 'show', '--help'])
    expect(stdout).toMatch(/^ +--redis .*$/m)
    expect(stdout).not.toMatch(/--(host|port|log-level|log-format)/)
  })

  it('takes the flags of start, and the password of the file beside --redis', async () => {
    const flags = ['--redis', redis.url.replace(/^/, 'unix://'), '--log-level', 'silent']
    const ended = await sluice(['limits', 'show', 'acme', '--config', fileOf(config(store())), ...flags])
    expect(ended).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('sluice:{acme}:requests'),
      stderr: '',
    })
  })

  it('ends with 78 where the password is wrong, and does not show it', async () => {
    const wrong = store().replace(PASSWORD, 'swordfish')
    for (const ended of await Promise.all([limits(wrong, ['show']), limits(wrong, ['reset'])])) {
      expect(ended).toMatchObject({ code: 78, stdout: '' })
      expect(ended.stderr).toMatch(/^sluice: Redis refuses the user name or password; .+\n$/)
      expect(ended.stderr).not.toContain('swordfish')
    }
  })

  it('ends with 1 where Redis is out of reach', async () => {
    const commands = [
      'url: redis://127.0.0.1:1',
      'cluster: [redis://127.0.0.1:1]',
      'sentinels: [redis://127.0.0.1:1], name: main',
    ].flatMap((topology) => ['show', 'reset'].map((action) => limits(`{ redis: { ${topology} } }`, [action])))
    for (const ended of await Promise.all(commands)) {
      expect(ended).toMatchObject({ code: 1, stdout: '' })
      expect(ended.stderr).toMatch(/^sluice: Redis is not connected: .+\n$/)
    }
  })

  it('ends with 1 where the counters are in the process, and names the admin listener', async () => {
    expect(await limits('memory', ['show'])).toEqual({
      code: 1,
      stdout: '',
      stderr:
        'sluice: The counters of "store: memory" are within the gateway\'s process. Ask its admin listener: curl http://[::1]:7000/limits/CLIENT, with -X DELETE to reset.\n',
    })
  })

  it('ends with 78 where the configuration is wrong', async () => {
    expect(await limits('disk', ['show'])).toMatchObject({
      code: 78,
      stderr: expect.stringMatching(
        /^\S+:3:8: store: must be "memory" or a mapping with "redis"\n$/,
      ) as string,
    })
  })

  itEndsWrongUsage([
    [['limits'], 'Which command? One of limits show, limits reset, limits top.'],
    [['limits', 'shw', 'acme'], 'Did you mean show?'],
    [['limits', 'foo', 'a'], 'Which command? One of limits show, limits reset, limits top.'],
    [['limits', 'show'], 'Which client? Give its id.'],
    [['limits', 'reset', ''], 'Which client? Give its id.'],
    [['limits', 'show', 'acme'], 'Which configuration? Give --config FILE, or set SLUICE_CONFIG.'],
    [
      ['limits', 'show', 'acme', 'other'],
      'Unknown argument: ***. Give values by flags, such as --config FILE.',
    ],
  ])
})

describe('sluice limits, of a cluster', () => {
  let cluster: RedisCluster
  beforeAll(async () => {
    cluster = await startCluster()
  })
  afterAll(() => cluster.close())

  it('finds the counters on every master', async () => {
    const clients = Array.from({ length: 4 }, (_, i) => `client-${i}`)
    await count(
      { cluster: cluster.urls },
      clients.map((client) => [client, 'x']),
    )
    const redis = `{ redis: { cluster: [${quoted(cluster.urls)}] } }`
    for (const client of clients) {
      const shown = await limits(redis, ['show', '--json'], client)
      expect(shown).toMatchObject({ code: 0, stderr: '' })
      expect(JSON.parse(shown.stdout)).toMatchObject({
        limits: [{ remaining: 9 }, {}, { key: `sluice:{${client}}:sync:x`, remaining: 0 }],
      })
      expect((await limits(redis, ['reset'], client)).stdout).toBe(
        `Freed 2 keys of the client "${client}".\n`,
      )
    }
  })

  it('ends with 78 where one of its nodes is given as a single Redis', async () => {
    const ended = await limits(`{ redis: { url: "${cluster.urls[0]}" } }`, ['show'])
    expect(ended).toMatchObject({ code: 78, stdout: '' })
    expect(ended.stderr).toContain('is one node of a cluster')
  })

  it('reads and frees clients whose master is up, and fails for those whose master is down or whose slot has none', async () => {
    const [gone, ...there] = cluster.nodes
    for (const node of there) {
      await node.command('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
      await node.command('CLUSTER', 'DELSLOTS', hashSlot('acme'))
    }
    await gone!.kill()
    const { config: read } = await load(config(`{ redis: { cluster: ${JSON.stringify(cluster.urls)} } }`))
    const quiet = (): void => {}
    const ends: [string, 'rejected' | 'fulfilled'][] = [
      ['client-0', 'fulfilled'],
      ['client-1', 'fulfilled'],
      ['client-2', 'rejected'],
      ['acme', 'rejected'],
    ]
    const asked = ends.flatMap(([client]) => [
      withCounters(read, client, ({ ofClient }) => ofClient(client), quiet),
      withCounters(read, client, ({ free }) => free(client), quiet),
    ])
    const ended = await Promise.allSettled(asked)
    expect(ended.map(({ status }) => status)).toEqual(ends.flatMap(([, end]) => [end, end]))
    const why = (i: number) => String((ended[i] as PromiseRejectedResult).reason)
    for (const i of [4, 5]) expect(why(i)).toContain(`Redis is not connected: 127.0.0.1:${gone!.port}`)
    for (const i of [6, 7]) expect(why(i)).toMatch(/slot/i)
  })
})

describe('sluice limits, behind sentinels', () => {
  let sentinels: RedisSentinels
  beforeAll(async () => {
    sentinels = await startSentinels()
  })
  afterAll(() => sentinels.close())

  it('asks the master that they know', async () => {
    const { urls, name } = sentinels
    await count({ sentinels: urls, name }, CALLS)
    const redis = `{ redis: { sentinels: [${quoted(urls)}], name: ${name} } }`
    expect(JSON.parse((await limits(redis, ['show', '--json'])).stdout)).toMatchObject({
      limits: [{ remaining: 48 }, {}, {}, {}],
    })
    expect((await limits(redis, ['reset'])).stdout).toBe('Freed 3 keys of the client "acme".\n')
    const wrong = await limits(redis.replace(`name: ${name}`, 'name: other'), ['show'])
    expect(wrong).toMatchObject({ code: 78, stdout: '' })
    expect(wrong.stderr).toContain('the sentinels know no master of this store.redis.name')
  })
})
