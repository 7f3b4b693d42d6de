import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { sluice as command } from '../commands/run.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, startGateway, startLogging, token, TOKENS, written, yaml } from '../helpers/gateway.ts'
import { serving } from '../helpers/process.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const data = await startUpstream()
const redis = await sharedRedis()

const LIMITS = {
  requests: { per: ['client'], limit: 3, window: '1h' },
  exports: { per: ['client'], limit: 1, window: '1h' },
}

const RELOADED = 'configuration reloaded'

describe('a customer with API keys', () => {
  it('is created, refused, served, throttled, moved to another plan, rotated and revoked by the commands, at two gateways', async () => {
    const folder = createFolder()
    const [first, second] = [join(folder, 'first.yaml'), join(folder, 'second.yaml')]
    const keysFile = join(folder, 'keys.yaml')
    writeFileSync(keysFile, '[]\n', { mode: 0o600 })
    const settings = {
      data: data.url,
      tokens: {},
      store: { redis: { url: redis.url }, prefix: 'customer' },
      limits: LIMITS,
      routes: [{ match: '/*', upstream: 'data', authenticate: 'key', limits: ['requests'] }],
      more: {
        keys: { file: 'keys.yaml' },
        plans: { free: { requests: 2 }, pro: { requests: 5 } },
      },
    }
    const gateways = await Promise.all([first, second].map((file) => serving(written(yaml(settings), file))))
    let changes = 0
    /** Resolves when both have noticed the last change of their files. */
    const reloaded = () =>
      until('both gateways have reloaded', () =>
        gateways.every((one) => one.lines().filter(({ msg }) => msg === RELOADED).length === changes),
      )
    const admin = `http://127.0.0.1:${gateways[0]!.adminPort}`
    const sluice = async (...args: string[]) => {
      const ended = await command(args)
      expect([ended.code, args, ended.stderr.replaceAll(/Added .*|Using .*/g, '').trim()]).toEqual([
        0,
        args,
        '',
      ])
      return ended.stdout.trim()
    }
    const keys = (...args: string[]) => sluice('keys', ...args, '-c', first)
    const changeKeys = async (...args: string[]) => {
      const printed = await keys(...args)
      changes++
      await reloaded()
      return printed
    }
    let at = 0
    const statusOf = async (key: string) =>
      (await call(gateways[at++ % 2]!.port, { path: '/', headers: { 'X-Api-Key': key } })).status
    const statusesOf = async (key: string, calls: number) => {
      const statuses = []
      for (let i = 0; i < calls; i++) statuses.push(await statusOf(key))
      return statuses
    }

    // Refused before the key is in the file, as a key that was never made.
    expect(await statusesOf(`slk_${'a'.repeat(39)}`, 2)).toEqual([401, 401])
    const key = await changeKeys('create', 'acme', '--plan', 'free')
    // Two calls of the plan, at both gateways together.
    expect(await statusesOf(key, 3)).toEqual([200, 200, 429])
    const shown = await sluice('limits', 'show', 'acme', '--admin', admin)
    expect(shown).toMatch(/^customer:\{acme\}:requests +requests +2 +2 +0 /m)
    expect(shown).toContain('The plan of client:acme is free.')
    const explained = await sluice('explain', 'GET /', '--client', 'acme', '--admin', admin)
    expect(explained).toContain('the plan free')
    // Upgraded: the calls made still count.
    await changeKeys('set', 'acme', '--plan', 'pro')
    await until('the cached refusal has ended', async () => (await statusOf(key)) === 200)
    // Rotated: two keys at a time, which count together.
    const next = await changeKeys('create', 'acme')
    expect([await statusOf(next), await statusOf(key)]).toEqual([200, 200])
    expect(await statusOf(next)).toBe(429)
    await changeKeys('revoke', 'acme', '--key', (await keys('list', 'acme')).split('\n')[1]!.split(/ +/)[1]!)
    expect(await statusesOf(key, 2)).toEqual([401, 401])
    // An override replaces the plan.
    await sluice('limits', 'set', 'acme', 'requests=9', '--admin', admin)
    await until('it is in force', async () => (await statusOf(next)) === 200)
    await sluice('limits', 'set', 'acme', 'requests=default', '--admin', admin)
    await changeKeys('revoke', 'acme')
    expect(await statusesOf(next, 2)).toEqual([401, 401])

    const visible =
      gateways.map(({ stdout }) => stdout()).join('') +
      JSON.stringify(await redis.command('KEYS', 'customer:*'))
    for (const secret of [key, next]) expect(visible).not.toContain(secret)
  })
})

describe('a plan', () => {
  const settings = {
    data: data.url,
    limits: {
      ...LIMITS,
      changed: {
        per: ['client'],
        limit: 7,
        window: '1h',
        changes: [{ announced: '2020-01-01T00:00:00Z', from: '2020-01-02T00:00:00Z', limit: 8 }],
      },
    },
    tokens: { ...TOKENS, planClaim: 'plan' },
    routes: [
      { match: 'GET /limits', respond: 'limits', authenticate: 'bearer' },
      { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests', 'exports', 'changed'] },
    ],
    more: {
      plans: { free: { requests: 2 }, pro: { requests: 5, changed: 50 } },
      clients: [
        { id: 'listed', plan: 'pro' },
        { id: 'special', plan: 'pro', limits: { requests: { limit: 11 } } },
      ],
    },
  }

  it('is that of the client in the file, else that of the claim; after an own limit, before changes', async () => {
    const { port } = await startGateway(settings)
    const limitsOf = async (client: string, claims = {}) => {
      const { json } = await call(port, { path: '/limits', token: await token(client, claims) })
      const numbers = json.limits.map(({ limit }: { limit: number }) => limit)
      return [json.plan, ...numbers]
    }
    expect(await limitsOf('plain')).toEqual([undefined, 3, 1, 8])
    expect(await limitsOf('claiming', { plan: 'free' })).toEqual(['free', 2, 1, 8])
    expect(await limitsOf('moved', { plan: 'pro' })).toEqual(['pro', 5, 1, 50])
    expect(await limitsOf('listed', { plan: 'free' })).toEqual(['pro', 5, 1, 50])
    expect(await limitsOf('special')).toEqual(['pro', 11, 1, 50])
    expect(
      (await call(port, { path: '/', token: await token('x', { plan: 'pro' }) })).headers[
        'x-ratelimit-limit'
      ],
    ).toBe('5')
  })

  it('that is unknown leaves the limit of the file, with one warning for each value, and at most 100', async () => {
    const gateway = await startLogging(settings)
    const limitOf = async (plan: unknown) =>
      (await call(gateway.port, { path: '/', token: await token(crypto.randomUUID(), { plan }) })).headers[
        'x-ratelimit-limit'
      ]
    for (const plan of ['gold', 'gold', 'Pro', '', 7, ['pro'], { pro: 1 }, '__proto__', 'p'.repeat(1000)])
      expect(await limitOf(plan)).toBe('3')
    expect(await limitOf(null)).toBe('3')
    const warned = () =>
      gateway.lines().flatMap(({ msg, plan }) => (String(msg).startsWith('plan of a token') ? [plan] : []))
    await until('each value is warned of', () => warned().length === 8)
    expect(warned()).toEqual(['gold', 'Pro', '', '7', '["pro"]', '{"pro":1}', '__proto__', 'p'.repeat(65)])
    for (let i = 0; i < 120; i++) await limitOf(`plan-${i}`)
    await until('they are logged', () => warned().includes('plan-91'))
    expect(warned().length).toBe(100)
  })

  it('is shown by explain for the claims of a question', async () => {
    const { adminPort } = await startGateway(settings)
    const ask = async (query: string) =>
      (await call(adminPort, { path: `/explain?request=GET%20/&${query}` })).json
    const claims = encodeURIComponent(JSON.stringify({ plan: 'free' }))
    expect(await ask(`client=acme&claims=${claims}`)).toMatchObject({
      client: { plan: 'free', listed: false },
      limits: [
        { name: 'requests', limit: 2, decidedBy: 'plan', because: 'the plan free' },
        { name: 'exports', limit: 1, decidedBy: 'limit' },
        { name: 'changed', limit: 8, decidedBy: 'change' },
      ],
    })
    expect((await ask('client=listed')).limits[2]).toMatchObject({ limit: 50, decidedBy: 'plan' })
  })

  it('is shown in the overview, of the file and of the latest token', async () => {
    const { port, adminPort } = await startGateway(settings)
    for (const [client, claims] of [
      ['listed', {}],
      ['claiming', { plan: 'free' }],
      ['plain', { plan: 'gold' }],
    ] as const)
      await call(port, { path: '/', token: await token(client, claims) })
    const plans = async () => {
      const { json } = await call(adminPort, { path: '/overview' })
      return Object.fromEntries(
        json.activity.callers.map(({ client, plan }: Record<string, string>) => [client, plan]),
      )
    }
    await until('all are counted', async () => Object.keys(await plans()).length === 3)
    expect(await plans()).toEqual({ listed: 'pro', claiming: 'free', plain: null })
  })
})
