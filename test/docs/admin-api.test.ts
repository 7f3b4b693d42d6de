import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import { beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { OPERATIONS } from '../../src/admin/rights.ts'
import { createFolder } from '../helpers/folder.ts'
import {
  call,
  type Call,
  type Got,
  type Settings,
  startGateway,
  type TestGateway,
  token,
  TOKENS,
  yaml,
} from '../helpers/gateway.ts'
import { type IntrospectionServer, startIntrospection } from '../helpers/introspection-server.ts'
import { serving } from '../helpers/process.ts'
import { fileText, REPOSITORY } from '../helpers/repository.ts'
import { WORKERS } from '../helpers/runs.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** docs/admin-api.yaml must describe every path of the admin listener, and every response as it is sent. */

interface Operation {
  readonly parameters?: readonly { readonly name: string; readonly in: string }[]
  readonly security?: readonly object[]
  readonly 'x-right'?: string
  readonly responses: Record<string, { readonly $ref?: string; readonly content?: Record<string, object> }>
}
interface Description {
  readonly paths: Record<string, Record<string, Operation>>
  readonly components: { readonly schemas: Record<string, object> }
}
const description = parse(fileText('docs/admin-api.yaml')) as Description
const ajv = new Ajv2020({ strict: false, allErrors: true })
formats.default(ajv)
ajv.addSchema(description, 'api')

const TOKEN = 'an-operator-s-token'
const JSON_TYPE = { 'Content-Type': 'application/json' }
const BEARER = { Authorization: `Bearer ${TOKEN}` }
const pointer = (...parts: readonly string[]): string =>
  `#/${parts.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')}`

/** Fails unless the response is as the description says: its status, content type and body. */
function expectDescribed(path: string, method: string, got: Got): void {
  const { responses } = description.paths[path]![method]!
  const response = responses[got.status]
  expect(response, `${method} ${path} ${got.status}`).toBeDefined()
  const [, shared] = /^#\/components\/responses\/(.+)$/.exec(response!.$ref ?? '') ?? []
  const place = shared
    ? ['components', 'responses', shared]
    : ['paths', path, method, 'responses', `${got.status}`]
  const [type = ''] = got.headers['content-type']!.split(';', 1)
  const validate = ajv.getSchema(`api${pointer(...place, 'content', type, 'schema')}`)
  expect(validate, `${method} ${path} ${got.status} ${type}`).toBeDefined()
  const body: unknown = type.endsWith('json') ? got.json : got.body
  const isValid = validate!(body)
  expect(isValid ? [] : validate!.errors, `${method} ${path} ${got.status}: ${got.body}`).toEqual([])
}

const LIMITS = {
  requests: {
    per: ['client'],
    limit: 20,
    window: '1m',
    changes: [{ announced: '2020-01-01T00:00:00Z', from: '2090-01-01T00:00:00Z', limit: 9 }],
  },
  weekly: { per: ['client'], limit: 3, window: { calendar: 'week', timezone: 'Europe/Lisbon' } },
  trial: { per: ['client'], limit: 1, window: '1m', shadow: true },
  device: { per: ['client', 'header:x-device'], limit: 100, window: '1m', missing: 'skip' },
  exports: { per: ['client'], concurrent: 3 },
  address: { per: ['ip'], limit: 1, window: '1m' },
}
const ROUTES = [
  { match: '/open', upstream: 'data', authenticate: 'none', limits: ['address'] },
  { match: 'GET /rate-limits', respond: 'limits', authenticate: 'bearer' },
  { match: '/secure', upstream: 'secure', authenticate: 'none' },
  {
    match: '/*',
    upstream: 'data',
    authenticate: 'bearer',
    limits: ['requests', 'weekly', 'trial', 'device', 'exports'],
  },
]

describe('docs/admin-api.yaml', () => {
  const folder = createFolder()
  const file = join(folder, 'sluice.yaml')
  let redis: object
  let upstream: TestUpstream
  let introspection: IntrospectionServer
  let gateway: TestGateway
  const ask = (path: string, more: Call = {}): Promise<Got> =>
    call(gateway.adminPort, { path, ...more, headers: { ...BEARER, ...more.headers } })

  const settings = (admin: object, store: object | 'memory'): Settings => ({
    ...{ data: upstream.url, admin, store, limits: LIMITS, routes: ROUTES },
    tokens: { ...TOKENS, introspection: { url: introspection.url, clientId: 's', clientSecret: 's' } },
    more: {
      clients: [
        { id: 'acme', name: 'Acme', limits: { requests: { limit: 30, until: '2089-01-01T00:00:00Z' } } },
      ],
    },
    upstreams: { secure: { url: 'https://127.0.0.1:1', tls: { ca: join(folder, 'ca.pem') } } },
    upstream: { errors: 'problem' },
  })
  const start = (admin: object, store: object | 'memory') => startGateway(settings(admin, store))

  beforeAll(async () => {
    writeFileSync(join(folder, 'ca.pem'), makeCertificate().cert)
    upstream = await startUpstream()
    introspection = await startIntrospection()
    redis = { url: (await sharedRedis()).url }
    gateway = await start({ port: 0, token: TOKEN }, { redis, prefix: 'docs-admin-api' })
    await until('it is ready', async () => (await ask('/readyz')).status === 200)
  })

  it('docs/admin-api.yaml has every path of the listener, and no other', async () => {
    const described = Object.keys(description.paths).map((path) => path.replace(/\{.*/, ''))
    const { status, body } = await ask('/nowhere')
    expect(status).toBe(404)
    const said = body.match(/(?<= )\/[a-z]*/g)!.map((path) => (path === '/limits' ? '/limits/' : path))
    expect(said.concat('/console/').toSorted()).toEqual(described.toSorted())
    for (const path of described.filter((path) => !path.endsWith('/')))
      expect((await ask(path)).status, path).not.toBe(404)
  })

  it('docs/admin-api.yaml has every operation of the table of rights, with its right', () => {
    const methods = Object.entries(description.paths).flatMap(([path, operations]) =>
      Object.entries(operations)
        .filter(([method]) => method !== 'parameters')
        .map(([method, operation]) =>
          [method.toUpperCase(), path, operation['x-right'] ?? 'nothing'].join(' '),
        ),
    )
    const rows = OPERATIONS.map(({ method, path, needs }) =>
      [method, path.replace(/:(\w+)/, '{$1}'), needs].join(' '),
    )
    expect(methods.toSorted()).toEqual(rows.toSorted())
  })

  it('docs/admin-api.yaml has every file of the console', async () => {
    for (const name of readdirSync(join(REPOSITORY, 'src/admin/console')).filter((name) =>
      /\.(css|js|svg)$/.test(name),
    ))
      expectDescribed('/console/{file}', 'get', await ask(`/console/${name}`))
    expectDescribed('/', 'get', await ask('/'))
    expectDescribed('/console/{file}', 'get', await ask('/console/nothing.js'))
  })

  it('docs/admin-api.yaml has the methods of every path', async () => {
    for (const [path, operations] of Object.entries(description.paths)) {
      const target = path.replace('{caller}', 'acme').replace('{file}', 'main.js')
      const { status, headers } = await ask(target, { method: 'PUT' })
      const methods = Object.keys(operations).filter((name) => name !== 'parameters')
      const allowed = methods.flatMap((name) => (name === 'get' ? ['GET', 'HEAD'] : [name.toUpperCase()]))
      expect([path, status, headers.allow?.split(', ').toSorted()]).toEqual([path, 405, allowed.toSorted()])
      const [got, head] = [await ask(target), await ask(target, { method: 'HEAD' })]
      expect([path, head.status, head.headers['content-type'], head.body]).toEqual([
        ...[path, got.status, got.headers['content-type'], ''],
      ])
    }
  })

  it('docs/admin-api.yaml has the paths that need an operator', async () => {
    for (const [path, { get, patch, delete: remove }] of Object.entries(description.paths)) {
      const target = path.replace('{caller}', 'acme').replace('{file}', 'main.js')
      for (const [method, operation] of Object.entries({ get, patch, delete: remove })) {
        if (operation === undefined) continue
        for (const authorization of [undefined, 'Bearer wrong']) {
          const headers: Record<string, string> = authorization ? { Authorization: authorization } : {}
          const got = await call(gateway.adminPort, { path: target, method: method.toUpperCase(), headers })
          expect([path, method, got.status === 401]).toEqual([path, method, operation.security !== undefined])
          expectDescribed(path, method, got)
        }
        const other = await ask(target, {
          method: method.toUpperCase(),
          headers: { 'Sec-Fetch-Site': 'cross-site' },
        })
        expect(other.status).toBe(403)
        expectDescribed(path, method, other)
      }
    }
  })

  it('describes the metrics and the probes', async () => {
    for (const path of ['/healthz', '/readyz', '/metrics']) {
      const got = await ask(path)
      expect(got.status).toBe(200)
      expectDescribed(path, 'get', got)
    }
  })

  it('describes what is set, read, listed and reset', async () => {
    const patch = async (caller: string, setting: object) => {
      const got = await ask(`/limits/${caller}`, {
        method: 'PATCH',
        headers: JSON_TYPE,
        body: JSON.stringify(setting),
      })
      expectDescribed('/limits/{caller}', 'patch', got)
      return got
    }
    const [example] = (description.components.schemas['Setting'] as { examples: object[] }).examples
    const settings: readonly (readonly [object, number])[] = [
      [{ set: { requests: 7 }, note: 'INC-123', by: 'ada' }, 200],
      [{ set: { requests: 8 }, until: null }, 200],
      [{ set: { requests: 8, weekly: null }, until: '2089-01-01T00:00:00Z' }, 200],
      [{ ...example, set: { requests: 9 } }, 200],
      [{}, 400],
      [{ set: {} }, 400],
      [{ set: { requests: -1 } }, 400],
      [{ set: { requests: 1.5 } }, 400],
      [{ set: { requests: 1 }, until: 'tomorrow' }, 400],
      [{ set: { requests: 1 }, by: '' }, 400],
      [{ set: { requests: 1 }, by: 'x'.repeat(101) }, 400],
      [{ set: { requests: 1 }, note: 'x'.repeat(501) }, 400],
      [{ set: { requests: 1 }, note: 'a\nb' }, 400],
      [{ set: { requests: 1 }, more: 1 }, 400],
    ]
    const isSetting = ajv.getSchema('api#/components/schemas/Setting')!
    for (const [setting, status] of settings) {
      expect([setting, isSetting(setting)]).toEqual([setting, status === 200])
      expect([setting, (await patch('bluebird', setting)).status]).toEqual([setting, status])
    }
    await patch('acme', { set: { requests: 5 } })
    for (let i = 0; i < 5; i++)
      await call(gateway.port, { token: await token('acme'), headers: { 'x-device': 'one' } })
    for (const caller of ['acme', 'bluebird', 'nobody', 'ip:127.0.0.1', 'user:jo', '%E4'])
      expectDescribed('/limits/{caller}', 'get', await ask(`/limits/${caller}`))
    const { limits, own, overrides } = (await ask('/limits/acme')).json
    expect([limits.length, own.length, overrides.length]).toEqual([5, 1, 1])
    const listed = await ask('/overrides')
    expect(listed.json.overrides).toHaveLength(2)
    expectDescribed('/overrides', 'get', listed)
    const freed = await ask('/limits/acme', { method: 'DELETE' })
    expect(freed.json.freed).toBeGreaterThan(0)
    expectDescribed('/limits/{caller}', 'delete', freed)
    expectDescribed('/limits/{caller}', 'delete', await ask('/limits/%E4', { method: 'DELETE' }))
  })

  it('describes explanations', async () => {
    const parameters = description.paths['/explain']!['get']!.parameters!.map(({ name }) => name)
    const values: Record<string, string> = {
      ...{ request: 'POST /v3/accounts', client: 'acme', user: 'u', host: 'localhost', ip: '192.0.2.1' },
      ...{ headers: '{"x-device":"one"}', claims: '{"a":"b"}', at: '2088-12-31T00:00:00Z' },
    }
    expect(Object.keys(values).toSorted()).toEqual(parameters.toSorted())
    const all = new URLSearchParams(values).toString()
    const questions: readonly (readonly [string, number])[] = [
      [all, 200],
      ['request=/v3/accounts%26client=acme', 200],
      ['request=GET%20/v3/accounts&client=bluebird', 200],
      ['request=/open', 200],
      ['request=POST%20/rate-limits', 200],
      ['request=/rate-limits&client=acme', 200],
      ['request=/a//b', 200],
      ['', 400],
      ['request=/&request=/', 400],
      ['request=/&other=1', 400],
      ['request=/&at=never', 400],
    ]
    for (const [query, status] of questions) {
      const got = await ask(`/explain?${query}`)
      expect([query, got.status]).toEqual([query, status])
      expectDescribed('/explain', 'get', got)
    }
  })

  it('describes the overview of a process with all its lists', async () => {
    const text = yaml(settings({ port: 0 }, { redis, prefix: 'docs-admin-api-two' }))
    writeFileSync(file, text)
    const process = await serving({ file }, ['--workers', String(WORKERS)])
    const overview = (headers = {}) => call(process.adminPort, { path: '/overview', headers })
    introspection.answer = { active: false }
    await call(process.port, { token: 'opaque' })
    for (const path of ['/open', '/open', '/secure']) await call(process.port, { path })
    for (let i = 0; i < 5; i++) await call(process.port, { token: await token('zeta') })
    await call(process.adminPort, {
      ...{ path: '/limits/zeta', method: 'PATCH', headers: JSON_TYPE, body: '{"set":{"requests":5}}' },
    })
    writeFileSync(file, `${text}\nwrong: true\n`)
    await until('the reload is rejected', async () => (await overview()).json.reloads.length > 0)
    const got = await overview()
    expectDescribed('/overview', 'get', got)
    const { activity, lastMinute, status, events, reloads, overrides, limits } = got.json
    const shown = [
      activity.callers,
      lastMinute.errors,
      lastMinute.durations,
      events,
      reloads,
      overrides.first,
      limits,
    ]
    const states = ['upstreams', 'issuers', 'certificates', 'shadowOver'].map((name) => status[name])
    for (const list of [...shown, ...states]) expect(list).not.toEqual([])
    expect(activity.callers.map(({ caller }: { caller: string }) => caller)).toContain('ip:127.0.0.1')
    expect(activity.callers.some(({ refusedNow }: { refusedNow: unknown }) => refusedNow !== null)).toBe(true)
    process.kill('SIGINT')
  })

  it('describes a gateway without Redis, without a token, and one that is not ready', async () => {
    const memory = await start({ port: 0 }, 'memory')
    const get = (path: string, headers = {}) => call(memory.adminPort, { path, headers })
    expectDescribed('/overview', 'get', await get('/overview'))
    expectDescribed('/limits/{caller}', 'get', await get('/limits/acme'))
    const other = await get('/overview', { Host: 'evil.example' })
    expect(other.status).toBe(403)
    expectDescribed('/overview', 'get', other)

    const away = {
      redis: { url: 'redis://127.0.0.1:1' },
      prefix: 'docs-admin-api-down',
      onOutage: 'deny',
      instances: 1,
      overrides: 'required',
    }
    const down = await start({ port: 0 }, away)
    for (const [path, target, method, status] of [
      ['/limits/{caller}', '/limits/acme', 'get', 200],
      ['/limits/{caller}', '/limits/acme', 'delete', 503],
      ['/readyz', '/readyz', 'get', 503],
    ] as const) {
      const got = await call(down.adminPort, { path: target, method: method.toUpperCase() })
      expect([target, method, got.status]).toEqual([target, method, status])
      expectDescribed(path, method, got)
    }
  })

  it('lists every member of an object as required, or as one of those that may be missing', () => {
    const optional = new Set([
      'windowSeconds',
      'windowMs',
      'inProgress',
      'oldest',
      'calendar',
      'firstDay',
      'missing',
      'cost',
      'actual',
      'counts',
      'allow',
      'until',
      'by',
      'note',
    ])
    function check(schema: Record<string, unknown>): void {
      const { properties, required = [], additionalProperties } = schema
      if (properties !== undefined && typeof additionalProperties !== 'object') {
        expect(additionalProperties).toBe(false)
        const names = Object.keys(properties as object).filter((name) => !optional.has(name))
        for (const name of names) expect(required).toContain(name)
      }
      for (const value of Object.values(schema))
        if (typeof value === 'object' && value !== null) check(value as Record<string, unknown>)
    }
    check(description as unknown as Record<string, unknown>)
  })
})
