import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { redisAddress } from '../../src/limit/redis-options.ts'
import { RedisStore, type RedisStoreOptions } from '../../src/limit/redis-store.ts'
import { StoreConfigError } from '../../src/limit/redis-topology.ts'
import {
  freePort,
  type RedisCluster,
  type RedisSentinels,
  type RedisServer,
  startCluster,
  startRedis,
  startSentinels,
} from '../helpers/redis.ts'

const pem = (name: string) => fileURLToPath(new URL(`tls/${name}.pem`, import.meta.url))

let plain: RedisServer
let secret: RedisServer
let tls: RedisServer
let tlsPort: number
let cluster: RedisCluster
let sentinels: RedisSentinels
beforeAll(async () => {
  tlsPort = await freePort()
  ;[plain, secret, tls, cluster, sentinels] = await Promise.all([
    startRedis({ tcp: true }),
    startRedis({ tcp: true, password: 'open sesame' }),
    startRedis({
      args: [
        ...['--tls-port', String(tlsPort), '--tls-cert-file', pem('cert'), '--tls-key-file', pem('key')],
        ...['--tls-ca-cert-file', pem('cert'), '--tls-auth-clients', 'no'],
      ],
    }),
    startCluster(3),
    startSentinels(),
  ])
})
afterAll(async () => {
  await Promise.all([plain, secret, tls, cluster, sentinels].map((one) => one?.close()))
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
      'a certificate of nobody known',
      () => ({ url: `rediss://localhost:${tlsPort}` }),
      {},
      'store.redis.tls.ca',
    ],
  ])('%s: says what to write instead', async (_, topology, rest, message) => {
    const error = await connect(topology(), rest)
    expect(error).toBeInstanceOf(StoreConfigError)
    expect((error as Error).message).toContain(message)
  })

  test('a user who may not run scripts: says what to grant', async () => {
    await plain.command('ACL', 'SETUSER', 'weak', 'on', '>pw', '~*', '+@read', '+info')
    const error = await connect({ url: plain.url }, { username: 'weak', password: 'pw' })
    expect(error).toBeInstanceOf(StoreConfigError)
    expect((error as Error).message).toContain('+evalsha')
  })

  test('rediss:// for a server without TLS: says to write redis://', async () => {
    const server = createServer((socket) => socket.end('-ERR Protocol error\r\n'))
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const error = await connect({ url: `rediss://127.0.0.1:${(server.address() as { port: number }).port}` })
    server.close()
    expect((error as Error).message).toContain('does not speak TLS')
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
    [
      'one with TLS',
      () => ({ url: `rediss://localhost:${tlsPort}` }),
      () => ({ tls: { ca: readFileSync(pem('cert'), 'utf8') } }),
    ],
    ['a cluster by one of its nodes', () => ({ cluster: cluster.urls.slice(1, 2) }), () => ({})],
    ['sentinels', () => ({ sentinels: sentinels.urls, name: sentinels.name }), () => ({})],
  ])('charges %s', async (_, topology, rest) => {
    expect(await connect(topology(), rest())).toEqual([])
    const key = `t:{a}:${Math.random()}`
    expect(await store!.charge([{ ...quota, key }])).toMatchObject({ admitted: true, mode: 'store' })
  })

  test('charges every master of a cluster at once as soon as it is connected', async () => {
    await connect({ cluster: cluster.urls.slice(0, 1) })
    const charges = Array.from({ length: 300 }, async (_, i) =>
      store!.charge([{ ...quota, key: `t:{${i}}:first` }]),
    )
    expect((await Promise.all(charges)).every(({ admitted }) => admitted)).toBe(true)
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

  test('refuses to decide quotas of different slots together on a cluster, rather than let them through', async () => {
    await connect({ cluster: cluster.urls })
    expect(() => store!.charge([quota, { ...quota, name: 'y', key: 't:{b}:y' }])).toThrow(
      'same first part: x, y',
    )
  })
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
