import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { startAdmin } from '../helpers/admin.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, startGateway, startLogging, token, yaml } from '../helpers/gateway.ts'
import { bearerOf, OPERATOR_TOKENS, setting, withOperators } from '../helpers/operators.ts'
import { serving } from '../helpers/process.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const upstream = await startUpstream()
const folder = createFolder()
const SECRETS = new RegExp([...Object.values(OPERATOR_TOKENS), 'a-wrong-token'].join('|'))

/** Starts a gateway whose level hides every other line; returns what asks it, and its audit. */
async function startSilent(level = 'silent') {
  const file = join(createFolder(), 'audit.log')
  const gateway = await startGateway({
    data: upstream.url,
    admin: withOperators(),
    more: { log: { level, audit: file } },
  })
  const ask = (path: string, operator?: string, more: Parameters<typeof call>[1] = {}) =>
    call(gateway.adminPort, {
      path,
      ...more,
      headers: { ...more.headers, ...(operator !== undefined && bearerOf(operator)) },
    })
  const text = () => (existsSync(file) ? readFileSync(file, 'utf8') : '')
  const lines = () =>
    text()
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Record<string, unknown>)
  return { gateway, ask, file, text, lines }
}

describe('the audit', () => {
  it('has a line for each change with its operator, the caller and both values, at any log level', async () => {
    const { ask, lines, file, text, gateway } = await startSilent()
    await call(gateway.port, { token: await token('acme') })
    await ask(
      '/limits/acme',
      OPERATOR_TOKENS.ops,
      setting({ requests: 0 }, { note: 'leaked', by: 'ceo@bank.example' }),
    )
    await ask('/limits/acme', OPERATOR_TOKENS.ops, setting({ requests: 7, sync: 2 }, { until: null }))
    await ask('/limits/acme', OPERATOR_TOKENS.team, setting({ requests: null }))
    await ask('/limits/acme', OPERATOR_TOKENS.all, { method: 'DELETE' })
    await until('all are written', () => lines().length === 5)
    const same = { level: 'info', address: '127.0.0.1', result: 'done', caller: 'client:acme', msg: 'audit' }
    expect(lines()).toMatchObject([
      {
        ...{ ...same, name: 'ops', operation: 'set', limit: 'requests', before: 1000, after: 0 },
        ...{ note: 'leaked (sent as ceo@bank.example)', until: expect.stringMatching(/Z$/) as string },
      },
      { ...same, name: 'ops', operation: 'set', limit: 'requests', before: 0, after: 7, until: null },
      { ...same, name: 'ops', operation: 'set', limit: 'sync', before: 1, after: 2, until: null },
      { ...same, name: 'team', operation: 'set', limit: 'requests', before: 7, after: 1000 },
      { ...same, name: 'admin.token', operation: 'reset', freed: 1 },
    ])
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(text()).not.toMatch(SECRETS)
  })

  it('has a line for each kind of refused attempt, with its reason and without the secrets that were sent', async () => {
    const { ask, lines, text } = await startSilent('error')
    await ask('/limits/acme', 'a-wrong-token-of-someone')
    await ask('/overview')
    await ask('/limits/acme', OPERATOR_TOKENS.support, setting({ requests: 5 }))
    await ask('/limits/acme', OPERATOR_TOKENS.team, setting({ sync: 5, requests: 1 }))
    await ask('/limits/header%3Ax-api-key%3Da-secret-key', OPERATOR_TOKENS.support, { method: 'DELETE' })
    await ask('/overview', OPERATOR_TOKENS.all, { headers: { Host: 'evil.example' } })
    await ask('/metrics', undefined, { headers: { 'Sec-Fetch-Site': 'cross-site' } })
    await until('all are written', () => lines().length === 7)
    const same = { address: '127.0.0.1', result: 'refused', attempts: 1, msg: 'audit' }
    expect(lines()).toMatchObject([
      { ...same, name: null, operation: 'show', status: 401, caller: 'client:acme' },
      { ...same, name: null, operation: 'overview', status: 401 },
      { ...same, name: 'support', operation: 'set', status: 403, caller: 'client:acme' },
      { ...same, name: 'team', operation: 'set', status: 403, caller: 'client:acme', limit: 'sync' },
      {
        ...same,
        name: 'support',
        operation: 'reset',
        status: 403,
        caller: expect.stringMatching(/^header:x-api-key=a-se…[\da-f]{8}$/) as string,
      },
      {
        ...same,
        name: null,
        operation: 'overview',
        status: 403,
        reason: expect.stringContaining('admin.hosts') as string,
      },
      {
        ...same,
        name: null,
        operation: 'metrics',
        status: 403,
        reason: 'Pages of other sites have no access.',
      },
    ])
    expect(text()).not.toMatch(SECRETS)
    expect(text()).not.toContain('a-secret-key')
  })

  it('has at most one line a second for the refused attempts of one address, with their number', async () => {
    const { ask, audited, counted } = await startAdmin({ token: 'an-operator-s-token' })
    const statuses = []
    for (let i = 0; i < 60; i++)
      statuses.push((await ask('/overview', { headers: bearerOf(`guess-${i}`) })).status)
    expect(statuses.filter((status) => status === 401)).toHaveLength(20)
    expect(statuses.filter((status) => status === 429)).toHaveLength(40)
    await until(
      'the others are added up',
      () => audited.reduce((sum, { attempts }) => sum + Number(attempts), 0) === 60,
    )
    expect(audited.length).toBeLessThan(20)
    expect(counted.get('overview refused')).toBe(60)
  })

  it('says that the result is unknown of a change that the store did not confirm', async () => {
    const failing = () => Promise.reject(new Error('Redis is not connected'))
    const { ask, audited } = await startAdmin({ operator: { setLimits: failing, reset: failing } })
    expect((await ask('/limits/acme', setting({ requests: 5, sync: null }))).status).toBe(503)
    expect((await ask('/limits/acme', { method: 'DELETE' })).status).toBe(503)
    const same = { name: 'loopback', result: 'failed', caller: 'client:acme' }
    expect(audited).toMatchObject([
      { ...same, operation: 'set', limit: 'requests', requested: 5 },
      { ...same, operation: 'set', limit: 'sync', requested: null },
      { ...same, operation: 'reset' },
    ])
  })

  it('is on standard output too, by several workers once, and its file follows a rotation', async () => {
    const file = join(folder, 'audit.log')
    const config = join(folder, 'sluice.yaml')
    writeFileSync(
      config,
      yaml({ data: upstream.url, admin: withOperators() }).replace(
        'log: { level: silent }',
        `log: { level: info, audit: audit.log }`,
      ),
    )
    const gateway = await serving({ file: config })
    const set = (calls: number) =>
      call(gateway.adminPort, {
        path: '/limits/acme',
        ...setting({ requests: calls }),
        headers: { ...setting({}).headers, ...bearerOf(OPERATOR_TOKENS.ops) },
      })
    const written = (name: string) =>
      existsSync(name) ? readFileSync(name, 'utf8').split('\n').length - 1 : 0
    expect((await set(1)).status).toBe(200)
    await until('it is written', () => written(file) === 1)
    renameSync(file, `${file}.1`)
    expect((await set(2)).status).toBe(200)
    await until('it is written', () => written(file) === 1)
    expect(written(`${file}.1`)).toBe(1)
    const shown = () => gateway.lines().filter(({ msg }) => msg === 'audit')
    await until('both are on standard output', () => shown().length === 2)
    expect(shown()).toMatchObject([
      { before: 1000, after: 1 },
      { before: 1, after: 2 },
    ])

    rmSync(file)
    mkdirSync(file)
    expect((await set(3)).status).toBe(200)
    await until('the failure is logged', () =>
      gateway.lines().some(({ msg }) => String(msg).startsWith('audit file not written')),
    )
    await until('the line is in the log', () => shown().length === 3)
    rmSync(file, { recursive: true })
  })
})

it('counts the requests of operators by operation and result, each series from 0 on', async () => {
  const gateway = await startLogging({ data: upstream.url, admin: withOperators() })
  const series = async () => {
    const { body } = await call(gateway.adminPort, { path: '/metrics' })
    const all = body.matchAll(/^sluice_admin_requests_total\{operation="(.*)",result="(.*)"\} (\d+)$/gm)
    return new Map([...all].map(([, operation, result, count]) => [`${operation} ${result}`, Number(count)]))
  }
  const first = await series()
  expect([...first.keys()]).toEqual(
    [
      'health',
      'readiness',
      'metrics',
      'console',
      'overview',
      'show',
      'reset',
      'set',
      'overrides',
      'explain',
      'other',
    ].flatMap((operation) =>
      ['done', 'refused', 'invalid', 'failed'].map((result) => `${operation} ${result}`),
    ),
  )
  expect(Math.max(...first.values())).toBe(0)
  const ask = (path: string, operator: string, more = {}) =>
    call(gateway.adminPort, { path, ...more, headers: { ...setting({}).headers, ...bearerOf(operator) } })
  await ask('/limits/acme', OPERATOR_TOKENS.ops, { ...setting({ requests: 5 }), headers: {} })
  await ask('/limits/acme', OPERATOR_TOKENS.support, { ...setting({ requests: 5 }), headers: {} })
  await ask('/limits/acme', OPERATOR_TOKENS.ops, { ...setting({ nonsense: 5 }), headers: {} })
  await ask('/nowhere', OPERATOR_TOKENS.ops)
  const now = await series()
  expect(
    ['set done', 'set refused', 'set invalid', 'other invalid', 'metrics done'].map((one) => now.get(one)),
  ).toEqual([1, 1, 1, 1, 1])
})
