import { createServer as createPlainServer } from 'node:net'
import { createServer } from 'node:tls'
import { describe, expect, it, vi } from 'vitest'
import { certificateFindings } from '../../src/commands/connect.ts'
import { GRANTS } from '../../src/limit/redis/diagnose.ts'
import { startIntrospection } from '../helpers/introspection-server.ts'
import { startIssuer } from '../helpers/issuer.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { freePort } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { sharedCluster, sharedRedis, sharedSentinels } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { BESIDE, completed, load } from '../config/load-text.ts'
import { fileOf, sluice } from './run.ts'

const PREFIX = 'check-connect'
/** The commands that the gateway needs at every Redis. */
const GRANTED = GRANTS.split(' ').filter((grant) => !/select|client|cluster/.test(grant))
const ISSUER = 'https://identity.example.com/oidc'
/** An address without a server. */
const NOWHERE = 'http://127.0.0.1:1'

interface Settings {
  readonly store?: string
  readonly data?: string
  readonly tokens?: object
  readonly more?: string
}

const textOf = ({ store = 'memory', data = NOWHERE, tokens = {}, more = '' }: Settings) => `
store: ${store}
upstreams: { data: ${data.startsWith('{') ? data : `{ url: "${data}" }`} }
tokens: ${JSON.stringify({ issuer: ISSUER, audience: 'https://api.example.com', jwks: NOWHERE, ...tokens })}
limits: { requests: { per: [client], limit: 1000, window: 1m } }
${more || 'routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [requests] }]'}
`

/** Checks these settings, and returns the findings that begin with `what`. */
async function connect(settings: Settings, what = '') {
  const ended = await sluice(['check', '--connect', '--json', '--config', fileOf(textOf(settings))])
  expect(ended.stderr).toBe('')
  const { ok, checks } = JSON.parse(ended.stdout) as {
    ok: boolean
    checks: { state: string; what: string; message: string }[]
  }
  expect(ended.code).toBe(checks.some(({ state }) => state === 'failed') ? 1 : 0)
  expect(ok).toBe(ended.code === 0)
  return checks
    .filter((check) => check.what.startsWith(what))
    .map(({ state, what, message }) => `${state} ${what}: ${message}`)
}

const redis = (settings: object) =>
  JSON.stringify({ redis: settings, prefix: PREFIX }).replaceAll(/"(\w+)":/g, '$1: ')

describe('sluice check --connect', () => {
  it('prints a line for each server that answers, and exits with 0', async () => {
    const [{ url }, issuer, introspection, data] = await Promise.all([
      sharedRedis(),
      startIssuer({ algorithms: ['ES256', 'EdDSA'] }),
      startIntrospection(),
      startUpstream(),
    ])
    const text = textOf({
      store: redis({ url }),
      data: data.url,
      tokens: {
        issuer: issuer.issuer,
        jwks: undefined,
        introspection: { url: introspection.url, clientId: 'gateway', clientSecret: 'hunter2' },
      },
      more: `clients: [{ id: acme, requestObjectSigningAlg: ES256, jwksUri: "${issuer.jwksUri}" }]
par: { issuer: "${issuer.issuer}" }
routes:
  - { match: "POST /oidc/request", upstream: data, authenticate: par }
  - { match: "GET,POST /oidc/auth", upstream: data, authenticate: authorization }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }`,
    })
    const { code, stdout, stderr } = await sluice(['check', '--connect', '--config', fileOf(text)])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const shown = stdout.replaceAll(/ \d+ ms(?:, slow)? /g, '').replaceAll(/  +/g, '  ')
    expect(shown.split('\n')).toEqual([
      expect.stringMatching(/^ok  Redis at 127\.0\.0\.1:\d+  is Redis \d+\./),
      `ok  counting in Redis  counted a call and freed it, under the prefix "${PREFIX}"`,
      'ok  overrides in Redis  0, 0 of them without effect; 0 unreadable',
      `ok  upstream data at ${data.url}  connected`,
      `ok  keys of ${issuer.issuer}  2 keys, for ES256, EdDSA`,
      `ok  introspection at ${introspection.url}  responds to the gateway`,
      'ok  keys of the client acme  2 keys, for ES256',
      '',
    ])
    expect(introspection.asked[0]!.authorization).toMatch(/^Basic /)
    const { command } = await sharedRedis()
    expect(await command('KEYS', `${PREFIX}:{~check*`)).toEqual([])
  })

  it('tries no connection if the configuration is wrong', async () => {
    const file = fileOf(textOf({ store: 'disk' }))
    expect(await sluice(['check', '--connect', '--config', file])).toMatchObject({ code: 78, stdout: '' })
  })

  it('reports an issuer without TLS', async () => {
    const [data, issuer] = await Promise.all([startUpstream(), startIssuer({ algorithms: ['ES256'] })])
    const jwks = issuer.jwksUri.replace('http:', 'https:')
    const text = textOf({ data: data.url, tokens: { jwks } })
    const { code, stdout } = await sluice(['check', '--connect', '--config', fileOf(text)])
    expect(code).toBe(1)
    expect(stdout).toContain(`${jwks} does not use TLS; write it with http://`)
  })

  it('prints the warnings of the configuration, which do not fail the check', async () => {
    const [data, issuer] = await Promise.all([startUpstream(), startIssuer({ algorithms: ['ES256'] })])
    const text = textOf({ data: data.url, tokens: { jwks: issuer.jwksUri } })
    const file = fileOf(`admin: { host: 0.0.0.0 }${text}`)
    const { code, stdout } = await sluice(['check', '--connect', '--config', file])
    expect(code, stdout).toBe(0)
    expect(stdout).toMatch(/^ok +store +\d+ ms +counts in the memory of this process/)
    expect(stdout).toMatch(/^warning +configuration +- +.*admin\.host: is reached from other machines/m)
  })

  it('counts the overrides, and warns of those without effect', async () => {
    const store = JSON.stringify({ redis: { url: (await sharedRedis()).url }, prefix: `${PREFIX}-set` })
    const { command } = await sharedRedis()
    const key = `${PREFIX}-set:{}:~overrides`
    await command('HSET', key, 'nonsense', 'x', 'version', '1')
    expect(await connect({ store }, 'overrides')).toEqual([
      'warning overrides in Redis: 0, 0 of them without effect; 1 unreadable',
    ])
    await command('DEL', key)
    const set = (name: string) =>
      command('HSET', key, `["bolt","${name}"]`, '{"limit":7,"setAt":1}', 'version', name)
    await set('requests')
    expect(await connect({ store }, 'overrides')).toEqual([
      'ok overrides in Redis: 1, 0 of them without effect; 0 unreadable',
    ])
    await set('gone')
    expect(await connect({ store }, 'overrides')).toEqual([
      'warning overrides in Redis: 2, 1 of them without effect; 0 unreadable',
    ])
  })

  it('tries each node of a cluster, and each sentinel', async () => {
    const [cluster, sentinels] = await Promise.all([sharedCluster(), sharedSentinels()])
    const found = await connect({ store: redis({ cluster: cluster.urls }) }, '')
    expect(found.filter((line) => line.startsWith('ok Redis at'))).toHaveLength(cluster.urls.length)
    expect(found).toContainEqual(expect.stringMatching(/^ok counting in Redis: /))
    const { urls, name } = sentinels
    const viaSentinels = await connect({ store: redis({ sentinels: urls, name }) }, '')
    expect(viaSentinels.filter((line) => line.startsWith('ok sentinel at'))).toHaveLength(urls.length)
    expect(viaSentinels).toContainEqual(expect.stringContaining('knows the master "main" at 127.0.0.1:'))
    expect(viaSentinels).toContainEqual(expect.stringMatching(/^ok counting in Redis: /))
    const guessed = { sentinels: urls, name, sentinelPassword: 'guess', sentinelUsername: 'watch' }
    expect(await connect({ store: redis(guessed) }, 'sentinel')).toEqual(
      urls.map(() => expect.stringMatching(/^failed .*correct store\.redis\.sentinelUsername and /)),
    )
    const unknown = await connect({ store: redis({ sentinels: urls, name: 'mine' }) }, 'sentinel')
    expect(unknown[0]).toMatch(/^failed .*the sentinels know no master of this store\.redis\.name/)
  })

  it('shows the reason of a Redis that cannot count', async () => {
    const server = await startRedis({ tcp: true })
    for (const [name, bad, good, reason] of [
      ['maxmemory', 1, 0, 'OOM command not allowed'],
      ['min-replicas-to-write', 1, 0, 'NOREPLICAS'],
    ] as const) {
      await server.command('CONFIG', 'SET', name, bad)
      const [found] = await connect({ store: redis({ url: server.url }) }, 'counting')
      expect(found).toContain(`failed counting in Redis: ${reason}`)
      await server.command('CONFIG', 'SET', name, good)
    }
    await server.close()
  })

  it('warns of a clock of Redis that differs from that of the machine', async () => {
    const store = redis({ url: (await sharedRedis()).url })
    const dateNow = Date.now.bind(Date)
    vi.spyOn(Date, 'now').mockImplementation(() => dateNow() - 7_200_000)
    const found = await connect({ store }, 'counting')
    vi.restoreAllMocks()
    expect(found).toEqual([expect.stringMatching(/^warning .*: The clock of Redis is 7[12]\d\d s ahead /)])
  })

  it('shows what a Redis says that closes new connections at once', async () => {
    const server = await startRedis({ tcp: true })
    const tls = await startRedis({ tcp: true, tls: true })
    for (const { command } of [server, tls]) await command('CONFIG', 'SET', 'maxclients', 1)
    expect(await connect({ store: redis({ url: server.url }) }, 'Redis')).toEqual([
      `failed Redis at 127.0.0.1:${server.port}: ERR max number of clients reached; raise its maxclients, or end other clients`,
    ])
    // Redis sends nothing before the handshake.
    expect(await connect({ store: redis({ url: tls.url }) }, 'Redis')).toEqual([
      expect.stringMatching(/^failed .*; it closes the connection: .*, or raise its maxclients$/),
    ])
    await Promise.all([server.close(), tls.close()])
    const guarded = await listenLocally(
      createPlainServer((socket) =>
        socket.on('error', () => {}).end('-DENIED Redis is running in protected mode because …\r\n'),
      ),
    )
    const url = `redis://127.0.0.1:${guarded.port}`
    expect(await connect({ store: redis({ url }) }, 'Redis')).toEqual([
      expect.stringMatching(
        /^failed .*: DENIED Redis is running in protected mode .*; set a password there, /,
      ),
    ])
  })

  it('fails for a replica, with which a gateway starts', async () => {
    const server = await startRedis({ tcp: true, args: ['--replicaof', '127.0.0.1', '1'] })
    expect(await connect({ store: redis({ url: server.url }) }, 'counting')).toEqual([
      expect.stringMatching(/^failed counting in Redis: store\.redis\.url is a replica; /),
    ])
    await server.close()
  })

  it('reports what is wrong with Redis', async () => {
    const [server, port] = await Promise.all([startRedis({ tcp: true, password: 'open' }), freePort()])
    const url = (user: string) => server.url.replace('//', `//${user}@`)
    expect(await connect({ store: redis({ url: `redis://127.0.0.1:${port}` }) }, '')).toContainEqual(
      expect.stringMatching(
        /^failed Redis at .*ECONNREFUSED.*; start Redis there, or correct store\.redis; for a single gateway, "store: memory" needs no Redis$/,
      ),
    )
    const http = await startUpstream()
    expect(await connect({ store: redis({ url: `redis://127.0.0.1:${http.port}` }) }, 'Redis')).toEqual([
      expect.stringMatching(
        /^failed Redis at .*: Unknown RESP type .*; start Redis there, or correct store\.redis$/,
      ),
    ])
    const wrong = await connect({ store: redis({ url: url(':guess') }) }, 'Redis')
    expect(wrong).toEqual([expect.stringMatching(/refuses the user name or password; correct/)])
    expect(wrong[0]).not.toContain('guess')
    await server.command(
      'ACL',
      'SETUSER',
      'half',
      'on',
      '>pass',
      `~${PREFIX}:*`,
      '+info',
      '+eval',
      '+evalsha',
    )
    expect(await connect({ store: redis({ url: url('half:pass') }) }, 'counting')).toEqual([
      expect.stringMatching(/^failed .*lacks permissions; grant it \+eval/),
    ])
    await server.command('CONFIG', 'SET', 'maxmemory', '100mb')
    await server.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    expect(await connect({ store: redis({ url: url(':open') }) }, 'counting')).toEqual([
      expect.stringMatching(/^warning .*set maxmemory-policy to noeviction/),
    ])
    await server.command('REPLICAOF', '127.0.0.1', '1')
    expect(await connect({ store: redis({ url: url(':open') }) }, 'counting')).toEqual([
      expect.stringMatching(/^failed .*store\.redis\.url is a replica/),
    ])
  })

  it('names the other scheme for a Redis with and without TLS', async () => {
    const server = await startRedis({ tcp: true })
    const tls = await startRedis({ tcp: true, tls: true })
    const plainly = await connect({ store: redis({ url: tls.url.replace('rediss', 'redis') }) }, 'Redis')
    expect(plainly).toEqual([expect.stringMatching(/^failed .*: write rediss:\/\/ if it expects TLS/)])
    const secretly = await connect({ store: redis({ url: server.url.replace('redis', 'rediss') }) }, 'Redis')
    expect(secretly).toEqual([
      expect.stringMatching(/^failed .*; write redis:\/\/ if it has no TLS at this port/),
    ])
    await Promise.all([server.close(), tls.close()])
  })

  it('names each command that Redis refuses to the user', async () => {
    const server = await startRedis({ tcp: true })
    for (const grant of GRANTED) {
      const user = grant.replace('+', 'without-')
      const grants = GRANTS.split(' ').filter((other) => other !== grant)
      await server.command('ACL', 'SETUSER', user, 'on', '>pass', `~${PREFIX}:*`, ...grants)
      const url = server.url.replace('//', `//${user}:pass@`)
      const failed = (await connect({ store: redis({ url }) })).filter((line) => line.startsWith('failed'))
      const named = new RegExp(
        `lacks permissions; grant it \\+eval .*\\(Cause: NOPERM .*\\b${grant.slice(1)}\\b`,
      )
      expect(failed, grant).toContainEqual(expect.stringMatching(named))
    }
  })

  it('reports which address of an upstream cannot be reached, or not by TLS', async () => {
    const [own, other] = [makeCertificate('localhost'), makeCertificate('localhost')]
    const url = `https://localhost:${(await listenLocally(createServer(own))).port}`
    const over = (ca: string) =>
      `{ urls: ["${url}", "https://127.0.0.1:1"], tls: { ca: "${fileOf(ca, 'pem')}" } }`
    expect(await connect({ data: over(own.cert) }, 'upstream')).toEqual([
      `ok upstream data at ${url}: connected by TLS`,
      expect.stringMatching(
        /^failed upstream data at https:\/\/127\.0\.0\.1:1: .*ECONNREFUSED.*; start it, or correct upstreams\.data, its tls, or write http:\/\/$/,
      ),
    ])
    expect((await connect({ data: over(other.cert) }, 'upstream'))[0]).toMatch(
      /^failed .*self.signed certificate/,
    )
  })

  it('reports issuers and clients without usable keys', async () => {
    const issuer = await startIssuer({ algorithms: ['ES256'] })
    const keys = (tokens: object) => connect({ tokens }, 'keys of http')
    expect(await keys({ jwks: `${issuer.issuer}/cert` })).toEqual([
      `failed keys of ${ISSUER}: ${issuer.issuer}/cert answered 404; correct tokens.issuer, or tokens.jwks`,
    ])
    expect(await keys({ issuer: `${issuer.issuer}/x`, jwks: undefined })).toEqual([
      expect.stringMatching(/openid-configuration answered 404; correct tokens\.issuer, or tokens\.jwks$/),
    ])
    expect(await keys({ jwks: issuer.jwksUri, algorithms: ['PS256'] })).toEqual([
      `failed keys of ${ISSUER}: 1 key, none of them for PS256`,
    ])
    issuer.jwks = { keys: [] }
    expect(await keys({ jwks: issuer.jwksUri })).toEqual([
      expect.stringMatching(/^failed .*holds no key that could verify a token/),
    ])
    const more = `clients: [{ id: acme, authentication: private_key_jwt, jwksUri: "${issuer.jwksUri}" }]
par: { issuer: "${ISSUER}" }
routes: [{ match: "POST /oidc/request", upstream: data, authenticate: par }]`
    expect(await connect({ more }, 'keys of the client')).toEqual([
      expect.stringMatching(/^failed keys of the client acme: .*holds no key.*; correct its jwksUri$/),
    ])
  })

  it('reports an introspection endpoint that does not accept the gateway', async () => {
    const server = await startIntrospection()
    const introspection = { url: server.url, clientId: 'gateway', clientSecret: 'hunter2' }
    const ask = () => connect({ tokens: { introspection } }, 'introspection')
    server.answer = (response) => void response.writeHead(401).end()
    const [refused] = await ask()
    expect(refused).toMatch(
      /^failed .*answered 401: it refused the gateway's clientId and clientSecret; correct/,
    )
    expect(refused).not.toContain('hunter2')
    server.answer = { active: true, client_id: 'acme', aud: 'https://api.example.com' }
    expect((await ask())[0]).toMatch(
      /^failed .*reports a made-up token as active; correct the url of the introspection$/,
    )
  })

  it('prints how long the certificates of each file are valid', async () => {
    const { config } = await load(
      completed(
        [
          'listen: { tls: { cert: cert.pem, key: key.pem } }',
          'upstreams: { data: { url: https://a, tls: { cert: cert.pem, key: key.pem } } }',
          'store: { redis: { url: redis://r, tls: { ca: chain.pem } } }',
        ].join('\n'),
      ),
      {},
      [],
      BESIDE,
    )
    const after = (days: number) =>
      certificateFindings(config, Date.now() + days * 86_400_000).map(
        ({ state, what, message }) => `${state} ${what}: ${message.replace(/\d{4}-\S+Z/, 'THEN')}`,
      )
    // The certificates are valid from yesterday until 30 days from now.
    const [soon, over] = ['is valid until THEN; renew it', 'expired at THEN; renew it']
    expect(after(0)[0]).toBe('ok certificate listen.tls.cert: is valid until THEN')
    expect(after(20)).toEqual([
      `warning certificate listen.tls.cert: ${soon}`,
      `warning certificate upstreams.data.tls.cert: ${soon}`,
      `warning certificate store.redis.tls.ca: ${soon}`,
    ])
    expect(after(31)).toEqual([
      `failed certificate listen.tls.cert: ${over}`,
      `failed certificate upstreams.data.tls.cert: ${over}`,
      `warning certificate store.redis.tls.ca: ${over}`,
    ])
    expect(after(-2)[0]).toBe('failed certificate listen.tls.cert: is valid only from THEN')
  })

  it('advises http:// for an upstream without TLS, without the message of OpenSSL', async () => {
    const data = await startUpstream()
    const [finding] = await connect(
      { data: data.url.replace('http:', 'https:'), store: 'memory' },
      'upstream',
    )
    expect(finding).toMatch(
      /^failed upstream data at https:\/\/127\.0\.0\.1:\d+: wrong version number; start it, .* or write http:\/\/$/,
    )
  })

  it('reports an expired certificate once', async () => {
    const { cert, key } = makeCertificate('gateway', -3_600_000)
    const tls = `listen: { tls: { cert: "${fileOf(cert, 'pem')}", key: "${fileOf(key, 'pem')}" } }`
    const file = fileOf(`${tls}${textOf({})}`)
    const { code, stdout } = await sluice(['check', '--connect', '--config', file])
    expect(code).toBe(1)
    expect(stdout.match(/.*expired.*/g)).toEqual([
      expect.stringMatching(/^failed +certificate listen\.tls\.cert +- +expired at /),
    ])
  })
})
