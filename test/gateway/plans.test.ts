import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { sluice as command } from '../commands/run.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, dataRoute, startLogging, token, TOKENS, written, yaml } from '../helpers/gateway.ts'
import { serving } from '../helpers/process.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** The rest of `scenarios/plans.yaml`: commands, two gateways and the log. */

const data = await startUpstream()
const redis = await sharedRedis()

const LIMITS = { requests: { per: ['client'], limit: 3, window: '1h' } }

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

it('an unknown plan leaves the limit of the file, with one warning for each value, and at most 100', async () => {
  const gateway = await startLogging({
    data: data.url,
    limits: LIMITS,
    tokens: { ...TOKENS, planClaim: 'plan' },
    routes: [dataRoute('/*', ['requests'])],
    more: { plans: { pro: { requests: 5 } } },
  })
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
