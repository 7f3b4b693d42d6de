import type { Registry } from 'prom-client'
import type { Exemplar } from './hot-histogram.ts'

/** The format of `/metrics`. */
export type MetricsFormat = 'prometheus' | 'openmetrics'

/** The metrics of one process, as plain values. */
export type MetricValues = Readonly<Awaited<ReturnType<Registry['getMetricsAsJSON']>>>

/** OpenMetrics 1.0.0, "Overall Structure". */
export const OPEN_METRICS_TYPE = 'application/openmetrics-text; version=1.0.0; charset=utf-8'

/** A value of a metric; histograms have the names of their series, and exemplars. */
interface Sample {
  readonly metricName?: string
  readonly labels?: Readonly<Record<string, string | number | undefined>>
  readonly value: number
  readonly exemplar?: Exemplar
}

const samplesOf = ({ values }: MetricValues[number]) => values as unknown as readonly Sample[]

/**
 * Formats metrics as OpenMetrics. prom-client changes the names of its counters when it does. `parts`
 * are the metrics of the processes that `all` adds up: the sums have no exemplars.
 */
export function openMetricsText(all: MetricValues, parts: readonly MetricValues[] = [all]): string {
  const exemplars = exemplarsOf(parts)
  const lines: string[] = []
  for (const metric of all) {
    const isCounter = String(metric.type) === 'counter'
    const family = isCounter ? metric.name.replace(/_total$/, '') : metric.name
    lines.push(`# HELP ${family} ${escape(metric.help)}`, `# TYPE ${family} ${String(metric.type)}`)
    for (const sample of samplesOf(metric)) {
      const name = sample.metricName ?? (isCounter ? `${family}_total` : family)
      const exemplar = exemplars.get(idOf(name, sample))
      lines.push(`${name}${labelsText(sample.labels)} ${numberText(sample.value)}${exemplarText(exemplar)}`)
    }
  }
  return `${lines.join('\n')}\n# EOF\n`
}

/** Returns the latest exemplar of each series. */
function exemplarsOf(parts: readonly MetricValues[]): ReadonlyMap<string, Exemplar> {
  const latest = new Map<string, Exemplar>()
  for (const metric of parts.flat()) {
    for (const sample of samplesOf(metric)) {
      const { exemplar } = sample
      if (exemplar === undefined) continue
      const id = idOf(sample.metricName!, sample)
      if (exemplar.timestamp >= (latest.get(id)?.timestamp ?? 0)) latest.set(id, exemplar)
    }
  }
  return latest
}

/** The name and the labels. Only sums of several processes lack exemplars, and have the labels in the same order. */
const idOf = (name: string, { labels }: Sample): string => `${name}${labelsText(labels)}`

function exemplarText(exemplar: Exemplar | undefined): string {
  if (exemplar === undefined) return ''
  const { labelSet, value, timestamp } = exemplar
  return ` # ${labelsText(labelSet)} ${numberText(value)} ${timestamp.toFixed(3)}`
}

function labelsText(labels: Sample['labels'] = {}): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escape(String(value))}"`)
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`
}

const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' }
const escape = (text: string): string => text.replaceAll(/[\\"\n]/g, (char) => ESCAPES[char]!)

function numberText(value: number): string {
  if (value === Infinity) return '+Inf'
  return value === -Infinity ? '-Inf' : String(value)
}

/** Maximum characters of an Accept field that are read. */
const MAX_ACCEPT = 1000

/** True if a scraper accepts OpenMetrics, and prefers no other text (RFC 9110 section 12.5.1). */
export function prefersOpenMetrics(accept = ''): boolean {
  const ranges = accept.slice(0, MAX_ACCEPT).split(',')
  const qualityOf = (type: string): number => Math.max(0, ...ranges.map((range) => quality(range, type)))
  const wanted = qualityOf('application/openmetrics-text')
  return wanted > 0 && wanted >= qualityOf('text/plain')
}

/** Returns the quality of a media range if it names the type, else 0. */
function quality(range: string, type: string): number {
  const [name = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase())
  if (name !== type) return 0
  const weight = parameters.find((parameter) => parameter.startsWith('q='))
  return weight === undefined ? 1 : Number(weight.slice(2)) || 0
}
