import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse, stringify } from 'yaml'
import { createFolder } from '../helpers/folder.ts'
import { call, ROUTES, startGateway, token, TOKENS } from '../helpers/gateway.ts'
import { startIntrospection } from '../helpers/introspection-server.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const CONFIG = join(import.meta.dirname, '../../config')
const folder = createFolder()

/** Runs promtool, and returns its exit code with all that it printed. */
function promtool(args: readonly string[], input = ''): readonly [code: number | null, output: string] {
  const { error, status, stdout, stderr } = spawnSync('promtool', args, { input, encoding: 'utf8' })
  if (error !== undefined) throw new Error('promtool is missing; run npm run setup', { cause: error })
  return [status, stdout + stderr]
}

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly datasource?: { readonly uid: string }
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly targets?: readonly { readonly expr: string; readonly datasource: { readonly uid: string } }[]
}
interface Dashboard {
  readonly panels: readonly Panel[]
  readonly templating: { readonly list: readonly { readonly name: string; readonly type: string }[] }
}
interface Rule {
  readonly alert: string
  readonly expr: string
  readonly annotations: Readonly<Record<string, string>>
}
interface Rules {
  readonly groups: readonly { readonly rules: readonly Rule[] }[]
}

const text = readFileSync(join(CONFIG, 'grafana/sluice.json'), 'utf8')
const dashboard = JSON.parse(text) as Dashboard
const shown = dashboard.panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr }) => ({ title, expr: expr.replaceAll('$__rate_interval', '5m') })),
)
const rules = (parse(readFileSync(join(CONFIG, 'prometheus/alerts.yaml'), 'utf8')) as Rules).groups.flatMap(
  ({ rules }) => rules,
)
const expressions = [...shown, ...rules.map(({ alert, expr }) => ({ title: alert, expr }))]

let metrics: string
const [data, introspection] = await Promise.all([startUpstream(), startIntrospection()])
const gateway = await startGateway({
  data: data.url,
  store: { redis: { url: 'redis://127.0.0.1:1' } },
  tokens: {
    ...TOKENS,
    introspection: { url: introspection.url, clientId: 'sluice', clientSecret: 'secret' },
  },
  routes: [
    ...ROUTES,
    {
      match: '/used',
      upstream: 'data',
      authenticate: 'bearer',
      limits: ['requests'],
      cost: { reserve: 1, actual: { field: 'X-Usage' } },
    },
  ],
  more: { failures: { limit: 5, window: '1m' } },
})
await call(gateway.port, { token: await token('client-1') })
await call(gateway.port, { token: 'opaque' })
await call(gateway.port, { path: '/nowhere' })
await until('all are counted', async () => {
  metrics = (await call(gateway.adminPort, { path: '/metrics' })).body
  const counts = [...metrics.matchAll(/^sluice_http_requests_total\{.*\} (\d+)$/gm)]
  return counts.reduce((sum, [, count]) => sum + Number(count), 0) === 3
})
await gateway.close()

/** The metrics of a gateway before its first request, without keys and Redis. */
const fresh = await startGateway(
  {
    data: data.url,
    store: { redis: { url: 'redis://127.0.0.1:1' } },
    limits: {
      requests: { per: ['client'], limit: 10, window: '1m' },
      trial: { per: ['client'], limit: 5, window: '1m', shadow: true },
    },
    routes: [
      {
        match: '/*',
        upstream: 'data',
        authenticate: 'bearer',
        limits: ['requests', 'trial'],
        cost: { requests: { reserve: 2, actual: { json: 'used' } } },
      },
    ],
    tokens: {
      ...TOKENS,
      introspection: { url: introspection.url, clientId: 'sluice', clientSecret: 'secret' },
    },
    more: { metrics: { clients: 'listed' }, clients: [{ id: 'acme' }], failures: { limit: 5, window: '1m' } },
  },
  join(folder, 'fresh.yaml'),
)
const freshMetrics = (await call(fresh.adminPort, { path: '/metrics' })).body
await fresh.close()

/**
 * Evaluates expressions on series that have had the values of the fresh gateway since its start.
 * Returns those without a result.
 */
function emptyOf(expressions: readonly string[]): readonly string[] {
  const samples = [...freshMetrics.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm)]
  const input_series = samples.map(([, name, labels, value]) => ({
    series: `${name}{${labels === undefined ? '' : `${labels},`}job="sluice",instance="a"}`,
    values: `${value === 'NaN' ? 0 : Number(value)}+0x20`,
  }))
  input_series.push({ series: 'up{job="sluice",instance="a"}', values: '1+0x20' })
  const file = join(folder, 'fresh-expressions.yaml')
  function haveResults(some: readonly string[]): boolean {
    const promql_expr_test = some.map((expr) => ({
      expr: `count(${expr}) > bool 0`,
      eval_time: '10m',
      exp_samples: [{ labels: '{}', value: 1 }],
    }))
    writeFileSync(file, stringify({ tests: [{ interval: '1m', input_series, promql_expr_test }] }))
    return promtool(['test', 'rules', file])[0] === 0
  }
  return haveResults(expressions) ? [] : expressions.filter((expr) => !haveResults([expr]))
}

/** Public names, which operators use in their own alerts and panels. */
const NAMES = [
  'sluice_http_requests_total{route,method,code,source,upstream}',
  'sluice_http_request_duration_seconds_count{route,upstream}',
  'sluice_upstream_duration_seconds_count{upstream}',
  'sluice_limit_decisions_total{limit,outcome}',
  'sluice_limit_reserved_points_total{limit}',
  'sluice_limit_settled_points_total{limit}',
  'sluice_limit_settlements_total{limit,outcome}',
  'sluice_limit_overrides',
  'sluice_overrides_known',
  'sluice_store_duration_seconds_count',
  'sluice_store_up',
  'sluice_store_gateways',
  'sluice_store_mode{mode}',
  'sluice_store_fallback_decisions_total{mode}',
  'sluice_store_fallback_last_timestamp_seconds',
  'sluice_issuer_keys_age_seconds{issuer}',
  'sluice_request_fields_dropped_total{upstream}',
  'sluice_issuer_keys_failures_total{issuer}',
  'sluice_introspection_up{issuer}',
  'sluice_introspection_requests_total{issuer,result}',
  'sluice_downstream_sockets',
  'sluice_downstream_max_sockets',
  'sluice_dropped_sockets_total{bound}',
  'sluice_upstream_up{upstream,address}',
  'sluice_upstream_sockets{upstream}',
  'sluice_upstream_max_sockets{upstream}',
  'sluice_upstream_queue{upstream}',
  'sluice_upstream_waiting{upstream}',
  'sluice_upstream_oldest_wait_seconds{upstream}',
  'sluice_upstream_websockets{upstream}',
  'sluice_admin_requests_total{operation,result}',
  'sluice_failures_total',
  'sluice_failures_refused_total',
  'sluice_config_last_reload_successful',
  'sluice_config_last_reload_success_timestamp_seconds',
  'sluice_config_reload_failures_total',
  'sluice_configuration_files{state}',
  'sluice_configuration_kept',
  'sluice_build_info{version,revision,node}',
  'sluice_workers',
  'sluice_worker_ends_total',
]

it('/metrics shows exactly the public metrics with their labels', () => {
  const series = [...metrics.matchAll(/^(sluice_\w+)(?:\{(.*)\})? /gm)].map(([, name, labels = '']) => {
    const keys = [...labels.matchAll(/(?:^|,)(\w+)="(?:[^"\\]|\\.)*"/g)].map(([, key]) => key)
    return `${name!}${keys.length > 0 ? `{${keys.join(',')}}` : ''}`
  })
  const shown = new Set(series.filter((one) => !/_(?:bucket|sum)(?:\{|$)/.test(one)))
  expect([...shown].toSorted()).toEqual(NAMES.toSorted())
})

it('/metrics shows what may happen first as 0: Prometheus sees no increase in a series that begins with it', async () => {
  const { adminPort, close } = await startGateway({
    data: 'http://127.0.0.1:1',
    limits: {
      calls: { per: ['client'], limit: 1, window: '1m' },
      trial: { per: ['client'], limit: 1, window: '1m', shadow: true },
    },
    routes: [
      { match: 'GET,POST /a', upstream: 'data', authenticate: 'bearer', limits: ['calls', 'trial'] },
      { match: '/b', upstream: 'data', authenticate: 'none' },
    ],
  })
  const { body } = await call(adminPort, { path: '/metrics' })
  const decisions = [...body.matchAll(/^sluice_limit_decisions_total\{limit="(.*)",outcome="(.*)"\} 0$/gm)]
  expect(decisions.map(([, limit, outcome]) => `${limit} ${outcome}`)).toEqual([
    ...['within', 'near', 'over', 'over_cached'].map((outcome) => `calls ${outcome}`),
    ...['within', 'near', 'shadow_over'].map((outcome) => `trial ${outcome}`),
  ])
  const declared = (route: string, source: string) =>
    [
      ...body.matchAll(
        /^sluice_http_requests_total\{route="(.*)",method="GET",code="(.*)",source="(.*)",upstream="data"\} 0$/gm,
      ),
    ]
      .filter(([, ofRoute, , bySource]) => ofRoute === route && bySource === source)
      .map(([, , code]) => code!)
      .toSorted()
  expect(declared('GET,POST /a', 'gateway')).toEqual(['401', '429', '499', '500', '502', '503', '504'])
  expect(declared('/b', 'gateway')).toEqual(['499', '500', '502', '504'])
  for (const route of ['GET,POST /a', '/b'])
    expect(declared(route, 'upstream')).toEqual(['200', '500', '502', '503', '504'])
  for (const series of [
    'sluice_upstream_duration_seconds_count{upstream="data"}',
    'sluice_http_request_duration_seconds_count{route="/b",upstream="data"}',
  ])
    expect(body).toContain(`${series} 0\n`)
  await close()
})

it('/metrics passes promtool check metrics', () => {
  expect(metrics).toContain('sluice_http_request_duration_seconds_count{route="unmatched",upstream=""} 1')
  expect(promtool(['check', 'metrics'], metrics)).toEqual([0, ''])
})

describe('config/prometheus', () => {
  it('config/prometheus has a valid example of a configuration', () => {
    const [code, output] = promtool(['check', 'config', join(CONFIG, 'prometheus/prometheus.yaml')])
    expect([code, output]).toEqual([0, expect.stringContaining(`${rules.length} rules found`)])
  })

  it('alerts as defined in alerts.test.yaml', () => {
    const file = join(import.meta.dirname, 'alerts.test.yaml')
    expect(promtool(['test', 'rules', file])).toEqual([0, expect.stringContaining('SUCCESS')])
    const { tests } = parse(readFileSync(file, 'utf8')) as { tests: { name: string }[] }
    const tested = new Set(tests.map(({ name }) => name.split(' ')[0]))
    expect([...tested]).toEqual(rules.map(({ alert }) => alert))
  })
})

describe('the runbook of alerts', () => {
  const runbook = readFileSync(join(CONFIG, '../docs/runbook.md'), 'utf8')
  const [alerts] = runbook.split('\n## Without an alert\n')
  const sections = alerts!.split(/^## /m).slice(1)

  it('has a section for each alert, in the order of their names, with what it means, where to look and what to do', () => {
    const names = rules.map(({ alert }) => alert).toSorted()
    expect(sections.map((section) => section.split('\n', 1)[0])).toEqual(names)
    for (const section of sections)
      expect([...section.matchAll(/^\*\*(\w+)\.\*\* \S/gm)].map(([, part]) => part)).toEqual([
        'Means',
        'Look',
        'Do',
      ])
  })

  it('is where the runbook_url of each alert leads', () => {
    const places = rules.map(({ annotations }) =>
      annotations['runbook_url']!.replace(/^https:\/\/\S+\/blob\/main\//, ''),
    )
    expect(places).toEqual(rules.map(({ alert }) => `docs/runbook.md#${alert.toLowerCase()}`))
  })
})

describe('a gateway before its first request', () => {
  it('shows every series of counters and histograms that alerts compare', () => {
    const selectors = rules.flatMap(({ expr }) => expr.match(/\bsluice_\w+(?:\{[^}]*\})?/g) ?? [])
    // Only a listed client that has called has series, and only a certificate or revocation list in the file.
    const compared = selectors
      .map((selector) =>
        selector.replace(',client!="",client!="other"', '').replace('client!="",client!="other"', ''),
      )
      .filter((selector) => !/^sluice_(?:certificate|tls_crl)_/.test(selector))
    expect(compared.length).toBeGreaterThan(40)
    expect(emptyOf([...new Set(compared)])).toEqual([])
  })

  it('has no panel of the dashboard without data, except that of certificates', () => {
    const mine = shown.filter(({ title }) => title !== 'Certificates expire in')
    const expressions = mine.map(({ expr }) => expr.replaceAll('$job', 'sluice').replaceAll('$instance', 'a'))
    expect(emptyOf(expressions)).toEqual([])
  })
})

describe('config/grafana/sluice.json', () => {
  it('reads its data from the selected source', () => {
    expect(dashboard.templating.list.map(({ name, type }) => [name, type])).toEqual([
      ['datasource', 'datasource'],
      ['job', 'query'],
      ['instance', 'query'],
    ])
    const sources = [...text.matchAll(/"uid": "([^"]*)"/g)].map(([, uid]) => uid)
    expect(new Set(sources)).toEqual(new Set(['sluice', '${datasource}']))
    expect(sources.filter((uid) => uid === 'sluice')).toHaveLength(1)
  })

  it('config/grafana/sluice.json has panels that do not overlap', () => {
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length)
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, i) => `${x + (i % w)},${y + Math.floor(i / w)}`),
    )
    expect(new Set(cells).size).toBe(cells.length)
  })

  it('config/grafana/sluice.json has expressions that Prometheus can evaluate', () => {
    const file = join(folder, 'expressions.yaml')
    const recorded = shown.map(({ expr }, i) => ({ record: `panel:${i}`, expr }))
    writeFileSync(file, stringify({ groups: [{ name: 'panels', rules: recorded }] }))
    expect(promtool(['check', 'rules', file])).toEqual([0, expect.stringContaining('SUCCESS')])
  })

  it('shows 0 for the share of refusals and errors before the first of them', () => {
    const labels = '{job="$job",instance=~"$instance",route="/",method="GET",code="200",source="upstream"}'
    const series = `sluice_http_requests_total${labels}`.replace('=~"$instance"', '="a"')
    const shares = shown.filter(({ title }) => ['Refused with 429', '5xx of the gateway'].includes(title))
    const tests = shares.map(({ expr }) => ({
      expr: expr.replaceAll('=~"$instance"', '="a"'),
      eval_time: '10m',
      exp_samples: [{ labels: '{}', value: 0 }],
    }))
    const file = join(folder, 'shares.yaml')
    const input_series = [{ series, values: '0+60x20' }]
    writeFileSync(file, stringify({ tests: [{ interval: '1m', input_series, promql_expr_test: tests }] }))
    expect(tests).toHaveLength(2)
    expect(promtool(['test', 'rules', file])).toEqual([0, expect.stringContaining('SUCCESS')])
  })
})

describe('expressions of alerts and panels', () => {
  it.each(expressions)('use metrics and labels of the gateway: $title', ({ expr }) => {
    const types = [...metrics.matchAll(/^# TYPE (\S+) (\S+)$/gm)]
    const names = new Set(
      types.flatMap(([, name, type]) =>
        type === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
      ),
    )
    // Labels of Prometheus, and of metrics that need a file, which this gateway does not have.
    const labels = new Set(['job', 'instance', 'hash', 'certificate', 'crl'])
    for (const [, label] of (metrics + freshMetrics).matchAll(/[{,]([a-z]+)="/g)) labels.add(label!)

    const used = expr.match(/\b(?:sluice|process|nodejs)_\w+/g) ?? []
    expect(used.length > 0 || /^(?:sum|absent)?\(?up\{/.test(expr)).toBe(true)
    expect(used.filter((name) => !names.has(name))).toEqual([])
    const given = [
      ...[...expr.matchAll(/[{,](\w+)(?:=~|!~|!=|=)"/g)].map(([, label]) => label!),
      ...[...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list]) => list!.split(/, */)),
    ]
    expect(given.filter((label) => !labels.has(label))).toEqual([])
  })
})
