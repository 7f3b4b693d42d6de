import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { bearerOf, OPERATOR_TOKENS, setting, withOperators } from '../helpers/operators.ts'
import { fileText } from '../helpers/repository.ts'
import { startUpstream } from '../helpers/upstream.ts'

const upstream = await startUpstream()
const gateway = await startGateway({ data: upstream.url, admin: withOperators() })
const ask = (
  path: string,
  operator?: string,
  more: ReturnType<typeof setting> | { method: string } = { method: 'GET' },
) =>
  call(gateway.adminPort, {
    path,
    ...more,
    headers: { ...('headers' in more && more.headers), ...(operator !== undefined && bearerOf(operator)) },
  })

/** Every operation of the description, with the right that it states. */
const { paths } = parse(fileText('docs/admin-api.yaml')) as {
  paths: Record<string, Record<string, { 'x-right'?: string }>>
}
const operations = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods)
    .filter(([method]) => method !== 'parameters')
    .map(([method, operation]) => ({
      path: path.replace('{caller}', 'acme').replace('{file}', 'main.js'),
      method: method.toUpperCase(),
      right: operation['x-right'] ?? 'nothing',
    })),
)
const MAY: Readonly<Record<string, readonly string[]>> = {
  nobody: ['nothing'],
  support: ['nothing', 'read'],
  team: ['nothing', 'read', 'change'],
  ops: ['nothing', 'read', 'change', 'set'],
  all: ['nothing', 'read', 'change', 'set'],
}

describe('each operation of the admin listener', () => {
  it.each(operations)('$method $path needs the right $right', async ({ path, method, right }) => {
    const more = method === 'PATCH' ? setting({ requests: 5 }) : { method }
    for (const [name, rights] of Object.entries(MAY)) {
      const got = await ask(path, OPERATOR_TOKENS[name as 'ops'], more)
      const wanted = rights.includes(right) ? [200, 400, 503] : [name === 'nobody' ? 401 : 403]
      expect(wanted, `${name} ${got.status}`).toContain(got.status)
      if (got.status === 403) expect(got.json.detail).toContain(`"${name}" may `)
    }
  })
})

describe('rights', () => {
  it('let an operator change only the limits of its list, and each of them', async () => {
    expect((await ask('/limits/acme', OPERATOR_TOKENS.team, setting({ requests: 5 }))).json).toMatchObject({
      by: 'team',
      limits: [{ name: 'requests', after: { limit: 5, decidedBy: 'override' } }],
    })
    for (const set of [{ sync: 5 }, { requests: 6, sync: 5 }, { requests: 6, sync: null }]) {
      const refused = await ask('/limits/acme', OPERATOR_TOKENS.team, setting(set))
      expect(refused).toMatchObject({
        status: 403,
        json: {
          detail:
            '"team" may not change "sync"; that needs the right "set" in admin.tokens, or the limit in the list of "may".',
        },
      })
      expect(refused.headers['www-authenticate']).toBe('Bearer realm="sluice", error="insufficient_scope"')
    }
    const { overrides } = (await ask('/overrides', OPERATOR_TOKENS.support)).json
    expect(overrides).toMatchObject([{ name: 'requests', limit: 5, by: 'team' }])
  })

  it('name in a refusal what the operator lacks', async () => {
    const details = async (operator: string, more: Parameters<typeof ask>[2]) =>
      (await ask('/limits/acme', operator, more)).json.detail
    expect(await details(OPERATOR_TOKENS.support, setting({ requests: 5 }))).toBe(
      '"support" may only read; changes need the right "set" in admin.tokens.',
    )
    expect(await details(OPERATOR_TOKENS.support, { method: 'DELETE' })).toBe(
      '"support" may only read; changes need the right "set" in admin.tokens.',
    )
    expect(await details(OPERATOR_TOKENS.team, { method: 'DELETE' })).toBe(
      '"team" may change only requests; a reset frees all limits, and needs the right "set" in admin.tokens.',
    )
  })

  it('change nothing of a refused request', async () => {
    const caller = await token('victim')
    expect((await call(gateway.port, { token: caller })).status).toBe(200)
    await ask('/limits/victim', OPERATOR_TOKENS.support, setting({ requests: 0 }))
    await ask('/limits/victim', OPERATOR_TOKENS.team, { method: 'DELETE' })
    const { limits } = (await ask('/limits/victim', OPERATOR_TOKENS.support)).json
    expect(limits).toContainEqual(expect.objectContaining({ name: 'requests', used: 1, override: false }))
  })

  it('are in the overview, of the operator who asks', async () => {
    const operators = []
    for (const name of ['support', 'team', 'ops', 'all'] as const)
      operators.push((await ask('/overview', OPERATOR_TOKENS[name])).json.operator)
    expect(operators).toEqual([
      { name: 'support', may: 'read' },
      { name: 'team', may: ['requests'] },
      { name: 'ops', may: 'set' },
      { name: 'admin.token', may: 'set' },
    ])
  })

  it('that no operator has are open on loopback if only named operators are configured', async () => {
    const named = await startGateway({
      data: upstream.url,
      admin: { port: 0, tokens: [{ name: 'support', token: OPERATOR_TOKENS.support, may: 'read' }] },
    })
    expect((await call(named.adminPort, { path: '/overview' })).status).toBe(401)
    const headers = bearerOf(OPERATOR_TOKENS.support)
    expect((await call(named.adminPort, { path: '/overview', headers })).status).toBe(200)
  })
})
