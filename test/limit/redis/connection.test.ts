import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { createServer as createTlsServer, type TLSSocket } from 'node:tls'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { GRANTS, inspectNodes, SENTINEL_GRANTS, StoreConfigError } from '../../../src/limit/redis/diagnose.ts'
import { missingCommands } from '../../../src/limit/redis/permissions.ts'
import { openClient } from '../../../src/limit/redis/client.ts'
import { describeTopology, loginOf, redisAddress } from '../../../src/limit/redis/options.ts'
import type { RedisStoreOptions } from '../../../src/limit/redis/store-options.ts'
import { createRedisStore, type RedisStore } from '../../../src/limit/redis/store.ts'
import { SYSTEM_CLOCK } from '../../../src/runtime/clock.ts'
import { DamagedKeyError } from '../../../src/limit/store.ts'
import { admitsAll, startFakeRedis } from '../../helpers/fake-redis.ts'
import { createFolder } from '../../helpers/folder.ts'
import { sluice } from '../../helpers/process.ts'
import { freePort } from '../../helpers/ports.ts'
import {
  REDIS_CERT,
  type RedisCluster,
  type RedisSentinels,
  type RedisServer,
  type SharedCluster,
  type SharedSentinels,
  startCluster,
  startRedis,
  startSentinels,
} from '../../helpers/redis.ts'
import { makeCertificate } from '../../helpers/self-signed.ts'
import { sharedCluster, sharedSentinels } from '../../helpers/shared-redis.ts'
import { until } from '../../helpers/wait.ts'

type Topology = RedisStoreOptions['topology']
type Options = Partial<RedisStoreOptions>

const CA = { tls: { ca: REDIS_CERT.cert } }
const PASSWORD = 'open sesame'
const GUARDED = { ...CA, password: PASSWORD }
const USER = { username: 'gateway', password: 'hello' }
const SENTINEL_PASSWORD = 'watchman'
const WATCH = { username: 'watch', password: 'tower' }

const operatorOf = (url: string) => new Redis(url, { ...CA, password: SENTINEL_PASSWORD, protocol: 2 })

let plain: RedisServer
let secret: RedisServer
let tls: RedisServer
let asking: RedisServer
let cluster: SharedCluster
let sentinels: SharedSentinels
let guardedCluster: RedisCluster
let guardedSentinels: RedisSentinels
beforeAll(async () => {
  ;[plain, secret, tls, asking, cluster, sentinels, guardedCluster, guardedSentinels] = await Promise.all([
    startRedis({ tcp: true }),
    startRedis({ tcp: true, password: PASSWORD }),
    startRedis({ tcp: true, tls: true }),
    startRedis({ tcp: true, tls: true, args: ['--tls-auth-clients', 'yes'] }),
    sharedCluster(),
    sharedSentinels(),
    startCluster(3, 0, { tls: true, password: PASSWORD }),
    startSentinels({
      ...{ tls: true, password: PASSWORD, sentinelPassword: SENTINEL_PASSWORD },
      // The users of these tests are not at the replica.
      downAfterMs: 60_000,
    }),
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
  const all = [plain, secret, tls, asking, guardedCluster, guardedSentinels]
  await Promise.all(all.map((server) => server?.close()))
})

let store: RedisStore
const stores = new Set<RedisStore>()
afterEach(async () => {
  for (const opened of stores) await opened.close()
  stores.clear()
})

/** Connects `store`; resolves with its warnings, or with the error. */
async function connect(topology: Topology, rest: Options = {}): Promise<readonly string[] | Error> {
  const warnings: string[] = []
  store = createRedisStore({
    topology,
    prefix: 't',
    onWarning: (warning) => void warnings.push(warning),
    ...rest,
  })
  stores.add(store)
  return await store.connect().then(
    () => warnings,
    (error: Error) => error,
  )
}

const behindGuards = (sentinelPassword?: string, sentinelUsername?: string): Topology => ({
  sentinels: guardedSentinels.urls,
  name: guardedSentinels.name,
  sentinelUsername,
  sentinelPassword,
})

const quota = { name: 'x', key: 't:{a}:x', limit: 5, windowMs: 60_000, shadow: false }

const IS_NODE = 'write cluster: [its URL] in place of url'
const IS_SENTINEL = 'write sentinels: [its URL] and name'
const OTHER_KIND = 'names a server of another kind'
const REFUSED = 'refuses the user name or password'
const SENTINEL_REFUSED = 'correct store.redis.sentinelUsername and store.redis.sentinelPassword'

describe('a start with the wrong Redis reports the remedy:', () => {
  test.each<[string, () => Topology, Options, string]>([
    ['a cluster’s node as the one server', () => ({ url: cluster.urls[0]! }), {}, IS_NODE],
    ['a database of a cluster’s node', () => ({ url: `${cluster.urls[0]!}/3` }), {}, IS_NODE],
    ['a Sentinel as the server', () => ({ url: sentinels.urls[0]! }), {}, IS_SENTINEL],
    ['a database of a Sentinel', () => ({ url: `${sentinels.urls[0]!}/3` }), {}, IS_SENTINEL],
    ['a server as a Sentinel', () => ({ sentinels: [plain.url], name: 'main' }), {}, OTHER_KIND],
    ['a cluster’s node as a Sentinel', () => ({ sentinels: cluster.urls, name: 'main' }), {}, OTHER_KIND],
    [
      'a master that the sentinels do not know',
      () => ({ sentinels: sentinels.urls, name: 'other' }),
      {},
      'know no master',
    ],
    ['a server as a cluster', () => ({ cluster: [plain.url] }), {}, OTHER_KIND],
    ['a Sentinel as a cluster', () => ({ cluster: sentinels.urls }), {}, OTHER_KIND],
    ['a wrong password', () => ({ url: secret.url }), { password: 'guess' }, REFUSED],
    ['no password', () => ({ url: secret.url }), {}, REFUSED],
    [
      'a missing database',
      () => ({ url: `${plain.url}/99` }),
      {},
      'names a database that this Redis does not have',
    ],
    ['an unknown certificate', () => ({ url: tls.url }), {}, 'store.redis.tls.ca'],
    [
      'a certificate for other names',
      () => ({ url: tls.url }),
      { tls: { ...CA.tls, servername: 'redis.internal' } },
      'set store.redis.tls.servername',
    ],
    ['no client certificate', () => ({ url: asking.url }), CA, 'set store.redis.tls.cert'],
    [
      'a cluster’s wrong password',
      () => ({ cluster: guardedCluster.urls }),
      { ...CA, password: 'guess' },
      REFUSED,
    ],
    [
      'a cluster’s wrong user',
      () => ({ cluster: guardedCluster.urls }),
      { ...CA, ...USER, username: 'nobody' },
      REFUSED,
    ],
    ['no password for a cluster', () => ({ cluster: guardedCluster.urls }), CA, REFUSED],
    [
      'a cluster’s unknown certificate',
      () => ({ cluster: guardedCluster.urls }),
      { password: PASSWORD },
      'store.redis.tls.ca',
    ],
    [
      'a wrong password behind sentinels',
      () => behindGuards(SENTINEL_PASSWORD),
      { ...CA, password: 'guess' },
      REFUSED,
    ],
    ['no password behind sentinels', () => behindGuards(SENTINEL_PASSWORD), CA, REFUSED],
    ['the sentinels’ wrong password', () => behindGuards('guess'), GUARDED, SENTINEL_REFUSED],
    [
      'the sentinels’ wrong user',
      () => behindGuards(WATCH.password, 'nobody'),
      GUARDED,
      'store.redis.sentinelUsername',
    ],
    [
      'a user of the sentinels without rights',
      () => behindGuards('pw', 'weak'),
      GUARDED,
      `grant it ${SENTINEL_GRANTS}`,
    ],
    ['no password for the sentinels', () => behindGuards(), GUARDED, SENTINEL_REFUSED],
  ])('%s', async (_, topology, rest, message) => {
    const error = await connect(topology(), rest)
    expect(error).toBeInstanceOf(StoreConfigError)
    expect((error as Error).message).toContain(message)
  })

  test.each<[string, () => RedisServer, readonly string[]]>([
    ['may not run scripts', () => plain, ['~*', '+@read', '+info']],
    ['may not write within scripts', () => plain, ['~*', '+@all', '-set']],
    ['may not run CLUSTER SLOTS', () => guardedCluster.nodes[0]!, ['~*', '+@all', '-cluster|slots']],
  ])('a user who %s', async (_, server, rules) => {
    const { url, command } = server()
    await command('ACL', 'SETUSER', 'weak', 'reset', 'on', '>pw', ...rules)
    const topology = server() === plain ? { url } : { cluster: [url] }
    const error = await connect(topology, {
      username: 'weak',
      password: 'pw',
      ...(server() !== plain && CA),
    })
    expect(error).toBeInstanceOf(StoreConfigError)
    expect((error as Error).message).toContain(GRANTS)
  })
})

test.each(['~other:*', '%R~t:*', '~t:{c*'])(
  'a user of other keys (%s) is told to be granted the keys, and no command',
  async (keys) => {
    await plain.command('ACL', 'SETUSER', 'elsewhere', 'reset', 'on', '>pw', keys, '+@all')
    const error = await connect({ url: plain.url }, { username: 'elsewhere', password: 'pw' })
    expect(error).toBeInstanceOf(StoreConfigError)
    expect((error as Error).message).toMatch(/may not read and write the keys .*; grant it ~PREFIX:\*/)
    const client = new Redis(plain.port, { username: 'elsewhere', password: 'pw', protocol: 2 })
    expect(await missingCommands(client, 't')).toEqual([])
    client.disconnect()
  },
)

test.each<[string, (socket: Socket) => void]>([
  ['redis', (socket) => void socket.destroy()],
  ['rediss', (socket) => void socket.on('error', () => {}).resume()],
  ['rediss', (socket) => void socket.on('error', () => {}).end('-ERR Protocol error\r\n')],
])('%s:// for a server of another protocol is an outage', async (scheme, answer) => {
  const server = createServer(answer)
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as { port: number }
  expect(await connect({ url: `${scheme}://127.0.0.1:${port}` })).toEqual([])
  await store.close()
  server.close()
})

test('a certificate that has expired does not prevent a start, since a renewal ends it', async () => {
  const expired = makeCertificate('localhost', -1000, '127.0.0.1')
  const server = createTlsServer(expired, (socket) => void socket.destroy()).on('tlsClientError', () => {})
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as { port: number }
  const wrong: string[] = []
  const onMisconfigured = ({ message }: Error) => void wrong.push(message)
  const tls = { ca: expired.cert }
  expect(await connect({ url: `rediss://127.0.0.1:${port}` }, { tls, onMisconfigured })).toEqual([])
  expect(wrong).toEqual([expect.stringMatching(/^the certificate of Redis is not valid at this time; /)])
  await store.close()
  server.close()
})

test.each<[string, (url: string) => Topology, string | undefined, readonly string[]]>([
  ['one server', (url) => ({ url }), undefined, ['localhost']],
  ['one server with a name in the file', (url) => ({ url }), 'redis.internal', ['redis.internal']],
  ['a node of a cluster', (url) => ({ cluster: [url] }), undefined, ['localhost']],
])('the name of %s is sent for TLS', async (_, topology, servername, expected) => {
  const names = new Set<string>()
  const server = createTlsServer({
    ...REDIS_CERT,
    SNICallback(name, done) {
      names.add(name)
      done(null)
    },
  }).on('tlsClientError', () => {})
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as { port: number }
  const client = openClient(
    {
      topology: topology(`rediss://localhost:${port}`),
      tls: { ...CA.tls, ...(servername && { servername }) },
    },
    () => {},
  )
  client.commands.on('error', () => {})
  client.connect().catch(() => {})
  await until('a name is sent', () => names.size > 0)
  expect([...names]).toEqual(expected)
  client.close()
  server.close()
})

test('the announced name of the master of sentinels is sent for TLS', async () => {
  const names: (string | undefined)[] = []
  let port = 0
  const server = createTlsServer({
    ...REDIS_CERT,
    SNICallback(name, done) {
      names.push(name)
      done(null)
    },
  }).on('tlsClientError', () => {})
  server.on('secureConnection', (socket: TLSSocket) => {
    socket.on('error', () => {})
    socket.on('data', (data) => {
      const isQuestion = data.toString().toLowerCase().includes('get-master-addr-by-name')
      const master = `$9\r\nlocalhost\r\n$${String(port).length}\r\n${port}\r\n`
      if (isQuestion) socket.write(`*2\r\n${master}`)
      else socket.write(data.toString().toLowerCase().includes('sentinel') ? '*0\r\n' : '+OK\r\n')
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  port = (server.address() as { port: number }).port
  const topology = { sentinels: [`rediss://127.0.0.1:${port}`], name: 'main' }
  const client = openClient({ topology, tls: CA.tls }, () => {})
  client.commands.on('error', () => {})
  client.connect().catch(() => {})
  await until('a name is sent', () => names.length > 0)
  expect(names[0]).toBe('localhost')
  client.close()
  server.close()
})

test('a database that is missing after a reconnection is reported once, and not used', async () => {
  const server = await startFakeRedis()
  let selected = '+OK\r\n'
  server.answer((command) => {
    if (command[0] === 'select') return selected
    return command[0] === 'info' ? '$0\r\n\r\n' : admitsAll(command)
  })
  const wrong: string[] = []
  await connect({ url: `${server.url}/5` }, { onMisconfigured: ({ message }) => void wrong.push(message) })
  expect(await store.charge([quota])).toMatchObject({ admitted: true })
  selected = '-ERR DB index is out of range\r\n'
  server.drop()
  await until('it is reported', () => wrong.length > 0)
  await expect(store.charge([quota])).rejects.toThrow(StoreConfigError)
  await expect(store.probe('redis')).rejects.toThrow('names a database')
  expect(wrong).toEqual([
    expect.stringMatching(/names a database .+ \(Cause: ERR DB index is out of range\)$/),
  ])
  selected = '+OK\r\n'
  await store.probe('redis')
  await store.close()
  await server.close()
})

describe('a store with the right Redis', () => {
  test.each<[string, () => Topology, Options]>([
    ['one server', () => ({ url: plain.url }), {}],
    ['a database', () => ({ url: `${plain.url}/3` }), {}],
    ['a user of a database', () => ({ url: `${plain.url}/3` }), USER],
    ['a password', () => ({ url: secret.url }), { password: PASSWORD }],
    ['a password in the URL', () => ({ url: secret.url.replace('//', '//:open%20sesame@') }), {}],
    ['TLS', () => ({ url: tls.url }), CA],
    ['a cluster by one of its nodes', () => ({ cluster: cluster.urls.slice(1, 2) }), {}],
    ['a cluster with TLS and a password', () => ({ cluster: guardedCluster.urls }), GUARDED],
    [
      'a user of a cluster',
      () => ({ cluster: guardedCluster.urls.map((url) => url.replace('//', '//gateway:hello@')) }),
      CA,
    ],
    ['sentinels', () => ({ sentinels: sentinels.urls, name: sentinels.name }), {}],
    ['sentinels with TLS and passwords', () => behindGuards(SENTINEL_PASSWORD), GUARDED],
    [
      'users of sentinels and of the master',
      () => behindGuards(WATCH.password, WATCH.username),
      { ...CA, ...USER },
    ],
  ])('charges through %s', async (_, topology, rest) => {
    expect(await connect(topology(), rest)).toEqual([])
    const key = `t:{a}:${Math.random()}`
    expect(await store.charge([{ ...quota, key }])).toMatchObject({ admitted: true, mode: 'store' })
  })

  test('uses only the commands in GRANTS, which Redis 6.2 has', async () => {
    const docs = readFileSync(new URL('../../../docs/outages.md', import.meta.url), 'utf8')
    expect(docs).toContain(GRANTS)
    const servers = [plain, ...guardedCluster.nodes, guardedSentinels.master]
    for (const server of servers) {
      await server.command('SCRIPT', 'FLUSH')
      await server.command('ACL', 'LOG', 'RESET')
      await server.command('CONFIG', 'RESETSTAT')
    }
    const own = { ...quota, key: 't:{granted}:x' }
    for (const [topology, rest] of [
      [{ url: `${plain.url}/3` }, USER],
      [{ cluster: guardedCluster.urls }, { ...CA, ...USER }],
      [behindGuards(SENTINEL_PASSWORD), { ...CA, ...USER }],
    ] as const) {
      expect(await connect(topology, rest)).toEqual([])
      // More calls than the log of a small key holds, then more than the capacity of the ring.
      for (const limit of [30, 60]) {
        for (let i = 0; i < 30; i++) await store.charge([{ ...own, limit }])
      }
      expect((await store.peek([own]))[0]).toMatchObject({ remaining: 0 })
      const concurrent = { ...own, key: 't:{granted}:y', isConcurrent: true }
      for (const id of ['1:a', '2:a', '3:a']) await store.charge([{ ...concurrent, limit: 2 }], undefined, id)
      const lease = { quota: concurrent, id: '1:a' }
      await store.renewLeases([lease], [2000])
      expect((await store.peek([concurrent]))[0]).toMatchObject({ used: 2, sinceAt: 0.001 })
      await store.endLeases([lease])
      await store.probe(store.server(own.key))
      expect(await store.reset({ named: [], glob: 't:{granted}:*', matches: () => true })).toBe(2)
      expect(await store.overrides.version()).toBe('')
      for (const value of ['value', undefined]) {
        await store.overrides.change(new Map([['field', value]]), '')
        expect((await store.overrides.read())['field']).toBe(value)
      }
      await store.close()
    }
    for (const server of servers) expect(await server.command('ACL', 'LOG')).toEqual([])

    const used = new Set<string>()
    for (const server of servers) {
      const stats = String(await server.command('INFO', 'commandstats'))
      for (const [, name] of stats.matchAll(/^cmdstat_([^:]+):/gm)) used.add(name!)
    }
    expect(used).toContain('evalsha')
    for (const name of used) {
      const [, facts] = (await plain.command('COMMAND', 'DOCS', name)) as [string, string[]]
      const since = facts[facts.indexOf('since') + 1]!
      expect(since.localeCompare('6.2.0', 'en', { numeric: true }), `${name} since ${since}`).not.toBe(1)
    }
  })

  test('sends sentinels only the commands in SENTINEL_GRANTS', async () => {
    expect(await connect(behindGuards(WATCH.password, WATCH.username), { ...CA, ...USER })).toEqual([])
    for (const url of guardedSentinels.urls) {
      const operator = operatorOf(url)
      await until('it is subscribed', async () =>
        /sub=1 .*user=watch/.test(String(await operator.call('CLIENT', 'LIST'))),
      )
      const refused = (await operator.call('ACL', 'LOG')) as unknown[][]
      // ioredis names itself to sentinels of Redis 7.2 and Valkey, and ignores the refusal.
      const others = refused.filter((entry) => !entry.includes('client|setinfo'))
      expect(JSON.stringify(others)).not.toContain('"watch"')
      operator.disconnect()
    }
  })

  test('charges every master of a cluster as soon as the cluster is connected', async () => {
    await connect({ cluster: cluster.urls.slice(0, 1) })
    const charges = Array.from({ length: 300 }, async (_, i) =>
      store.charge([{ ...quota, key: `t:{${i}}:first` }]),
    )
    expect((await Promise.all(charges)).every(({ admitted }) => admitted)).toBe(true)
  })

  test('probes each master of a cluster, and a node without slots', async () => {
    await connect({ cluster: cluster.urls })
    expect(store.servers()).toHaveLength(3)
    for (const server of store.servers()) await store.probe(server)
    await store.close()

    const node = await startRedis({ tcp: true, args: ['--cluster-enabled', 'yes'] })
    expect(await connect({ cluster: [node.url] })).toEqual([])
    expect(store.servers()).toEqual(['unknown'])
    await expect(store.probe('unknown')).rejects.toThrow('no node of the cluster has slots')
    await node.close()
  })

  test('is used again as soon as it has room for a client', async () => {
    const server = await startRedis({ tcp: true })
    expect(await connect({ url: server.url })).toEqual([])
    await server.command('CONFIG', 'SET', 'maxclients', 1)
    await server.command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    await until('it is not connected', async () =>
      store.charge([quota]).then(
        () => false,
        ({ message }: Error) => /^Redis is not connected: (?:write EPIPE|.* ECONNRESET)/.test(message),
      ),
    )
    const causes: string[] = []
    const second = createRedisStore({
      topology: { url: server.url },
      prefix: 't',
      onUnavailable: ({ message }) => void causes.push(message),
    })
    stores.add(second)
    expect(await second.connect()).toBe(false)
    expect(causes).toEqual([expect.stringMatching(/^Redis is not connected: /)])
    expect(causes[0]).not.toContain('enableOfflineQueue')
    await server.command('CONFIG', 'SET', 'maxclients', 100)
    for (const one of [store, second])
      await until('it is used again', () =>
        one.charge([quota]).then(
          () => true,
          () => false,
        ),
      )
    await server.close()
  })

  test('starts without a Redis, and rejects calls', async () => {
    expect(await connect({ url: `redis://127.0.0.1:${await freePort()}` })).toEqual([])
    await expect(store.charge([quota])).rejects.toThrow('ECONNREFUSED')
  })

  test('warns once of a clock that differs, and says when it is right again', async () => {
    const behindMs = 2 * 3600 * 1000
    let isBehind = true
    const clock = { ...SYSTEM_CLOCK, date: () => Date.now() - (isBehind ? behindMs : 0) }
    const right: string[] = []
    const warnings = await connect(
      { url: plain.url },
      { clock, onClockRight: (name) => void right.push(name) },
    )
    await store.probe('redis')
    expect(warnings).toEqual([
      expect.stringMatching(/^The clock of Redis is 720\d s ahead of that of this machine; /),
    ])
    expect(right).toEqual([])
    isBehind = false
    await store.probe('redis')
    await store.probe('redis')
    expect(right).toEqual(['redis'])
    expect(warnings).toHaveLength(1)
  })

  test('warns of a password that Redis does not ask for, and only in the log', async () => {
    const written = vi.spyOn(console, 'warn')
    const warning = [expect.stringMatching(/^Redis has no password, although store\.redis has one/)]
    const open = { password: PASSWORD }
    expect(await connect({ url: plain.url }, open)).toEqual(warning)
    await store.close()
    expect(await connect({ cluster: cluster.urls }, open)).toEqual(warning)
    await store.close()
    expect(await connect({ sentinels: sentinels.urls, name: sentinels.name }, open)).toEqual(warning)
    await store.close()
    await inspectNodes({ topology: { url: plain.url }, ...open }, 3000)
    expect(await connect({ url: secret.url }, open)).toEqual([])
    expect(written).not.toHaveBeenCalled()
    written.mockRestore()
  })

  test('warns of a policy that is set while it runs, within a minute', async () => {
    const server = await startRedis({ tcp: true, args: ['--maxmemory', '100mb'] })
    let aheadMs = 0
    const clock = { ...SYSTEM_CLOCK, now: () => performance.now() + aheadMs }
    const warnings = (await connect({ url: server.url }, { clock })) as readonly string[]
    await server.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-random')
    aheadMs = 61_000
    await store.probe('redis')
    await until('it warns', () => warnings.length > 0)
    expect(warnings).toEqual([expect.stringContaining('may evict counters (allkeys-random)')])
    await server.close()
  })

  test.each([
    ['redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1', 'is Valkey 8.0.1'],
    ['redis_version:7.2.4\r\nredict_version:7.3.6', 'is Redict 7.3.6'],
    ['redis_version:7.0.15', 'is Redis 7.0.15'],
  ])('names a server with %j', async (info, found) => {
    const fake = await startFakeRedis()
    fake.answer(([name]) => (name === 'info' ? `$${info.length}\r\n${info}\r\n` : '+OK\r\n'))
    expect(await inspectNodes({ topology: { url: fake.url } }, 3000)).toEqual([{ url: fake.url, found }])
    await fake.close()
  })

  test('does not take a Sentinel of Valkey for a server', async () => {
    const fake = await startFakeRedis()
    const info = 'server_name:valkey\r\nserver_mode:sentinel\r\nvalkey_version:8.0.1'
    fake.answer(() => `$${info.length}\r\n${info}\r\n`)
    expect(await connect({ url: fake.url })).toMatchObject({ message: expect.stringContaining(IS_SENTINEL) })
    await fake.close()
  })

  test('warns of a Redis that is too old, as the check does', async () => {
    const fake = await startFakeRedis()
    const info = 'redis_version:6.0.16'
    fake.answer((command) => (command[0] === 'info' ? `$${info.length}\r\n${info}\r\n` : admitsAll(command)))
    const fault = expect.stringContaining('is Redis 6.0.16, and the store needs 6.2 or newer')
    expect(await connect({ url: fake.url })).toContainEqual(fault)
    expect(await inspectNodes({ topology: { url: fake.url } }, 3000)).toEqual([{ url: fake.url, fault }])
    await fake.close()
  })

  test('says that the nodes of a cluster announce no addresses', async () => {
    const announce = (type: string) =>
      Promise.all(
        guardedCluster.nodes.map(({ command }) =>
          command('CONFIG', 'SET', 'cluster-preferred-endpoint-type', type),
        ),
      )
    await announce('unknown-endpoint')
    const found = await inspectNodes({ topology: { cluster: guardedCluster.urls }, ...GUARDED }, 3000)
    await announce('ip')
    expect(found).toEqual(
      guardedCluster.urls.map((url) => ({
        url,
        fault: expect.stringMatching(/announce no addresses; set cluster-preferred-endpoint-type/),
      })),
    )
  })

  test('warns about a Redis that may evict counters', async () => {
    await plain.command('CONFIG', 'SET', 'maxmemory', '100mb', 'maxmemory-policy', 'allkeys-lru')
    const warnings = await connect({ url: plain.url })
    await plain.command('CONFIG', 'SET', 'maxmemory', '0', 'maxmemory-policy', 'noeviction')
    expect(warnings).toMatchObject([expect.stringContaining('allkeys-lru')])
  })
})

test.each([
  ['redis://h', { host: 'h', port: 6379 }],
  ['redis://u:p%40s@h:7000/2', { host: 'h', port: 7000, username: 'u', password: 'p@s', db: 2 }],
  ['rediss://h', { host: 'h', port: 6379, tls: { rejectUnauthorized: true, servername: 'h' } }],
  ['rediss://[::1]:7000', { host: '::1', port: 7000, tls: { rejectUnauthorized: true } }],
  ['/run/redis.sock', { path: '/run/redis.sock' }],
  ['unix:///run/redis.sock', { path: '/run/redis.sock' }],
])('reads the address %s', (url, address) => {
  expect(redisAddress(url, {})).toEqual(address)
})

test.each([
  [{ url: 'redis://u:p@h/2' }, 'Redis at h'],
  [{ url: '/run/redis.sock' }, 'Redis at /run/redis.sock'],
  [{ cluster: ['redis://:p@[::1]:7000', 'redis://h:1'] }, 'The cluster at [::1]:7000, h:1'],
  [{ sentinels: ['redis://:p@h', 'redis://i:1'], name: 'x' }, 'The master of the sentinels at h, i:1'],
])('describes %j', (topology, text) => {
  expect(describeTopology(topology)).toBe(text)
})

describe('sentinels whose TLS differs from that of Redis', () => {
  test('are trusted by the authorities of Node.js if the master has no TLS', async () => {
    const mixed = await startSentinels({ tls: false, sentinelTls: true })
    const folder = createFolder()
    const [ca, file] = [join(folder, 'ca.pem'), join(folder, 'sluice.yaml')]
    writeFileSync(ca, REDIS_CERT.cert)
    const redis = JSON.stringify({ sentinels: mixed.urls, name: mixed.name, tls: false })
    writeFileSync(
      file,
      `{ store: { redis: ${redis} }, tokens: { issuer: "https://i", audience: a, jwks: "http://127.0.0.1:1" }, ` +
        'upstreams: { data: { url: "http://127.0.0.1:1" } }, limits: { requests: { per: [client], limit: 1, window: 1m } }, ' +
        'routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [requests] }] }',
    )
    const found = async (env: Record<string, string>) => {
      const check = sluice(['check', '--connect', '--config', file], env)
      await check.ended()
      return check.stdout()
    }
    expect(await found({ NODE_EXTRA_CA_CERTS: ca })).toMatch(/^ok +counting in Redis /m)
    expect(await found({})).toMatch(/^failed +sentinel at .* is not trusted; /m)
    await mixed.close()
  })

  test('do not vouch for a master whose certificate no authority has signed', async () => {
    const mixed = await startSentinels({ tls: true, sentinelTls: false })
    const error = await connect({ sentinels: mixed.urls, name: mixed.name }, { tls: {} })
    expect(String(error)).toContain('store.redis.tls.ca')
    await mixed.close()
  })

  test.each([
    ['without TLS', false, {}],
    ['with TLS', true, { isMasterPlain: true }],
  ])('are asked %s, also after a failover', async (_, sentinelTls, beside) => {
    const mixed = await startSentinels({ tls: !sentinelTls, sentinelTls })
    const topology = { sentinels: mixed.urls, name: mixed.name, ...beside }
    const config = { topology, ...CA }
    expect(await connect(topology, CA)).toEqual([])
    expect(await store.charge([quota])).toMatchObject({ admitted: true, mode: 'store' })
    expect(await inspectNodes(config, 3000)).toEqual(
      mixed.urls.map((url) => ({ url, found: expect.stringContaining('knows the master "main"') })),
    )
    await mixed.master.kill()
    const isDecided = () =>
      store.charge([quota]).then(
        () => true,
        () => false,
      )
    await until('the replica decides', isDecided, 20_000)
    await mixed.close()
  })
})

describe('a store whose password is renewed', () => {
  const [OLD, NEW] = ['old password', 'new password']
  const rotating = (password: string) => ({ username: 'rotating', password })
  /** Lets the user `rotating` log in by this password only. */
  const setPassword = (password: string) =>
    ['ACL', 'SETUSER', 'rotating', 'reset', 'on', `>${password}`, '~*', '&*', '+@all'] as const
  const charges = (key = quota.key) =>
    store.charge([{ ...quota, key, limit: 1000 }]).then(
      ({ mode }) => mode === 'store',
      () => false,
    )

  test('uses it for each connection to a node of a cluster', async () => {
    const { nodes, urls } = guardedCluster
    const all = (...command: string[]) => Promise.all(nodes.map((node) => node.command(...command)))
    await all(...setPassword(OLD))
    const topology = { cluster: urls }
    expect(await connect(topology, { ...CA, ...rotating(OLD) })).toEqual([])
    const keys = Array.from({ length: 50 }, (_, i) => `t:{${i}}:renewed`)
    const isServed = async () => (await Promise.all(keys.map(charges))).every(Boolean)
    expect(await isServed()).toBe(true)
    store.renew(loginOf({ topology, ...rotating(NEW) }))
    // The connections stay.
    await all(...setPassword(NEW))
    expect(await isServed()).toBe(true)
    // The slots are read over connections of their own.
    await all('CONFIG', 'RESETSTAT')
    await until('the slots are read', async () =>
      (await all('INFO', 'commandstats')).some((stats) => String(stats).includes('cmdstat_cluster|slots')),
    )
    await nodes[0]!.command('CLIENT', 'KILL', 'USER', 'rotating')
    await until('the node is connected again', isServed)
    await all('CLIENT', 'KILL', 'USER', 'rotating')
    await until('every node is connected again', isServed)
  })

  test('uses it, and that of the sentinels, behind sentinels', async () => {
    const { master, urls } = guardedSentinels
    const operators = urls.map(operatorOf)
    const all = ([name, ...rest]: readonly string[]) =>
      Promise.all(operators.map((operator) => operator.call(name!, ...rest)))
    await all(setPassword(OLD))
    await master.command(...setPassword(OLD))
    expect(await connect(behindGuards(OLD, 'rotating'), { ...CA, ...rotating(OLD) })).toEqual([])
    expect(await charges()).toBe(true)
    const isSubscribed = async () =>
      (await all(['CLIENT', 'LIST'])).every((list) => /sub=1 .*user=rotating/.test(String(list)))
    await until('it is subscribed', isSubscribed)
    store.renew(loginOf({ topology: behindGuards(NEW, 'rotating'), ...rotating(NEW) }))
    await all(setPassword(NEW))
    await master.command(...setPassword(NEW))
    expect(await charges()).toBe(true)
    await all(['CLIENT', 'KILL', 'USER', 'rotating'])
    await master.command('CLIENT', 'KILL', 'USER', 'rotating')
    await until('it is connected again', charges)
    await until('it is subscribed again', isSubscribed)
    for (const operator of operators) operator.disconnect()
  })
})

test('a running gateway names each command that Redis refuses to its user, and takes no key for damaged', async () => {
  const server = await startRedis({ tcp: true })
  // Those of new connections, and those that a gateway calls only after a fault of a key.
  const others = /select|client|cluster|info|unlink/
  for (const grant of GRANTS.split(' ').filter((name) => !others.test(name))) {
    const name = grant.slice(1)
    await server.command('ACL', 'SETUSER', name, 'on', '>pass', '~t:*', ...GRANTS.split(' '))
    const warnings: string[] = []
    const running = createRedisStore({
      topology: { url: server.url.replace('//', `//${name}:pass@`) },
      prefix: 't',
      onWarning: (warning) => void warnings.push(warning),
    })
    expect(await running.connect()).toBe(true)
    const errors: unknown[] = []
    const failed = (error: unknown) => void errors.push(error)
    const rate = { name: 'x', key: `t:{${name}}:x`, limit: 20, windowMs: 60_000, shadow: false }
    const atOnce = { ...rate, key: `t:{${name}}:~leases:x`, isConcurrent: true }
    const calls = [{ atUs: Math.floor(performance.now() * 1000), calls: 1 }]
    for (let i = 0; i < 10; i++) await running.charge([rate])
    await server.command('ACL', 'SETUSER', name, `-${name}`)
    for (let i = 0; i < 3; i++) await running.charge([rate]).catch(failed)
    for (const id of ['1:a', '2:a']) await running.charge([atOnce], undefined, id).catch(failed)
    await running.peek([atOnce]).catch(failed)
    await running.charge([{ ...atOnce, limit: 1 }], undefined, '3:a').catch(failed)
    const lease = { quota: atOnce, id: '1:a' }
    await running.renewLeases([lease], [2000]).catch(failed)
    await running.endLeases([lease]).catch(failed)
    await running.merge({ number: 1, quota: rate, calls, spreadMs: 0 }).catch(failed)
    const all = [{ quota: rate, points: 1, chargedUs: 0 }]
    await running.settle({ number: 1, all }).catch(failed)
    await running.overrides.version().catch(failed)
    await running.overrides.change(new Map([['a', 'b']]), '').catch(failed)
    await running.overrides.change(new Map([['a', undefined]]), '').catch(failed)
    await running.overrides.read().catch(failed)
    await running.probe('redis').catch(failed)
    await running.keys({ named: [rate.key], glob: `t:{${name}}*`, matches: () => true }).catch(failed)
    await until(`${name} is named`, () => warnings.some((warning) => warning.includes('(Cause: NOPERM')))
    expect(warnings.join(), grant).toMatch(new RegExp(`grant it \\+eval .*\\(Cause: NOPERM .*\\b${name}\\b`))
    expect(errors.filter((error) => error instanceof DamagedKeyError)).toEqual([])
    await running.close()
  }
})
