import { collectDefaultMetrics, Registry } from 'prom-client'
import { expect, it } from 'vitest'
import { showGauges } from '../../src/observe/gauges.ts'
import { aggregate, countsOf, createMetrics, type Metrics, textOfAll } from '../../src/observe/metrics.ts'
import { prefersOpenMetrics } from '../../src/observe/open-metrics.ts'
import { mergeStatus, type StoreStatus } from '../../src/observe/status.ts'

/** Returns the lines of some metrics. */
async function linesOf(values: Parameters<typeof aggregate>[0], name: RegExp): Promise<string[]> {
  return (await aggregate(values).metrics()).split('\n').filter((line) => name.test(line))
}

/** Shows the gauges of a process whose store is in these modes. */
function showStore(metrics: Metrics, ...modes: StoreStatus['modes']): void {
  const { store, ...others } = mergeStatus([])
  const outage = modes.includes('store') ? null : { since: '', text: '' }
  const inModes: StoreStatus = { ...store, modes, outage }
  showGauges(metrics, () => ({ ...others, workers: 1, store: inModes }))
}

it('adds up the counters of processes, and combines each gauge by its aggregator', async () => {
  const first = createMetrics()
  const workers = [createMetrics(), createMetrics()] as const
  first.configLoaded('abc')
  for (const [i, worker] of workers.entries()) {
    worker.seriesOf({ match: '/*' }).requests.inc('GET', '200', 'upstream')
    worker.seriesOf({ match: '/*' }).requests.inc('GET', i === 0 ? '200' : '429', 'gateway')
    worker.seriesOf({ match: '/*' }).seconds.observe(0.002)
    showStore(worker, i === 0 ? 'local' : 'store')
  }
  const all = await Promise.all([first, ...workers].map(({ values }) => values()))
  expect(await linesOf(all, /^sluice_(http_requests_total|store|.*info|config|workers|.*_count)/)).toEqual([
    expect.stringMatching(/^sluice_build_info\{version="[^"]+",revision="[^"]+",node="[^"]+"\} 1$/),
    'sluice_config_last_reload_successful 1',
    expect.stringMatching(/^sluice_config_last_reload_success_timestamp_seconds \d{10}/),
    'sluice_config_reload_failures_total 0',
    'sluice_config_hash_info{hash="abc"} 1',
    'sluice_configuration_kept 0',
    ...['valid', 'previous', 'invalid'].map((state) => `sluice_configuration_files{state="${state}"} 0`),
    'sluice_http_requests_total{route="/*",method="GET",code="200",source="upstream",upstream=""} 2',
    'sluice_http_requests_total{route="/*",method="GET",code="200",source="gateway",upstream=""} 1',
    'sluice_http_requests_total{route="/*",method="GET",code="429",source="gateway",upstream=""} 1',
    'sluice_http_request_duration_seconds_count{route="unmatched",upstream=""} 0',
    'sluice_http_request_duration_seconds_count{route="/*",upstream=""} 2',
    ...(await linesOf(all, /^sluice_store_duration_seconds/)),
    'sluice_workers 2',
    'sluice_store_up 0',
    'sluice_store_mode{mode="store"} 1',
    'sluice_store_mode{mode="local"} 1',
    'sluice_store_mode{mode="allow"} 0',
    'sluice_store_mode{mode="deny"} 0',
    'sluice_store_fallback_last_timestamp_seconds 0',
  ])

  first.configFailed()
  const failed = await Promise.all([first, ...workers].map(({ values }) => values()))
  expect(await linesOf(failed, /^sluice_config_(last_reload_successful|reload_failures)/)).toEqual([
    'sluice_config_last_reload_successful 0',
    'sluice_config_reload_failures_total 1',
  ])
})

it('keeps the counters of a process that exited, and drops its gauges', async () => {
  const exited = createMetrics()
  exited.seriesOf({ match: '/*' }).requests.inc('GET', '200', 'upstream')
  exited.seriesOf({ match: '/*' }).seconds.observe(0.002)
  showStore(exited, 'local')
  const kept = countsOf([await exited.values()])
  const successor = createMetrics()
  successor.seriesOf({ match: '/*' }).requests.inc('GET', '200', 'upstream')
  showStore(successor, 'store')
  const sum = [await successor.values(), countsOf([kept, kept])]
  expect(await linesOf(sum, /^sluice_(http_requests_total|store_up|.*seconds_count)/)).toEqual([
    'sluice_http_requests_total{route="/*",method="GET",code="200",source="upstream",upstream=""} 3',
    'sluice_http_request_duration_seconds_count{route="unmatched",upstream=""} 0',
    'sluice_http_request_duration_seconds_count{route="/*",upstream=""} 2',
    'sluice_store_duration_seconds_count 0',
    'sluice_store_up 1',
  ])
})

it('has the metrics of the process and of Node.js that prom-client has, except those with wrong names and of collections', async () => {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const described = (values: Parameters<typeof aggregate>[0][number]) =>
    values
      .filter(({ name }) => !/^sluice_|^nodejs_(?:active_|gc_)/.test(name))
      // Some metrics of several processes are combined in another way.
      .map(({ name, help, type }) => `${name} ${type}: ${help}`)
      .toSorted()
  const values = await createMetrics().values()
  expect(described(values)).toEqual(described(await registry.getMetricsAsJSON()))
  expect(values.filter(({ name }) => /^nodejs_(?:active_|gc_)/.test(name))).toEqual([])
})

it('counts the processor time since the metrics were created, at each read', async () => {
  const { text } = createMetrics()
  const read = async (): Promise<number[]> => {
    const times = /^process_cpu_(?:user_|system_|)seconds_total (\S+)$/gm
    return [...(await text()).matchAll(times)].map(([, value]) => Number(value))
  }
  const [user, system, both] = await read()
  expect(both! - user! - system!).toBeLessThan(0.01)
  const end = process.cpuUsage().user + 50_000
  while (process.cpuUsage().user < end);
  const [laterUser, laterSystem, laterBoth] = await read()
  expect(laterUser! - user!).toBeGreaterThan(0.04)
  expect(laterSystem!).toBeGreaterThanOrEqual(system!)
  expect(laterBoth!).toBeGreaterThan(both!)
})

it('shows OpenMetrics with the same values, and the latest traced call of each bucket of all processes', async () => {
  const [first, second] = [createMetrics(), createMetrics()]
  for (const [i, { seriesOf }] of [first, second].entries()) {
    const { requests, seconds } = seriesOf({ match: '/"a"' })
    requests.inc('GET', '200', 'upstream')
    seconds.observe(0.002, `trace-${i}`)
    seconds.observe(0.3)
  }
  second.seriesOf({ match: '/"a"' }).seconds.observe(0.004, 'slow')
  const one = await first.text('openmetrics')
  expect(one).toMatch(/^# HELP sluice_http_requests Ended requests\.\n# TYPE sluice_http_requests counter$/m)
  expect(one).toContain(
    'sluice_http_requests_total{route="/\\"a\\"",method="GET",code="200",source="upstream",upstream=""} 1\n',
  )
  expect(one).toMatch(/\n# EOF\n$/)
  const exemplarsIn = (text: string) =>
    [...text.matchAll(/le="(.*?)".*\} \d+ # \{trace_id="(.*)"\} ([\d.]+) \d+\.\d{3}$/gm)].map(
      ([, ...parts]) => parts.join(' '),
    )
  expect(exemplarsIn(one)).toEqual(['0.0025 trace-0 0.002'])

  const all = await Promise.all([first.values(), second.values()])
  // As another process sends them.
  const sent = JSON.parse(JSON.stringify(all)) as typeof all
  const both = await textOfAll(sent, 'openmetrics')
  expect(exemplarsIn(both)).toEqual(['0.0025 trace-1 0.002', '0.005 slow 0.004'])
  const valuesOf = (text: string) => text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  const plain = await textOfAll(sent, 'prometheus')
  expect(plain).not.toContain('trace_id')
  expect(valuesOf(both).map((line) => line.replace(/ # .*/, ''))).toEqual(valuesOf(plain))
})

it.each([
  ['application/openmetrics-text', true],
  ['application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1', true],
  ['application/openmetrics-text;version=1.0.0;q=0.3, text/plain;q=0.5', false],
  ['application/openmetrics-text;q=0', false],
  ['text/plain, application/openmetrics-text;q=x', false],
  ['*/*', false],
  [undefined, false],
])('answers Accept %s with OpenMetrics: %s', (accept, isOpen) => {
  expect(prefersOpenMetrics(accept)).toBe(isOpen)
})

it('shows the open files and the event loop of the process that is nearest to its bound', async () => {
  const own = await createMetrics().values()
  const names = /^(?:process_(?:open|max)_fds|nodejs_eventloop_lag_p99_seconds)$/
  const having = (value: number) =>
    own
      .filter(({ name }) => names.test(name))
      .map((metric) => ({ ...metric, values: [{ labels: {}, value }] })) as unknown as typeof own
  const lines = (await linesOf([having(7), having(90), having(8)], /^[a-z]/)).toSorted()
  expect(lines).toEqual(['nodejs_eventloop_lag_p99_seconds 90', 'process_max_fds 90', 'process_open_fds 90'])
})
