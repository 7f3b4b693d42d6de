import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { redisAddress, whereIs } from '../../../src/limit/redis/options.ts'
import { RedisStore, type RedisStoreOptions } from '../../../src/limit/redis/store.ts'
import { GRANTS, SENTINEL_GRANTS, StoreConfigError } from '../../../src/limit/redis/topology.ts'
import {
  freePort,
  REDIS_CERT,
  type RedisCluster,
  type RedisSentinels,
  type RedisServer,
  startCluster,
  startRedis,
  startSentinels,
} from '../../helpers/redis.ts'
import { until } from '../../helpers/wait.ts'
import { admitsAll, startFakeRedis } from '../../helpers/fake-redis.ts'

const CA = { tls: { ca: readFileSync(REDIS_CERT, 'utf8') } }
const PASSWORD = 'open sesame'
const USER = { username: 'gateway', password: 'hello' }
const SENTINEL_PASSWORD = 'watchman'
const WATCH = { username: 'watch', password: 'tower' }

const operatorOf = (url: string) => new Redis(url, { ...CA, password: SENTINEL_PASSWORD, protocol: 2 })

let plain: RedisServer
let secret: RedisServer
let tls: RedisServer
let cluster: RedisCluster
let sentinels: RedisSentinels
let guardedCluster: RedisCluster
let guardedSentinels: RedisSentinels
beforeAll(async () => {
  ;[plain, secret, tls, cluster, sentinels, guardedCluster, guardedSentinels] = await Promise.all([
    startRedis({ tcp: true }),
    startRedis({ tcp: true, password: PASSWORD }),
    startRedis({ tcp: true, tls: true }),
    startCluster(3),
    startSentinels(),
    startCluster(3, 0, { tls: true, password: PASSWORD }),
    startSentinels({ tls: true, password: PASSWORD, sentinelPassword: SENTINEL_PASSWORD }),
  ])
  for (const url of guardedSentinels.urls) {
    const sentinel = operatorOf(url)
    const { username, password } = WATCH
    await sentinel.call('ACL', 'SETUSER', username, 'on', `>${password}`, ...SENTINEL_GRANTS.split(' '))
    await sentinel.call('ACL', 'SETUSER', 'weak', 'on', '>pw', '+ping')
    sentinel.disconnect()
  }
  for (const server of [plain, ...guardedCluster.nodes, guardedSentinels.master]) {
    const { username, password } = USER
    await server.command('ACL', 'SETUSER', username, 'on', `>${password}`, '~t:*', ...GRANTS.split(' '))
  }
})
afterAll(async () => {
  const all = [plain, secret, tls, cluster, sentinels, guardedCluster, guardedSentinels]
  await Promise.all(all.map((one) => one?.close()))
})

let store: RedisStore | undefined
afterEach(() => store?.close())

async function connect(
  topology: RedisStoreOptions['topology'],
  rest: Partial<RedisStoreOptions> = {},
): Promise<readonly string[] | Error> {
  const warnings: string[] = []
  store = new RedisStore({ topology, prefix: 't', onWarning: (one) => void warnings.push(one), ...rest })
  return await store.connect().then(
    () => warnings,
    (error: Error) => error,
  )
}

const behindGuards = (
  sentinelPassword?: string,
  sentinelUsername?: string,
): RedisStoreOptions['topology'] => ({
  sentinels: guardedSentinels.urls,
  name: guardedSentinels.name,
  sentinelUsername,
  sentinelPassword,
})

const asPlain = (url: string): string => url.replace('rediss:', 'redis:')

const quota = { name: 'x', key: 't:{a}:x', limit: 5, windowMs: 60_000, shadow: false }

describe('a store that is told the wrong Redis', () => {
  test.each<[string, () => RedisStoreOptions['topology'], Partial<RedisStoreOptions>, string]>([
    [
      'a cluster’s node as the one server',
      () => ({ url: cluster.urls[0]! }),
      {},
      'write cluster: [its URL] in place of url',
    ],
    ['a replica', () => ({ url: sentinels.replica.url }), {}, 'is a replica of 127.0.0.1:'],
    [
      'a Sentinel as the server',
      () => ({ url: sentinels.urls[0]! }),
      {},
      'write sentinels: [its URL] and name',
    ],
    [
      'a database of a Sentinel as the server',
      () => ({ url: `${sentinels.urls[0]!}/3` }),
      {},
      'write sentinels: [its URL] and name',
    ],
    [
      'a Sentinel as the server, with its user',
      () => ({ url: guardedSentinels.urls[0]! }),
      { ...CA, username: 'weak', password: 'pw' },
      'write sentinels: [its URL] and name',
    ],
    [
      'a database of a cluster’s node as the one server',
      () => ({ url: `${cluster.urls[0]!}/3` }),
      {},
      'write cluster: [its URL] in place of url',
    ],
    [
      'a server as a Sentinel',
      () => ({ sentinels: [plain.url], name: 'main' }),
      {},
      'names a server that is no Sentinel',
    ],
    [
      'a master that the sentinels do not know',
      () => ({ sentinels: sentinels.urls, name: 'other' }),
      {},
      'know no master of the name',
    ],
    ['a server as a cluster', () => ({ cluster: [plain.url] }), {}, 'write its URL in store.redis.url'],
    [
      'a wrong password',
      () => ({ url: secret.url }),
      { password: 'guess' },
      'refuses the user name or password',
    ],
    ['no password', () => ({ url: secret.url }), {}, 'asks for a password'],
    [
      'a database that there is not',
      () => ({ url: `${plain.url}/99` }),
      {},
      'names database 99, which this Redis does not have',
    ],
    ['a certificate of nobody known', () => ({ url: tls.url }), {}, 'store.redis.tls.ca'],
    ['a Sentinel as a cluster', () => ({ cluster: sentinels.urls }), {}, 'cluster names a Sentinel'],
    [
      'a cluster’s node as a Sentinel',
      () => ({ sentinels: cluster.urls, name: 'main' }),
      {},
      'names a server that is no Sentinel',
    ],
    [
      'a cluster’s wrong password',
      () => ({ cluster: guardedCluster.urls }),
      { ...CA, password: 'guess' },
      'refuses the user name or password',
    ],
    [
      'a cluster’s wrong user',
      () => ({ cluster: guardedCluster.urls }),
      { ...CA, ...USER, username: 'nobody' },
      'refuses the user name or password',
    ],
    ['no password for a cluster', () => ({ cluster: guardedCluster.urls }), CA, 'asks for a password'],
    [
      'a cluster’s certificate of nobody known',
      () => ({ cluster: guardedCluster.urls }),
      { password: PASSWORD },
      'store.redis.tls.ca',
    ],
    [
      'a wrong password behind sentinels',
      () => behindGuards(SENTINEL_PASSWORD),
      { ...CA, password: 'guess' },
      'refuses the user name or password',
    ],
    ['no password behind sentinels', () => behindGuards(SENTINEL_PASSWORD), CA, 'asks for a password'],
    [
      'the sentinels’ wrong password',
      () => behindGuards('guess'),
      { ...CA, password: PASSWORD },
      'store.redis.sentinelPassword',
    ],
    [
      'the sentinels’ wrong user',
      () => behindGuards(WATCH.password, 'nobody'),
      { ...CA, password: PASSWORD },
      'store.redis.sentinelUsername',
    ],
    [
      'a user of the sentinels who may ask nothing',
      () => behindGuards('pw', 'weak'),
      { ...CA, password: PASSWORD },
      `grant it ${SENTINEL_GRANTS}`,
    ],
    [
      'no password for the sentinels',
      () => behindGuards(),
      { ...CA, password: PASSWORD },
      'store.redis.sentinelPassword',
    ],
    [
      'the sentinels’ certificate of nobody known',
      () => behindGuards(SENTINEL_PASSWORD),
      { password: PASSWORD },
      'store.redis.tls.ca',
    ],
  ])('%s: says what to write instead', async (_, topology, rest, message) => {
    const error = await connect(topology(), rest)
    expect(error).toBeInstanceOf(StoreConfigError)
    expect((error as Error).message).toContain(message)
  })

  test.each<[string, () => RedisServer, readonly string[]]>([
    ['may not run scripts', () => plain, ['~*', '+@read', '+info']],
    ['may not write within scripts', () => plain, ['~*', '+@all', '-set']],
    ['may not touch the keys', () => plain, ['~other:*', '+@all']],
    ['may not ask a cluster for its slots', () => cluster.nodes[0]!, ['~*', '+@all', '-cluster|slots']],
  ])('a user who %s: says what to grant', async (_, server, rules) => {
    const { url, command } = server()
    await command('ACL', 'SETUSER', 'weak', 'reset', 'on', '>pw', ...rules)
    const topology = server() === plain ? { url } : { cluster: [url] }
    const error = await connect(topology, { username: 'weak', password: 'pw' })
    expect(error).toBeInstanceOf(StoreConfigError)
    expect((error as Error).message).toContain(GRANTS)
  })

  test('rediss:// for a server without TLS: says to write redis://', async () => {
    const server = createServer((socket) => socket.end('-ERR Protocol error\r\n'))
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const error = await connect({ url: `rediss://127.0.0.1:${(server.address() as AddressInfo).port}` })
    server.close()
    expect((error as Error).message).toContain('does not speak TLS')
  })

  test('what is no Redis: is named, whether it is asked in TLS or not', async () => {
    const server = createHttpServer()
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const address = `127.0.0.1:${(server.address() as AddressInfo).port}`
    for (const topology of [
      { url: `redis://${address}` },
      { url: `rediss://${address}` },
      { cluster: [`redis://${address}`] },
    ]) {
      const error = await connect(topology)
      expect(error).toBeInstanceOf(StoreConfigError)
      expect((error as Error).message).toContain(`something other than Redis answers at ${address}; `)
    }
    server.close()
  })

  test('TLS where none is spoken, and none where it is: says what to write instead', async () => {
    const wrong: [RedisStoreOptions['topology'], Partial<RedisStoreOptions>, RegExp][] = [
      [{ url: asPlain(tls.url) }, {}, /TLS is spoken at 127\.0\.0\.1:\d+; write rediss:/],
      [{ cluster: guardedCluster.urls.map(asPlain) }, { password: PASSWORD }, /write rediss:/],
      [{ sentinels: guardedSentinels.urls.map(asPlain), name: 'main' }, {}, /write rediss:/],
      [{ url: secret.url }, { ...CA, password: PASSWORD }, /not speak TLS at 127\.0\.0\.1:\d+; write redis:/],
      [{ cluster: cluster.urls }, CA, /write redis:/],
      [{ sentinels: sentinels.urls, name: sentinels.name }, CA, /write redis:/],
    ]
    const starts = wrong.map(async ([topology, rest, words]) => {
      const connected = new RedisStore({ topology, prefix: 't', ...rest }).connect()
      await expect(connected).rejects.toThrow(StoreConfigError)
      await expect(connected).rejects.toThrow(words)
    })
    await Promise.all(starts)
  })

  test.each([
    ['redis', (socket: Socket) => void socket.destroy()],
    ['rediss', (socket: Socket) => void socket.on('error', () => {}).resume()],
  ])('%s:// for who lets nobody know what is spoken: is taken for an outage', async (scheme, answer) => {
    const server = createServer(answer)
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as AddressInfo
    expect(await connect({ url: `${scheme}://127.0.0.1:${port}` })).toEqual([])
    await store!.close()
    server.close()
  })

  test('a server that says all but its slots, as a cluster: is not taken for right before it said them', async () => {
    const server = await startFakeRedis()
    const info = 'cluster_enabled:0'
    const answers = new Map([
      ['info', `$${info.length}\r\n${info}\r\n`],
      ['cluster', ''],
    ])
    server.answer(([name]) => answers.get(name!) ?? '+OK\r\n')
    let wrong: Error | undefined
    await connect({ cluster: [server.url] }, { onWrong: (error) => (wrong = error) })
    for (const end = performance.now() + 1500; performance.now() < end;) {
      await store!.probe('t:{a}:').catch(() => {})
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    server.answer('-ERR This instance has cluster support disabled\r\n')
    await until('it is told', () => wrong !== undefined)
    expect(wrong!.message).toContain('write its URL in store.redis.url')
    await store!.close()
    await server.close()
  })

  test('a database that is gone when it is connected to anew: is told once, and not asked', async () => {
    const server = await startFakeRedis()
    let selected = '+OK\r\n'
    server.answer((command) => {
      if (command[0] === 'select') return selected
      return command[0] === 'info' ? '$0\r\n\r\n' : admitsAll(command)
    })
    const wrong: string[] = []
    await connect({ url: `${server.url}/5` }, { onWrong: ({ message }) => void wrong.push(message) })
    expect(await store!.charge([quota])).toMatchObject({ admitted: true })
    selected = '-ERR DB index is out of range\r\n'
    server.drop()
    await until('it is told', () => wrong.length > 0)
    await expect(store!.charge([quota])).rejects.toThrow(StoreConfigError)
    await expect(store!.probe('t:{a}:')).rejects.toThrow('names database 5')
    expect(wrong).toEqual([
      expect.stringMatching(/names database 5, .+ \(It said: ERR DB index is out of range\)$/),
    ])
    selected = '+OK\r\n'
    await store!.probe('t:{a}:')
    await store!.close()
    await server.close()
  })

  test('a cluster with a database: says that there is none', () => {
    const url = `${cluster.urls[0]!}/3`
    expect(() => new RedisStore({ topology: { cluster: [url] }, prefix: 't' })).toThrow('database 0 alone')
  })
})

describe('a store that is told right', () => {
  test.each<[string, () => RedisStoreOptions['topology'], () => Partial<RedisStoreOptions>]>([
    ['one server', () => ({ url: plain.url }), () => ({})],
    ['a database of it', () => ({ url: `${plain.url}/3` }), () => ({})],
    ['one with a password', () => ({ url: secret.url }), () => ({ password: 'open sesame' })],
    [
      'one with a password in its URL',
      () => ({ url: secret.url.replace('//', '//:open%20sesame@') }),
      () => ({}),
    ],
    ['one with TLS', () => ({ url: tls.url }), () => CA],
    [
      'a cluster with TLS and a password',
      () => ({ cluster: guardedCluster.urls }),
      () => ({ ...CA, password: PASSWORD }),
    ],
    [
      'a cluster with a user',
      () => ({ cluster: guardedCluster.urls.slice(1, 2) }),
      () => ({ ...CA, ...USER }),
    ],
    [
      'a cluster with the user in its URLs',
      () => ({ cluster: guardedCluster.urls.map((url) => url.replace('//', '//gateway:hello@')) }),
      () => CA,
    ],
    [
      'sentinels with TLS, behind one password, before another',
      () => behindGuards(SENTINEL_PASSWORD),
      () => ({ ...CA, password: PASSWORD }),
    ],
    [
      'sentinels behind a user of their own, before another',
      () => behindGuards(WATCH.password, WATCH.username),
      () => ({ ...CA, ...USER }),
    ],
    ['a user behind sentinels', () => behindGuards(SENTINEL_PASSWORD), () => ({ ...CA, ...USER })],
    ['a user of a database', () => ({ url: `${plain.url}/3` }), () => USER],
    ['a cluster by one of its nodes', () => ({ cluster: cluster.urls.slice(1, 2) }), () => ({})],
    ['sentinels', () => ({ sentinels: sentinels.urls, name: sentinels.name }), () => ({})],
  ])('charges %s', async (_, topology, rest) => {
    expect(await connect(topology(), rest())).toEqual([])
    const key = `t:{a}:${Math.random()}`
    expect(await store!.charge([{ ...quota, key }])).toMatchObject({ admitted: true, mode: 'store' })
  })

  test('does nothing that it does not ask to be granted', async () => {
    const docs = readFileSync(new URL('../../../docs/limits.md', import.meta.url), 'utf8')
    expect(docs).toContain(GRANTS)
    const servers = [plain, ...guardedCluster.nodes, guardedSentinels.master]
    for (const server of servers) {
      await server.command('SCRIPT', 'FLUSH')
      await server.command('ACL', 'LOG', 'RESET')
    }
    const own = { ...quota, key: 't:{granted}:x' }
    for (const [topology, rest] of [
      [{ url: `${plain.url}/3` }, USER],
      [{ cluster: guardedCluster.urls }, { ...CA, ...USER }],
      [behindGuards(SENTINEL_PASSWORD), { ...CA, ...USER }],
    ] as const) {
      expect(await connect(topology, rest)).toEqual([])
      // More calls than are written whole, and then than the ring was made for.
      for (const limit of [30, 60]) {
        for (let i = 0; i < 30; i++) await store!.charge([{ ...own, limit }])
      }
      expect((await store!.peek([own]))[0]).toMatchObject({ remaining: 0 })
      await store!.probe('t:{granted}:')
      expect(await store!.reset({ named: [], glob: 't:{granted}:*', matches: () => true })).toBe(1)
      await store!.close()
    }
    for (const server of servers) expect(await server.command('ACL', 'LOG')).toEqual([])
  })

  test('asks sentinels for no more than their user is to be granted', async () => {
    expect(await connect(behindGuards(WATCH.password, WATCH.username), { ...CA, ...USER })).toEqual([])
    const operators = guardedSentinels.urls.map(operatorOf)
    const all = async (command: string, what: string) =>
      (await Promise.all(operators.map((one) => one.call(command, what)))).map((said) => JSON.stringify(said))
    await until('it listens for failovers', async () =>
      /sub=1 .*user=watch/.test(String(await all('CLIENT', 'LIST'))),
    )
    expect(String(await all('ACL', 'LOG'))).not.toContain('"watch"')
    for (const one of operators) one.disconnect()
  })

  test('charges every master of a cluster at once as soon as it is connected', async () => {
    await connect({ cluster: cluster.urls.slice(0, 1) })
    const charges = Array.from({ length: 300 }, async (_, i) =>
      store!.charge([{ ...quota, key: `t:{${i}}:first` }]),
    )
    expect((await Promise.all(charges)).every(({ admitted }) => admitted)).toBe(true)
  })

  test('probes each master of a cluster, and one that knows none', async () => {
    await connect({ cluster: cluster.urls })
    expect(new Set(store!.samples().map((key) => store!.server(key))).size).toBe(3)
    for (const key of store!.samples()) await store!.probe(key)
    await store!.close()

    const node = await startRedis({ tcp: true, args: ['--cluster-enabled', 'yes'] })
    expect(await connect({ cluster: [node.url] })).toEqual([])
    expect(store!.samples()).toHaveLength(1)
    await until('it is told', () =>
      store!.probe(store!.samples()[0]!).then(
        () => false,
        ({ message }: Error) => message.includes('gives no node its slots'),
      ),
    )
    await node.close()
  })

  test('starts though nobody is there, and charges when somebody is', async () => {
    expect(await connect({ url: `redis://127.0.0.1:${await freePort()}` })).toEqual([])
    await expect(store!.charge([quota])).rejects.toThrow('ECONNREFUSED')
  })

  test('warns of a Redis that may evict counters', async () => {
    await plain.command('CONFIG', 'SET', 'maxmemory', '100mb', 'maxmemory-policy', 'allkeys-lru')
    const warnings = await connect({ url: plain.url })
    await plain.command('CONFIG', 'SET', 'maxmemory', '0', 'maxmemory-policy', 'noeviction')
    expect(warnings).toMatchObject([expect.stringContaining('allkeys-lru')])
  })

  test.each<[string, () => RedisStoreOptions['topology']]>([
    ['server', () => ({ url: plain.url })],
    ['cluster', () => ({ cluster: cluster.urls })],
  ])(
    'warns once of a %s that asks for no password, though it is given one, and prints nothing',
    async (_, topology) => {
      const printed = vi.spyOn(console, 'warn').mockReturnValue()
      const warnings = await connect(topology(), { password: 'hello' })
      expect(warnings).toEqual([expect.stringContaining('asks for no password')])
      expect(printed).not.toHaveBeenCalled()
      printed.mockRestore()
    },
  )

  test('refuses to decide quotas of different slots together on a cluster, rather than let them through', async () => {
    await connect({ cluster: cluster.urls })
    expect(() => store!.charge([quota, { ...quota, name: 'y', key: 't:{b}:y' }])).toThrow(
      'same first part: x, y',
    )
  })
})

test('a store asks for nothing that came after Redis 6.2, so that Valkey and managed services have it too', async () => {
  const servers = [plain, ...cluster.nodes]
  for (const server of servers) await server.command('CONFIG', 'RESETSTAT')
  for (const topology of [{ url: plain.url }, { cluster: cluster.urls }]) {
    await connect(topology)
    await store!.charge([quota])
    await store!.peek([quota])
    await store!.probe('t:{a}:')
    expect(await store!.reset({ named: [], glob: 't:{a}:*', matches: () => true })).toBeGreaterThan(0)
    await store!.close()
  }
  const asked = new Set<string>()
  for (const server of servers) {
    const stats = String(await server.command('INFO', 'commandstats'))
    for (const [, name] of stats.matchAll(/^cmdstat_([^:]+):/gm)) asked.add(name!)
  }
  expect(asked).toContain('evalsha')
  for (const name of asked) {
    const [, facts] = (await plain.command('COMMAND', 'DOCS', name)) as [string, string[]]
    const since = facts[facts.indexOf('since') + 1]!
    expect(since.localeCompare('6.2.0', 'en', { numeric: true }), `${name} since ${since}`).not.toBe(1)
  }
})

test.each([
  ['redis://h', { host: 'h', port: 6379 }],
  ['redis://u:p%40s@h:7000/2', { host: 'h', port: 7000, username: 'u', password: 'p@s', db: 2 }],
  ['rediss://[::1]:7000', { host: '::1', port: 7000, tls: {} }],
  ['/run/redis.sock', { path: '/run/redis.sock' }],
  ['unix:///run/redis.sock', { path: '/run/redis.sock' }],
])('reads the address %s', (url, address) => {
  expect(redisAddress(url, {})).toEqual(address)
})

test.each([
  [{ url: 'redis://u:p@h/2' }, 'Redis at h:6379'],
  [{ url: '/run/redis.sock' }, 'Redis at /run/redis.sock'],
  [{ cluster: ['redis://:p@[::1]:7000', 'redis://h:1'] }, 'The cluster at [::1]:7000, h:1'],
  [{ sentinels: ['redis://:p@h', 'redis://i:1'], name: 'x' }, 'The master of the sentinels at h:26379, i:1'],
])('names for people %j', (topology, words) => {
  expect(whereIs(topology)).toBe(words)
})
