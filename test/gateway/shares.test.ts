import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { sluice } from '../commands/run.ts'
import { call, dataRoute, startGateway, type TestGateway, token } from '../helpers/gateway.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Attended and unattended calls against one bound: the unattended ones use at most 2 of the 4. */
const LIMITS = {
  calls: { per: ['client'], limit: 4, window: '1h' },
  unattended: {
    per: ['client'],
    limit: 2,
    window: '1h',
    counts: 'calls',
    unless: { header: 'psu-ip-address', is: 'ip' },
  },
  batch: { per: ['client'], limit: 1, window: '1h', counts: 'calls' },
  month: { per: ['client'], limit: 10, window: { calendar: 'month' }, count: 'success' },
  reports: { per: ['client'], limit: 1, window: { calendar: 'month' }, counts: 'month' },
  points: { per: ['client'], limit: 10, window: '1h' },
  some: { per: ['client'], limit: 5, window: '1h', counts: 'points' },
  trial: { per: ['client'], limit: 2, window: '1h', counts: 'points', shadow: true },
  access: { per: ['client'], limit: 4, window: '1h', together: '10m' },
  first: { per: ['client'], limit: 1, window: '1h', counts: 'access' },
}
const ROUTES = [
  { match: '/limits', respond: 'limits', authenticate: 'bearer' },
  dataRoute('/calls', ['calls', 'unattended'], { maxBody: '5B' }),
  dataRoute('/batch', ['batch']),
  dataRoute('/month', ['month']),
  dataRoute('/reports', ['reports']),
  dataRoute('/points', ['points', 'some', 'trial'], { cost: { points: 2 } }),
  dataRoute('/dear', ['points'], { cost: 4 }),
  dataRoute('/free', ['calls', 'batch'], { cost: { calls: 0 } }),
  dataRoute('/access', ['first']),
]
const USER = { headers: { 'PSU-IP-Address': '192.0.2.7' } }

let upstream: TestUpstream
let redis: RedisServer
beforeAll(async () => {
  upstream = await startUpstream((request, response) =>
    response.writeHead(request.headers['x-fail'] === undefined ? 200 : 500).end('{}'),
  )
  redis = await startRedis()
})
afterAll(async () => {
  await upstream.close()
  await redis.close()
})

describe.each(['memory', 'Redis'])('a share, counted in %s', (kind) => {
  let gateway: TestGateway
  beforeAll(async () => {
    const store = kind === 'memory' ? 'memory' : { redis: { url: redis.url }, timeout: '5s' }
    const more = { headers: { draft: 'draft-10' } }
    gateway = await startGateway({ data: upstream.url, store, limits: LIMITS, routes: ROUTES, more })
  })
  afterAll(() => gateway.close())

  let client = ''
  beforeEach(({ task }) => {
    client = `c${task.id}`
  })
  const ask = async (path: string, options: Parameters<typeof call>[1] = {}) =>
    call(gateway.port, { path, token: await token(client), ...options })
  /** Makes a call, and returns its status with the limit that its header fields show, and what that has left. */
  async function shown(path: string, options: Parameters<typeof call>[1] = {}) {
    const { status, headers } = await ask(path, options)
    return [status, headers['x-ratelimit-limit'], headers['x-ratelimit-remaining']].join(' ')
  }
  const operate = async (...args: string[]) =>
    sluice([...args, '--admin', `http://127.0.0.1:${gateway.adminPort}`])
  const rowsOf = async () => {
    const { json } = await call(gateway.adminPort, { path: `/limits/${client}` })
    const rows = json.limits as { name: string; key: string; limit: number; used: number }[]
    return rows
      .filter(({ used }) => used > 0)
      .map(({ name, key, limit, used }) => `${name} ${key} ${used}/${limit}`)
  }

  it('and the limit that it counts charge a call once, and the one that has less left decides and is shown', async () => {
    expect(await shown('/calls')).toBe('200 2 1')
    expect(await shown('/calls')).toBe('200 2 0')
    const refused = await ask('/calls')
    expect(refused).toMatchObject({ status: 429, json: { 'violated-policies': ['unattended'] } })
    expect(refused.json.detail).toMatch(/^The limit "unattended" allows 2 calls in 1 hour\. Retry in/)
    expect(refused.headers['ratelimit-policy']).toBe('"unattended";q=2;w=3600')
    expect(refused.headers['ratelimit']).toMatch(/^"unattended";r=0;t=3\d{3}$/)
    // The refusal of the share is cached, and does not refuse calls to which only the counted limit applies.
    expect(await shown('/calls', USER)).toBe('200 4 1')
    expect(await shown('/calls', USER)).toBe('200 4 0')
    const full = await ask('/calls', USER)
    expect(full).toMatchObject({ status: 429, json: { 'violated-policies': ['calls'] } })
    expect(await shown('/calls')).toBe('429 2 0')
    expect(await rowsOf()).toEqual([
      `calls sluice:{${client}}:calls 4/4`,
      `unattended sluice:{${client}}:calls 4/2`,
      `batch sluice:{${client}}:calls 4/1`,
    ])
  })

  it('charges the counter of the limit also on a route that has only the share', async () => {
    expect(await shown('/batch')).toBe('200 1 0')
    expect(await shown('/batch')).toBe('429 1 0')
    expect(await shown('/calls', USER)).toBe('200 4 2')
    expect(await shown('/calls')).toBe('429 2 0')
    const { json } = await ask('/limits')
    const limits = (json.limits as { name: string; limit: number; remaining: number }[]).map(
      ({ name, limit, remaining }) => `${name} ${remaining}/${limit}`,
    )
    expect(limits.slice(0, 3)).toEqual(['calls 2/4', 'unattended 0/2', 'batch 0/1'])
    // Read again after a call, although readings are kept for a second.
    expect(await shown('/calls', USER)).toBe('200 4 1')
    expect((await ask('/limits')).json.limits[0]).toMatchObject({ name: 'calls', remaining: 1 })
    expect(await shown('/limits')).toBe('200 4 1')
  })

  it('is shown on refusals that charge nothing, if it has less left', async () => {
    expect(await shown('/calls')).toBe('200 2 1')
    const long = { method: 'POST', body: 'too long' }
    expect(await shown('/calls', long)).toBe('413 2 1')
    expect(await shown('/calls', { ...long, ...USER })).toBe('413 4 3')
  })

  it('has the cost of the counter, and is left out with it', async () => {
    expect(await shown('/points')).toBe('200 5 3')
    expect(await shown('/dear')).toBe('200 10 4')
    expect(await shown('/points')).toBe('429 5 0')
    const { json } = await ask('/points')
    expect(json.detail).toMatch(/^The limit "some" allows 5 points in 1 hour; this call takes 2\. Retry in/)
    expect(await shown('/dear')).toBe('200 10 0')
    for (let i = 0; i < 3; i++) expect(await shown('/free')).toBe('200  ')
  })

  it('has room again when the counter has', async () => {
    const fails = { headers: { 'X-Fail': '1' } }
    expect(await shown('/reports', fails)).toBe('500 1 0')
    // The refund may reach Redis after the next call, which charges nothing if it is refused.
    await until('the call is given back', async () => (await shown('/reports')) === '200 1 0')
    expect(await shown('/month')).toBe('200 10 8')
    expect(await shown('/reports')).toBe('429 1 0')
  })

  it('counts the accesses of the counter', async () => {
    expect([await shown('/access'), await shown('/access')]).toEqual(['200 1 0', '200 1 0'])
  })

  it('in shadow reports what it would refuse, and changes nothing', async () => {
    expect([await shown('/points'), await shown('/points')]).toEqual(['200 5 3', '200 5 1'])
    const metrics = (await call(gateway.adminPort, { path: '/metrics' })).body
    expect(metrics).toMatch(/sluice_limit_decisions_total\{limit="trial",outcome="shadow_over"\} [1-9]/)
    await until('the call is reported', async () => {
      const { activity } = (await call(gateway.adminPort, { path: '/overview' })).json
      const row = activity.callers.find(({ caller }: { caller: string }) => caller === `client:${client}`)
      const trial = row?.limits.find(({ name }: { name: string }) => name === 'trial')
      return trial?.shadow === true && trial.wouldRefuse === 1
    })
  })

  it('has overrides of its own, is explained with its counter, and is reset with it', async () => {
    for (let i = 0; i < 2; i++) await ask('/calls')
    const asked = ['explain', '/calls', '--client', client]
    const explained = (await operate(...asked)).stdout
    expect(explained).toContain('by the limit "unattended": 2 of 2 calls are used')
    expect(explained).toMatch(/^calls +4 +2 +1h +live /m)
    expect(explained).toMatch(
      new RegExp(`^unattended +2 +2 +1h +live +sluice:{${client}}:calls .*; a share of "calls"$`, 'm'),
    )
    expect((await ask('/calls')).status).toBe(429)
    expect(await operate('limits', 'set', client, 'unattended=3')).toMatchObject({ code: 0 })
    expect(await shown('/calls')).toBe('200 3 0')
    expect(await operate('limits', 'set', client, 'unattended=9')).toMatchObject({ code: 0 })
    expect(await shown('/calls')).toBe('200 4 0')
    expect((await operate(...asked)).stdout).toContain('by the limit "calls": 4 of 4 calls are used')
    expect(await operate('limits', 'set', client, 'calls=0', 'unattended=default')).toMatchObject({ code: 0 })
    expect(await shown('/calls')).toBe('429 0 0')
    expect(await operate('limits', 'set', client, 'calls=default')).toMatchObject({ code: 0 })
    const { stdout } = await operate('limits', 'show', client)
    expect(stdout).toMatch(/calls +unattended +2 +4 +0 +1h/)
    expect((await operate('limits', 'reset', client)).stdout).toContain('Freed 1 key ')
    expect(await shown('/calls')).toBe('200 2 1')
  })
})
