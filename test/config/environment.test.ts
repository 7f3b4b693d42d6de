import { describe, expect, it } from 'vitest'
import { OVERRIDES } from '../../src/commands/flags.ts'
import { overridesOf } from '../../src/commands/configuration.ts'
import { completed, load, mistakesIn } from './load-text.ts'

describe('the environment', () => {
  it('replaces entire values, typed like plain YAML, and parts of texts', async () => {
    const text = completed(
      'listen: { port: "${PORT}", host: ${HOST} }'.replace('${HOST}', "'127.0.0.${LAST}'"),
    )
    const { config } = await load(text, { PORT: '8081', LAST: '7' })
    expect(config.listen).toMatchObject({ port: 8081, host: '127.0.0.7' })
  })

  it('the environment is a text if a text is required', async () => {
    const tokens =
      'tokens: { issuer: https://a.example.com, audience: "${AUD}", realm: "${AUD}", clientClaim: "${YES}" }'
    const { config } = await load(completed(tokens), { AUD: '007', YES: 'true' })
    expect(config.tokens[0]).toMatchObject({ audience: ['007'], realm: '007', clientClaim: 'true' })
  })

  it('the environment is a number or true if the setting requires it, like a text in quotes', async () => {
    const text = completed(
      'listen: { port: "80${PORT}" }\nadmin: { port: "7" }\nlimits: { a: { per: [ip], limit: "${N}", window: 1s, shadow: "${YES}" } }\nroutes: [{ match: /, upstream: data, authenticate: bearer }]',
    )
    const { config } = await load(text, { PORT: '80', N: '1e2', YES: 'True' })
    expect([config.listen.port, config.admin.port]).toEqual([8080, 7])
    expect(config.limits).toMatchObject([{ limit: 100, shadow: true }])
  })

  it('the environment is replaced by the default if it is unset or empty', async () => {
    const text = completed(
      'listen: { port: "${A:-1}" }\nadmin: { port: "${B:-2}" }\nlog: { level: "${C:-warn}" }',
    )
    const { config } = await load(text, { B: '', C: 'debug' })
    expect([config.listen.port, config.admin.port, config.log.level]).toEqual([1, 2, 'debug'])
  })

  it('gives lists of addresses and hosts several items, separated by commas', async () => {
    const text = completed(
      [
        'listen: { trustedProxies: ["${PODS}", 192.0.2.1], hosts: ["${HOSTS}"] }',
        'store: { redis: { cluster: ["${NODES}"] } }',
        'upstreams: { data: { urls: ["${DATA}"] } }',
      ].join('\n'),
    )
    const env = {
      PODS: '10.0.0.0/8, fd00::/8',
      HOSTS: 'a.example,B.example',
      NODES: 'redis://:a,b@r1:6379, redis://:a,b@r2:6379',
      DATA: 'http://d1/a,b,http://d2/a,b',
    }
    const { config } = await load(text, env)
    expect(config.listen).toMatchObject({
      trustedProxies: ['10.0.0.0/8', 'fd00::/8', '192.0.2.1/32'],
      hosts: ['a.example', 'b.example'],
    })
    expect(config.store).toMatchObject({ redis: { topology: { cluster: env.NODES.split(', ') } } })
    expect(config.upstreams[0]).toMatchObject({ origins: ['http://d1', 'http://d2'], path: '/a,b' })
    const none = await load(completed('listen: { trustedProxies: ["${PODS:-}"] }'))
    expect(none.config.listen.trustedProxies).toEqual([])
    expect(await mistakesIn(text, { ...env, PODS: '10.0.0.0/8,all' })).toEqual([
      expect.stringMatching(/^sluice\.yaml:1:\d+: listen\.trustedProxies\[1\]: must be a range/),
    ])
  })

  it('never changes the structure', async () => {
    const evil = 'x", limits: {}, y: "\n- z: &a *a'
    const text = completed('store: { redis: { url: redis://r }, prefix: "${EVIL}" }')
    expect(await mistakesIn(text, { EVIL: evil })).toEqual([
      expect.stringMatching(/^sluice\.yaml:1:45: store\.prefix: must be letters, digits/),
    ])
  })

  it('the environment is not replaced after two dollar signs', async () => {
    const { config } = await load(completed('tokens: { issuer: https://a.example.com, audience: "$${A}" }'))
    expect(config.tokens[0]?.audience).toEqual(['${A}'])
  })

  it('reports a single mistake for an unset variable', async () => {
    const text = completed('routes:\n  - { match: "/*", upstream: "${UP}", authenticate: "${HOW}" }')
    expect(await mistakesIn(text)).toHaveLength(2)
  })
})

describe('a secret', () => {
  const text = completed('store: { redis: { url: "file:./redis-url" } }')

  it('a secret is read from a file, without the final newline', async () => {
    const { config } = await load(text, {}, [], { 'redis-url': 'redis://:s3cret@redis:6379\n' })
    expect(config.store).toMatchObject({ redis: { topology: { url: 'redis://:s3cret@redis:6379' } } })
  })

  it('a secret must not be empty', async () => {
    expect(await mistakesIn(text, {}, [], { 'redis-url': '\n' })).toEqual([
      'sluice.yaml:1:24: store.redis.url: refers to redis-url, which is empty',
    ])
  })

  it.each([
    'store: redis://u:hunter2@h',
    'store: { redis: redis://u:hunter2@h }',
    'store: { redis: [redis://u:hunter2@h] }',
    'store: { redis: { url: "redis://u:hunter2@h:x" } }',
    'store: { redis: { url: "amqp://u:hunter2@h" } }',
    'upstreams: { data: { url: "http://u:hunter2@h/x" } }',
    'tokens: { issuer: "https://u:hunter2@h", audience: a, jwks: "https://u:hunter2@h" }',
    'listen: { host: "http://u:hunter2@h" }',
    'listen: { hosts: ["u:hunter2@h:1"] }',
    'store: "u:hunter2@h"',
    'admin: hunter2',
    'admin: { token: *hunter2 }',
    'admin: { token: "p${hunter2-x}" }',
    'admin: { token: !hunter2 x }',
    'admin:\n  host: ::1\n  "token hunter2": x',
    'admin:\n  token: "x" hunter2',
    'admin:\n  token hunter2\n  port: 1',
    'admin:\n  host: ::1\n  token: |hunter2\n    x',
    'tokens: { issuer: "u:hunter2@h:1", audience: a }',
    'tokens: { issuer: "http://h/?apikey=hunter2", audience: a }',
    'routes: [{ match: "u:hunter2@h:1/x", upstream: "http://u:hunter2@h", authenticate: none }]',
  ])('a secret is not shown in the mistakes of %s', async (snippet) => {
    const mistakes = await mistakesIn(completed(snippet))
    expect(mistakes).not.toEqual([])
    expect(mistakes.join('\n')).not.toContain('hunter2')
  })
})

describe('flags', () => {
  it('override the file', async () => {
    const given = {
      host: '::1',
      port: '1',
      'admin-host': 'localhost',
      'admin-port': '2',
      redis: 'redis://other',
      'log-level': 'error',
      'log-format': 'pretty',
    }
    expect(Object.keys(OVERRIDES)).toEqual(expect.arrayContaining(Object.keys(given)))
    const { config } = await load(completed('listen: { port: 5, maxConnections: 7 }'), {}, overridesOf(given))
    expect(config).toMatchObject({
      listen: { host: '::1', port: 1, maxConnections: 7 },
      admin: { host: 'localhost', port: 2 },
      log: { level: 'error', format: 'pretty' },
      store: { redis: { topology: { url: 'redis://other' } }, prefix: 'sluice', timeoutMs: 100 },
    })
  })

  it('keep the rest of the store that they change, or replace it with memory', async () => {
    const text = completed('store: { redis: { url: redis://a }, prefix: mine }')
    expect((await load(text, {}, overridesOf({ redis: '/run/redis.sock' }))).config.store).toEqual({
      redis: { topology: { url: '/run/redis.sock' } },
      prefix: 'mine',
      timeoutMs: 100,
      onOutage: 'local',
      overrides: 'optional',
    })
    expect((await load(text, {}, overridesOf({ store: 'memory' }))).config.store).toBe('memory')
  })

  it.each(['redis://b', 'redis://v:q@b', 'rediss://b:1/2', '/run/redis.sock'])(
    'replace all addresses, credentials and TLS settings of Redis by %s, and keep the rest of the store',
    async (url) => {
      for (const place of [
        'url: "rediss://u:p@a"',
        'url: "file:no-such-file"',
        'cluster: [redis://a]',
        'sentinels: [redis://a], name: main, sentinelPassword: s',
      ]) {
        const redis = `${place}, username: u, password: p, tls: true`
        const text = completed(`store: { redis: { ${redis} }, prefix: mine }`)
        const { config } = await load(text, {}, overridesOf({ redis: url }))
        expect(config.store).toMatchObject({ prefix: 'mine' })
        expect(config.store).toHaveProperty('redis', { topology: { url } })
      }
    },
  )

  it('replace invalid values of the file', async () => {
    expect(await mistakesIn(completed('listen: { port: x }'), {}, overridesOf({ port: '1' }))).toEqual([])
    expect(await mistakesIn(completed('listen:'), {}, overridesOf({ port: '1' }))).toEqual([])
    const unset = completed('listen: { port: "${UNSET}" }')
    expect(await mistakesIn(unset, {}, overridesOf({ port: '1' }))).toEqual([])
  })

  it('flags are named in mistakes', async () => {
    const given = {
      port: 'http',
      'admin-port': '70000',
      redis: 'redis',
      'log-level': 'loud',
      store: 'redis://:s3cret@r',
    }
    const { store, ...flags } = given
    expect(await mistakesIn(completed(''), {}, overridesOf(flags))).toEqual([
      '--port: must be a port from 0 to 65535',
      '--admin-port: must be a port from 0 to 65535',
      '--log-level: must be fatal, error, warn, info, debug, trace or silent',
      '--redis: must be redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock',
    ])
    expect(await mistakesIn(completed(''), {}, overridesOf({ store }))).toEqual([
      '--store: must be "memory" or a mapping with "redis", such as { redis: { url: "redis://host:6379" } }',
    ])
    expect(await mistakesIn(completed(''), {}, overridesOf({ port: '9090' }))).toEqual([
      '--port: is 9090 for both "admin" and "listen"; give each its own port',
    ])
  })

  it('flags are named in warnings', async () => {
    const { config } = await load(completed(''), {}, overridesOf({ 'admin-host': '::' }))
    expect(config.warnings.map(({ where }) => where)).toEqual(['--admin-host'])
  })
})
