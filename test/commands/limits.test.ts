import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { withRedis } from '../../src/commands/limits/with-redis.ts'
import { hashSlot } from '../../src/limit/redis/hash-slot.ts'
import { compileLimits, type Limit } from '../../src/limit/limit.ts'
import type { RedisTopology } from '../../src/limit/redis/options.ts'
import { createRedisStore } from '../../src/limit/redis/store.ts'
import { load } from '../config/load-text.ts'
import { type RedisCluster, type RedisServer, startCluster, startRedis } from '../helpers/redis.ts'
import { sharedSentinels } from '../helpers/shared-redis.ts'
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
  address: { per: [ip], limit: 5, window: 10m }
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
  { password, prefix = 'sluice' }: { readonly password?: string; readonly prefix?: string } = {},
): Promise<void> {
  const store = createRedisStore({ topology, prefix, password })
  await store.connect()
  const apply = compileLimits(LIMITS, prefix)
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
    await count({ url: redis.url }, CALLS, { password: PASSWORD })
    const shown = await limits(store(), ['show'])
    expect(shown).toMatchObject({ code: 0, stderr: '' })
    const instant = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g
    const end = '2100-01-01T00:00:00.000Z'
    expect(shown.stdout.replaceAll(instant, (text) => (text === end ? 'END' : 'NOW')).split(/ *\n/)).toEqual([
      expect.stringMatching(/^KEY +LIMIT +CALLS +USED +REMAINING +WINDOW +RESET +UNTIL +KIND$/),
      expect.stringMatching(/^sluice:\{acme\}:requests +requests +50 +2 +48 +10m +NOW +END +live$/),
      expect.stringMatching(/^sluice:\{acme\}:trial +trial +5 +0 +5 +10m +- +- +shadow$/),
      expect.stringMatching(/^sluice:\{acme\}:sync:x +sync +1 +1 +0 +25m +NOW +- +live$/),
      expect.stringMatching(/^sluice:\{acme\}:sync:y +sync +1 +1 +0 +25m +NOW +- +live$/),
      '',
      'From END on, "requests" allows 20.',
      '',
      'The file gives the client its own "requests" of 50 until END.',
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

  describe('set', () => {
    const set = (...args: string[]) => sluice(['limits', 'set', ...args, '--config', fileOf(config(store()))])
    const shown = (...args: string[]) =>
      sluice(['limits', 'show', ...args, '--config', fileOf(config(store()))])
    const END = '2100-01-01T00:00:00.000Z'
    afterEach(() => redis.command('DEL', 'sluice:{}:~overrides'))

    it('takes no id that no token has, and warns of blanks around one', async () => {
      expect(await set('a\nb', 'requests=0')).toMatchObject({
        code: 64,
        stderr: expect.stringContaining('The id of the client has a control character') as string,
      })
      expect((await shown()).stdout).toBe('There are no overrides.\n')
      expect(await set(' a', 'requests=0')).toMatchObject({
        code: 0,
        stderr: 'warning: the id of the client has blanks around it\n',
      })
    })

    it('sets several limits of a client, which show lists for all clients and marks for one', async () => {
      const until = ['--until', '2100-01-01T01:00:00+01:00']
      expect(await set('12', 'requests=0', 'sync=3', ...until)).toEqual({
        code: 0,
        stdout: `Set "requests" of the client "12" to 0 until ${END}.\nSet "sync" of the client "12" to 3 until ${END}.\nEvery gateway has this within a second.\n`,
        stderr: '',
      })
      expect((await set('b', 'requests=9')).stdout).toContain(
        'Set "requests" of the client "b" to 9, for good.\n',
      )
      const all = await shown()
      expect(all.stdout.replaceAll(/\S+Z/g, (text) => (text === END ? 'END' : 'NOW')).split(/ *\n/)).toEqual([
        expect.stringMatching(/^CLIENT +LIMIT +CALLS +UNTIL +SET +IN FORCE$/),
        expect.stringMatching(/^12 +requests +0 +END +NOW +yes$/),
        expect.stringMatching(/^12 +sync +3 +END +NOW +yes$/),
        expect.stringMatching(/^b +requests +9 +- +NOW +yes$/),
        '',
      ])
      const one = await shown('12')
      expect(one.stdout).toMatch(
        /^sluice:\{12\}:requests +requests +0 +0 +0 +10m +\S+ +\S+ +live, override$/m,
      )
      expect(JSON.parse((await shown('12', '--json')).stdout)).toMatchObject({
        limits: [
          { name: 'requests', limit: 0, override: true, until: END },
          { name: 'trial', override: false },
        ],
      })
    })

    it('replaces and ends them, and prints as JSON what the client has then', async () => {
      await set('b', 'requests=9', 'trial=4')
      const replaced = JSON.parse(
        (await set('b', 'requests=default', 'trial=7', '--until', '2h', '--json')).stdout,
      )
      expect(replaced).toEqual({
        client: 'b',
        overrides: [
          {
            ...{ client: 'b', name: 'trial', limit: 7, beatenByFile: false, applies: true },
            ...{ until: expect.any(String), set: expect.any(String) },
          },
        ],
        removed: ['requests'],
      })
      const [{ until, set: since }] = replaced.overrides
      expect(Date.parse(until) - Date.parse(since)).toBe(2 * 3_600_000)
      expect((await set('b', 'requests=default')).stdout).toBe(
        'The client "b" had no override of "requests".\n',
      )
      expect((await set('b', 'trial=default')).stdout).toBe(
        'Removed the override of "trial" of the client "b".\nEvery gateway has this within a second.\n',
      )
      expect((await shown()).stdout).toBe('There are no overrides.\n')
    })

    it('warns where the file beats it', async () => {
      expect(await set('acme', 'requests=9')).toMatchObject({
        code: 0,
        stderr: `warning: the file gives the client "acme" its own "requests" of 50 until ${END}, which beats this override; change it in the file\n`,
      })
      expect((await shown()).stdout).toContain('no: the file has its own limit of the client')
    })

    it.for([
      [['b'], 'Which limit? Write LIMIT=N, such as requests=5000, or LIMIT=default.'],
      [['b', 'requests'], '"requests" must be LIMIT=N, such as requests=5000, or LIMIT=default.'],
      ...['-1', '1.5', '', '1e3', '9007199254740992'].map((number) => [
        ['b', `requests=${number}`],
        `"requests=${number}": the limit must be a whole number from 0 to 9007199254740991, or "default".`,
      ]),
      [['b', 'requests=1', 'requests=2'], '"requests" is given twice.'],
      [['b', 'reqests=1'], 'There is no limit "reqests"; did you mean "requests"?'],
      [
        ['b', 'nonsense=1'],
        'There is no limit "nonsense"; those that can be set are: requests, sync, trial.',
      ],
      [
        ['b', 'address=1'],
        'The limit "address" does not count by the client first; those that can be set are: requests, sync, trial.',
      ],
      [
        ['b', 'requests=1', '--until', '2020-01-01T00:00:00Z'],
        '--until has passed; give an instant to come.',
      ],
      ...['tomorrow', '2100-01-01', '2', '0s', '4000d'].map((text) => [
        ['b', 'requests=1', '--until', text],
        '--until must be an instant such as 2027-01-31T00:00:00Z, or a duration from now such as 2h, from 1s to 3650d.',
      ]),
      [['b', 'requests=default', '--until', '2h'], '--until goes with a number; "default" has no end.'],
    ] as [string[], string][])('ends wrong usage with 64: %j', async ([args, message]) => {
      expect(await set(...args)).toEqual({
        code: 64,
        stdout: '',
        stderr: `sluice: ${message}\nSee "sluice --help".\n`,
      })
    })

    it('ends with 1 where the store has no Redis, or one that is out of reach', async () => {
      const at = (where: string) =>
        sluice(['limits', 'set', 'b', 'requests=1', '--config', fileOf(config(where))])
      expect(await at('memory')).toEqual({
        ...{ code: 1, stdout: '' },
        stderr:
          'sluice: Overrides are kept in Redis, and "store: memory" has none; write the limit to "clients" in the file, which is reloaded.\n',
      })
      const gone = await at('{ redis: { url: "redis://127.0.0.1:1" } }')
      expect(gone).toMatchObject({ code: 1, stdout: '' })
      expect(gone.stderr).toMatch(/^sluice: Redis is not connected: .+\n$/)
    })
  })

  it('ends soon where Redis gives no answer, and names it', async () => {
    const { config: read } = await load(config(store()))
    redis.freeze()
    const ended = await withRedis(
      read,
      (prefix) => prefix,
      async () => {},
      () => {},
      300,
    ).catch(String)
    redis.thaw()
    expect(ended).toBe(`Error: Redis at ${redis.url} gave no answer in time.`)
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

  it('names the admin listener of every address by loopback', async () => {
    const everywhere = fileOf(config('memory').replace('::1', '0.0.0.0'))
    const { stderr } = await sluice(['limits', 'show', 'acme', '--config', everywhere])
    expect(stderr).toContain('curl http://127.0.0.1:7000/limits/CLIENT')
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
    [['limits'], 'Which command? One of limits show, limits set, limits reset, limits top.'],
    [['limits', 'shw', 'acme'], 'Did you mean show?'],
    [['limits', 'foo', 'a'], 'Which command? One of limits show, limits set, limits reset, limits top.'],
    [['limits', 'show'], 'Which configuration? Give --config FILE, or set SLUICE_CONFIG.'],
    [['limits', 'show', ''], 'Which client? Give its id.'],
    [['limits', 'set'], 'Which client? Give its id.'],
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
    const store = `{ redis: { cluster: ${JSON.stringify(cluster.urls)} } }`
    const clients = ['client-0', 'client-1', 'client-2', 'acme']
    const ended = await Promise.all(
      clients.flatMap((client) => [limits(store, ['show'], client), limits(store, ['reset'], client)]),
    )
    expect(ended.map(({ code }) => code)).toEqual([0, 0, 0, 0, 1, 1, 1, 1])
    const why = (i: number) => ended[i]!.stderr
    for (const i of [4, 5]) expect(why(i)).toContain(`Redis is not connected: 127.0.0.1:${gone!.port}`)
    for (const i of [6, 7]) expect(why(i)).toMatch(/slot/i)
  })
})

describe('sluice limits, behind sentinels', () => {
  it('asks the master that they know', async () => {
    const { urls, name } = await sharedSentinels()
    const prefix = 'sentinels-know'
    await count({ sentinels: urls, name }, CALLS, { prefix })
    const redis = `{ redis: { sentinels: [${quoted(urls)}], name: ${name} }, prefix: ${prefix} }`
    expect(JSON.parse((await limits(redis, ['show', '--json'])).stdout)).toMatchObject({
      limits: [{ remaining: 48 }, {}, {}, {}],
    })
    expect((await limits(redis, ['reset'])).stdout).toBe('Freed 3 keys of the client "acme".\n')
    const wrong = await limits(redis.replace(`name: ${name}`, 'name: other'), ['show'])
    expect(wrong).toMatchObject({ code: 78, stdout: '' })
    expect(wrong.stderr).toContain('the sentinels know no master of this store.redis.name')
  })
})
