import { hash } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { sluice } from '../commands/run.ts'
import { closeLater } from '../helpers/closing.ts'
import {
  call,
  type Call,
  type LoggingGateway,
  type Settings,
  startGateway,
  startLogging,
  token,
  yaml,
} from '../helpers/gateway.ts'
import { deadUrl } from '../helpers/ports.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { startRedis } from '../helpers/redis.ts'
import { FULL, quickly } from '../helpers/runs.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** The callers that limits count, by any word, as operators see and help them. */

const LIMITS = {
  'by-key': { per: ['header:x-api-key'], limit: 2, window: '10m' },
  'by-ip': { per: ['ip'], limit: 2, window: '10m' },
  'by-user': { per: ['user'], limit: 2, window: '10m' },
  'by-claim': { per: ['claim:consent_id'], limit: 2, window: '10m' },
  'by-token': { per: ['token'], limit: 2, window: '10m' },
  'by-client': { per: ['client'], limit: 2, window: '10m' },
  'by-both': { per: ['client', 'header:x-api-key'], limit: 2, window: '10m' },
  'by-item': { per: ['header:x-api-key', 'item'], limit: 2, window: '10m' },
}
const ROUTES = [
  { match: '/key', upstream: 'data', authenticate: 'none', limits: ['by-key'] },
  { match: '/ip', upstream: 'data', authenticate: 'none', limits: ['by-ip'] },
  { match: '/items/:item', upstream: 'data', authenticate: 'none', limits: ['by-item'] },
  { match: '/user', upstream: 'data', authenticate: 'bearer', limits: ['by-user'] },
  { match: '/claim', upstream: 'data', authenticate: 'bearer', limits: ['by-claim'] },
  { match: '/token', upstream: 'data', authenticate: 'bearer', limits: ['by-token'] },
  { match: '/client', upstream: 'data', authenticate: 'bearer', limits: ['by-client'] },
  { match: '/both', upstream: 'data', authenticate: 'bearer', limits: ['by-both'] },
]

/** The same limits, with 4 calls in place of 2. */
const FOUR = Object.fromEntries(Object.entries(LIMITS).map(([name, limit]) => [name, { ...limit, limit: 4 }]))

/** Returns a secret value as it may be shown. */
const shortOf = (value: string): string => `${value.slice(0, 4)}…${hash('sha256', value).slice(0, 8)}`

const KEY = 'AbC1-this-is-a-Secret'
const FOLDED = KEY.toLowerCase()
const SHORT = `header:x-api-key=${shortOf(FOLDED)}`
const TOKEN = await token('acme', { sub: 'jo', consent_id: 'c-17' })
/** A JWT counts without its signature: several may be valid. */
const SIGNED = TOKEN.slice(0, TOKEN.lastIndexOf('.'))
const HASH = hash('sha256', SIGNED, 'base64url')

interface Case {
  readonly of: string
  /** The caller as an operator writes it, as arguments. */
  readonly written: readonly string[]
  readonly shown: string
  /** The key, as the command shows it. */
  readonly key: string
  readonly limit: string
  readonly sends: Call
  /** The flags of `explain` that name the caller; none if the request must be sent. */
  readonly explain?: readonly string[]
}

const CASES: readonly Case[] = [
  {
    ...{ of: 'a header field', written: [`header:x-api-key=${KEY}`], shown: SHORT, limit: 'by-key' },
    key: `sluice:{${shortOf(FOLDED)}}:by-key`,
    sends: { path: '/key', headers: { 'X-Api-Key': KEY } },
    explain: ['--headers', JSON.stringify({ 'x-api-key': KEY })],
  },
  {
    ...{ of: 'an address', written: ['ip:127.0.0.1'], shown: 'ip:127.0.0.1', limit: 'by-ip' },
    ...{ key: 'sluice:{127.0.0.1}:by-ip', sends: { path: '/ip' }, explain: ['--ip', '127.0.0.1'] },
  },
  {
    ...{ of: 'a user', written: ['user:jo'], shown: 'user:jo', limit: 'by-user', key: 'sluice:{jo}:by-user' },
    ...{ sends: { path: '/user', token: TOKEN }, explain: ['--user', 'jo'] },
  },
  {
    ...{ of: 'a claim', written: ['claim:consent_id=c-17'], shown: 'claim:consent_id=c-17' },
    ...{ limit: 'by-claim', key: 'sluice:{c-17}:by-claim', sends: { path: '/claim', token: TOKEN } },
    explain: ['--claims', '{"consent_id":"c-17"}'],
  },
  {
    ...{ of: 'a token', written: [`token:${HASH}`], shown: `token:${shortOf(HASH)}`, limit: 'by-token' },
    ...{ key: `sluice:{${shortOf(HASH)}}:by-token`, sends: { path: '/token', token: TOKEN } },
  },
  {
    ...{
      of: 'a token in hex',
      written: [`token:${hash('sha256', SIGNED)}`],
      shown: `token:${shortOf(HASH)}`,
    },
    ...{ key: `sluice:{${shortOf(HASH)}}:by-token`, limit: 'by-token' },
    sends: { path: '/token', token: TOKEN },
  },
  {
    ...{ of: 'a client', written: ['client:acme'], shown: 'client:acme', limit: 'by-client' },
    ...{ key: 'sluice:{acme}:by-client', sends: { path: '/client', token: TOKEN } },
    explain: ['--client', 'acme'],
  },
  {
    ...{ of: 'several parts', written: ['client:acme', `header:x-api-key=${KEY}`], limit: 'by-both' },
    ...{ shown: `client:acme ${SHORT}`, key: `sluice:{acme}:by-both:${shortOf(FOLDED)}` },
    sends: { path: '/both', token: TOKEN, headers: { 'X-Api-Key': KEY } },
    explain: ['--client', 'acme', '--headers', JSON.stringify({ 'x-api-key': KEY })],
  },
]
const SECRETS = [KEY, FOLDED, TOKEN, HASH, hash('sha256', SIGNED)]

const upstream = await startUpstream()
const redis = await startRedis()
beforeEach(() => redis.command('FLUSHALL'))

const settings = (store: object | 'memory', limits: object = LIMITS, routes = ROUTES) => ({
  data: upstream.url,
  store,
  limits,
  routes,
})
const redisStore = (more: object = {}) => ({ redis: { url: redis.url }, timeout: '5s', ...more })
const byTwoWorkers = (settings: Settings): Promise<LoggingGateway | ServingProcess> =>
  serving(yaml(settings), ['--workers', '2'])
/** Starts a gateway for counts in Redis: two workers, or in `npm test` one gateway in the process of the test. */
const sharing = quickly<typeof byTwoWorkers>(startLogging, byTwoWorkers)
/** Returns a function that runs a command at the admin listener of a gateway. */
const commands =
  (adminPort: number) =>
  (...args: string[]) =>
    sluice([...args, '--admin', `http://127.0.0.1:${adminPort}`])

function expectNoSecret(text: string): void {
  for (const secret of SECRETS) expect(text).not.toContain(secret)
}

describe.each([
  {
    where: 'in memory',
    store: () => 'memory' as const,
    start: startLogging,
    cases: CASES.filter((_, at) => FULL || at % 2 === 0),
  },
  // Two kinds, as only the store and the number of processes differ; without a part in common, as a worker
  // that sees the end of an override late drops the latest decisions of all callers with that part.
  {
    ...{ where: quickly('in Redis', 'in Redis by two workers'), store: redisStore, start: sharing },
    cases: CASES.filter(({ limit }) => ['by-claim', 'by-both'].includes(limit)),
  },
])('a caller that is counted $where', ({ store, start, cases }) => {
  let gateway: LoggingGateway | ServingProcess
  beforeAll(async () => {
    gateway = await start(settings(store()))
  })
  afterAll(() => ('close' in gateway ? gateway.close() : gateway.kill()))

  /** Sends a call on a connection of its own, which any worker may accept. */
  const send = ({ headers, ...rest }: Call) =>
    call(gateway.port, { ...rest, headers: { ...headers, Connection: 'close' } })

  it.each(cases)('by $of is shown, listed, explained, set and reset', async (one) => {
    const { written, shown, key, limit, sends, explain } = one
    const run = commands(gateway.adminPort)
    const statuses = [await send(sends), await send(sends), await send(sends)].map(({ status }) => status)
    expect(statuses).toEqual([200, 200, 429])

    const show = await run('limits', 'show', ...written)
    expect(show).toMatchObject({ code: 0, stderr: '' })
    const row = show.stdout.split('\n').find((line) => line.startsWith(`${key} `))
    expect(row?.split(/ {2,}/).slice(0, 5)).toEqual([key, limit, '2', '2', '0'])
    expect(JSON.parse((await run('limits', 'show', ...written, '--json')).stdout)).toMatchObject({
      ...{
        caller: shown,
        limits: [{ key, used: 2, mode: 'store', part: null }],
        settable: expect.arrayContaining([limit]) as unknown,
      },
    })

    // The refusals of a second are shown when it has passed.
    const escaped = shown.replaceAll('.', String.raw`\.`)
    const pattern = `^${escaped} .* by ${limit} .* ${limit} +2 +0 +1 by ${limit} +${sends.path}$`
    await until('its refusal is shown', async () => {
      const { activity } = (await call(gateway.adminPort, { path: '/overview' })).json
      const mine = activity.callers.find(({ caller }: { caller: string }) => caller === shown)
      return mine?.refusals > 0
    })
    const top = () => run('limits', 'top')
    await expect.poll(async () => (await top()).stdout, { timeout: 30_000 }).toMatch(new RegExp(pattern, 'm'))
    const logged = () => gateway.lines().filter(({ path, caller }) => path === sends.path && caller === shown)
    await until('its calls are logged', () => logged().length >= 3)

    const set = await run('limits', 'set', ...written, `${limit}=3`, '--until', '2h', '--note', 'INC-1')
    expect(set).toMatchObject({ code: 0, stderr: '' })
    expect(set.stdout).toContain(`Set "${limit}" of ${shown} to 3: an override`)
    let got = await send(sends)
    await until('each worker has it', async () => {
      got = got.headers['x-ratelimit-limit'] === '3' ? got : await send(sends)
      return got.status === 200
    })
    const override = new RegExp(`^${escaped} +${limit} +3 `, 'm')
    const overrides = await run('limits', 'overrides')
    expect(overrides.stdout).toMatch(override)
    const again = await run('limits', 'show', ...written)
    expect(again.stdout).toMatch(/ 3 +3 +0 .* live, override$/m)
    expect(again.stdout).toMatch(override)
    if (explain !== undefined) {
      const explained = await run('explain', `GET ${sends.path}`, ...explain)
      expect(explained.stdout).toMatch(new RegExp(`^${limit} +3 +3 .* an override, until `, 'm'))
      expectNoSecret(explained.stdout)
    }

    const removed = await run('limits', 'set', ...written, `${limit}=default`)
    expect(removed.stdout).toContain(
      `Set "${limit}" of ${shown} to 2: the limit of the file. It replaces 3: an override`,
    )
    expect(await run('limits', 'reset', ...written)).toMatchObject({
      ...{ code: 0, stdout: `Freed 1 key of ${shown}. Recorded as "loopback".\n` },
    })
    expect((await send(sends)).status).toBe(200)
    await run('limits', 'reset', ...written)
    const overview = (await call(gateway.adminPort, { path: '/overview' })).body
    expect(overview).toContain(JSON.stringify(shown))
    const outputs = [show, await top(), set, overrides, again, removed].map(({ stdout }) => stdout)
    for (const text of [...outputs, overview, gateway.stdout()]) expectNoSecret(text)
    for (const made of ['set', 'reset'])
      await until(`its ${made} is in the audit`, () =>
        gateway
          .lines()
          .some(({ msg, operation, caller }) => msg === 'audit' && operation === made && caller === shown),
      )
  })

  it.each(cases.filter(({ shown }) => shown.includes('…')))(
    'by $of of the last minute can be named as it is shown',
    async ({ shown, limit, sends }) => {
      const run = commands(gateway.adminPort)
      for (let i = 0; i < 3; i++) await send(sends)
      expect((await run('limits', 'show', shown)).stdout).toContain(` ${limit} `)
      expect(await run('limits', 'set', shown, `${limit}=9`)).toMatchObject({ code: 0, stderr: '' })
      await until('it is in force', async () => (await send(sends)).status === 200)
      expect(await run('limits', 'set', shown, `${limit}=default`)).toMatchObject({ code: 0 })
      expect((await run('limits', 'reset', shown)).stdout).toBe(
        `Freed 1 key of ${shown}. Recorded as "loopback".\n`,
      )
    },
  )

  it('is ambiguous by a short form that another caller has, too, and nothing happens to either', async () => {
    const run = commands(gateway.adminPort)
    const shown = `header:x-api-key=${shortOf('livet8e')}`
    expect(shortOf('live1la9')).toBe(shortOf('livet8e'))
    // Sockets are accepted by the workers in turn, each of which then knows one of the callers.
    for (const key of ['livet8e', 'live1la9', 'livet8e', 'live1la9'])
      await send({ path: '/key', headers: { 'X-Api-Key': key } })
    for (const action of [['show'], ['reset'], ['set', 'by-key=0']]) {
      const [name, ...more] = action
      const ended = await run('limits', name!, shown, ...more)
      expect(ended).toMatchObject({ code: 64, stdout: '' })
      expect(ended.stderr).toContain(`Several callers are shown as "${shown}"; give the whole value.`)
    }
    for (const key of ['livet8e', 'live1la9']) {
      const { limits } = JSON.parse((await run('limits', 'show', `header:x-api-key=${key}`, '--json')).stdout)
      const used = limits.map(({ name, used, limit }: Record<string, unknown>) => [name, used, limit])
      expect(used).toContainEqual(['by-key', 2, 2])
    }
  })

  it.each([
    ['and one of them has only an override', 'twinpez', 'twin166v', [['twinpez', '9']]],
    [
      'and both have an override',
      'pair9i3',
      'pair19b5',
      [
        ['pair9i3', '9'],
        ['pair19b5', '9'],
      ],
    ],
  ])('is ambiguous by a short form that two callers have %s', async (_, one, other, overrides) => {
    const run = commands(gateway.adminPort)
    const shown = `header:x-api-key=${shortOf(one)}`
    expect(shortOf(other)).toBe(shortOf(one))
    for (const [key, limit] of overrides)
      expect(await run('limits', 'set', `header:x-api-key=${key}`, `by-key=${limit}`)).toMatchObject({
        code: 0,
      })
    if (overrides.length < 2) await send({ path: '/key', headers: { 'X-Api-Key': other } })
    const ended = await run('limits', 'set', shown, 'by-key=default')
    expect(ended).toMatchObject({ code: 64, stdout: '' })
    expect(ended.stderr).toContain(`Several callers are shown as "${shown}"; give the whole value.`)
    for (const [key] of overrides) await run('limits', 'set', `header:x-api-key=${key}`, 'by-key=default')
  })

  it('is found under limits that count by further parts, and its override holds for all of them', async () => {
    const run = commands(gateway.adminPort)
    const at = (item: string): Call => ({ path: `/items/${item}`, headers: { 'X-Api-Key': KEY } })
    for (const item of ['a', 'a', 'a', 'b']) await send(at(item))
    const written = `header:x-api-key=${KEY}`
    const { limits } = JSON.parse((await run('limits', 'show', written, '--json')).stdout)
    expect(limits.map(({ key, used }: { key: string; used: number }) => [key, used])).toEqual([
      [`sluice:{${shortOf(FOLDED)}}:by-key`, 0],
      [`sluice:{${shortOf(FOLDED)}}:by-item:a`, 2],
      [`sluice:{${shortOf(FOLDED)}}:by-item:b`, 1],
    ])
    await run('limits', 'set', written, 'by-item=5')
    await until('it is in force', async () => (await send(at('a'))).headers['x-ratelimit-limit'] === '5')
    await until('for each', async () => (await send(at('b'))).headers['x-ratelimit-limit'] === '5')
    const explained = await run('explain', 'GET /items/c', '--headers', JSON.stringify({ 'x-api-key': KEY }))
    expect(explained.stdout).toMatch(/^by-item +5 +0 /m)
    await run('limits', 'set', written, 'by-item=default')
    expect((await run('limits', 'reset', written)).stdout).toBe(
      `Freed 2 keys of ${SHORT}. Recorded as "loopback".\n`,
    )
  })

  it('cannot be named by a short form that no call of the last minute has', async () => {
    const run = commands(gateway.adminPort)
    for (const action of [['show'], ['reset'], ['set', 'by-key=5']]) {
      const [name, ...more] = action
      const ended = await run('limits', name!, 'header:x-api-key=none…00000000', ...more)
      expect(ended).toMatchObject({ code: 64, stdout: '' })
      expect(ended.stderr).toContain('is shortened, and not known here; give the whole value.')
    }
  })
})

describe('a caller that no limit counts by', () => {
  const ONE = {
    keys: { per: ['header:x-api-key'], limit: 2, window: '10m' },
    ips: { per: ['ip'], limit: 9, window: '10m' },
  }
  const ROUTE = [{ match: '/*', upstream: 'data', authenticate: 'none', limits: ['keys', 'ips'] }]

  it.each(['memory', 'Redis'])(
    'a caller that no limit counts by is a mistake that names what the limits count by, in %s',
    async (where) => {
      const gateway = await (where === 'memory' ? startLogging : sharing)(
        settings(where === 'memory' ? 'memory' : redisStore(), ONE, ROUTE),
      )
      const run = commands(gateway.adminPort)
      const problem = 'by client. The limits count by header:x-api-key=VALUE, ip:VALUE.'
      for (const [action, ...more] of [['show'], ['reset'], ['set', 'keys=5']] as const) {
        const ended = await run('limits', action, 'acme', ...more)
        expect(ended).toMatchObject({ code: 64, stdout: '' })
        expect(ended.stderr).toContain(`No limit counts "client:acme", ${problem}`)
      }
      const headers = { 'Content-Type': 'application/json' }
      for (const more of [
        {},
        { method: 'DELETE' },
        { method: 'PATCH', headers, body: '{"set":{"keys":5}}' },
      ]) {
        const got = await call(gateway.adminPort, { path: '/limits/acme', ...more })
        expect(got).toMatchObject({ status: 404 })
        expect(got.json.detail).toContain(problem)
      }
      const several = await run('limits', 'show', 'user:jo', 'ip:127.0.0.1')
      expect(several.stderr).toContain('No limit counts "user:jo ip:127.0.0.1", by user and ip.')
      const later = await run('limits', 'set', 'header:x-api-key=abc123', 'ips=5')
      expect(later).toMatchObject({ code: 64 })
      expect(later.stderr).toContain(
        `There is no limit "ips" that counts by "header:x-api-key=abc1…6ca13d52" first; those that can be set are: keys.`,
      )
      expect(gateway.lines().filter(({ msg }) => msg === 'audit')).toEqual([])
    },
  )
})

describe('the table of callers', () => {
  it('keeps its callers while a crowd with made-up keys is refused by the limit of its address', async () => {
    const limits = {
      keys: { per: ['header:x-api-key'], limit: 100, window: '10m' },
      ips: { per: ['ip'], limit: 40, window: '10m' },
    }
    const routes = [{ match: '/*', upstream: 'data', authenticate: 'none', limits: ['keys', 'ips'] }]
    const gateway = await startGateway({
      data: upstream.url,
      limits,
      routes,
      trustedProxies: ['127.0.0.0/8'],
    })
    const send = (key: string, ip: string) =>
      call(gateway.port, { path: '/', headers: { 'X-Api-Key': key, 'X-Forwarded-For': ip } })
    for (let i = 0; i < 20; i++) for (const n of [1, 2, 3]) await send(`customer-${n}`, `192.0.2.${n}`)
    const made = Array.from({ length: 1000 }, (_, i) => send(`made-up-${i}`, '198.51.100.1'))
    const statuses = (await Promise.all(made)).map(({ status }) => status)
    expect(statuses.filter((status) => status === 429).length).toBe(960)
    const shown = async () => {
      const { activity } = (await call(gateway.adminPort, { path: '/overview' })).json
      return activity.callers.map(({ caller }: { caller: string }) => caller) as string[]
    }
    const customers = [1, 2, 3].flatMap((n) => [
      `header:x-api-key=${shortOf(`customer-${n}`)}`,
      `ip:192.0.2.${n}`,
    ])
    // The calls of a second are shown when it has passed.
    await until('all calls are counted', async () => {
      const top = await commands(gateway.adminPort)('limits', 'top')
      return /^ip:198\.51\.100\.1 +\S+Z by ips .* 960 by ips /m.test(top.stdout)
    })
    expect(await shown()).toEqual(expect.arrayContaining(customers))
  })
})

describe('while Redis is out of reach', () => {
  it.each([
    ['a client', '/client', 'acme', 'by-client', ['--client', 'acme']],
    ['a header field', '/key', `header:x-api-key=${KEY}`, 'by-key', ['--headers', `{"x-api-key":"${KEY}"}`]],
  ] as const)(
    'show and explain print this gateway’s part and calls of %s',
    async (_, path, written, limit, flags) => {
      const four = settings(redisStore({ timeout: '100ms' }), FOUR)
      const [one, two] = [await startGateway(four), await startGateway(four)]
      closeLater(() => redis.kill().then(redis.start))
      const run = commands(one.adminPort)
      const sends = { path, token: TOKEN, headers: { 'X-Api-Key': KEY } }
      await until('both count', async () => {
        const { json } = await call(one.adminPort, { path: '/overview' })
        return json.status.gateways === 2
      })
      await redis.kill()
      const statuses: number[] = []
      await until('it is refused', async () => {
        statuses.push((await call(one.port, sends)).status)
        return statuses.at(-1) === 429
      })
      expect(statuses).toEqual([200, 200, 429])
      const { headers, json } = await call(one.port, sends)
      expect(headers).toMatchObject({ 'x-ratelimit-limit': '4', 'x-ratelimit-remaining': '0' })
      expect(json.detail).toContain(
        `The limit "${limit}" allows 4 calls in 10 minutes. While the shared counters do not answer, this gateway admits 2 of the 4.`,
      )

      const show = await run('limits', 'show', written)
      expect(show).toMatchObject({ code: 0, stderr: '' })
      expect(show.stdout).toMatch(new RegExp(`:?${limit}\\S* +${limit} +4, here 2 +2 +0 `, 'm'))
      expect(show.stdout).toContain(
        'Without Redis, this gateway counts what Redis last reported and its own calls, and admits its part of each limit.',
      )
      const { limits } = JSON.parse((await run('limits', 'show', written, '--json')).stdout)
      expect(limits).toMatchObject([{ limit: 4, part: 2, used: 2, remaining: 0, mode: 'local' }])
      const explained = await run('explain', `GET ${path}`, ...flags)
      expect(explained.stdout).toMatch(
        new RegExp(
          `^${limit} +4 +2 .* Redis is unavailable: this gateway admits 2; the limit of the file$`,
          'm',
        ),
      )
      expect(explained.stdout).toMatch(
        new RegExp(
          `^refused +now +by the limit "${limit}": 2 of 4 calls are used; without Redis, this gateway admits 2$`,
          'm',
        ),
      )
      const other = JSON.parse((await commands(two.adminPort)('limits', 'show', written, '--json')).stdout)
      expect(other.limits).toMatchObject([{ limit: 4, part: 2, used: 0, remaining: 2, mode: 'local' }])
      expectNoSecret(show.stdout + explained.stdout)

      const refused = async (): Promise<number> => {
        const { json } = await call(one.adminPort, { path: '/overview' })
        return json.activity.callers.filter(({ refusedNow }: { refusedNow: object | null }) => refusedNow)
          .length
      }
      await until('it is shown as refused', async () => (await refused()) === 1)
      await redis.start()
      await until(
        'no caller is shown as refused when Redis counts again',
        async () => (await refused()) === 0,
      )
    },
  )

  it.each([
    ['allow', 200, 'every call is admitted, and none is counted.'],
    ['deny', 503, 'every call is refused with 503.'],
  ] as const)('show says what callers get under onOutage: %s', async (onOutage, status, expected) => {
    const store = { redis: { url: (await deadUrl()).replace('http', 'redis') }, onOutage }
    const gateway = await startGateway(settings(store, FOUR))
    const send = () => call(gateway.port, { path: '/client', token: TOKEN })
    await until('the outage', async () => (await send()).status === status)
    const { stdout } = await commands(gateway.adminPort)('limits', 'show', 'acme')
    expect(stdout).toContain(`Without Redis, ${expected}\n`)
  })
})
