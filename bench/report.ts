/** Formats results as Markdown and as a picture. */
import { ratios, referenceOf, type Result, type Round, type Spread, spread, titleOf } from './measure.ts'

/** A measured row of the benchmark. */
export interface Section {
  readonly title: string
  readonly results: readonly Result[]
}

/** Cells as an aligned table of Markdown; all columns but the first `texts` are numbers. */
export function markdown(
  header: readonly string[],
  lines: readonly (readonly string[])[],
  texts = 1,
): string {
  const widths = header.map((_, i) => Math.max(3, ...[header, ...lines].map((line) => line[i]!.length)))
  const row = (line: readonly string[]): string => {
    const cells = line.map((cell, i) => (i < texts ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
    return `| ${cells.join(' | ')} |`
  }
  const rule = widths.map((width, i) => (i < texts ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`))
  return [row(header), row(rule), ...lines.map(row)].join('\n')
}

export const showSpread = ({ median, min, max }: Spread): string =>
  `${median.toFixed(2)} (${min.toFixed(2)}..${max.toFixed(2)})`

const HEADER = [
  'work',
  'contender',
  'requests/s',
  'processor time',
  'p99',
  'requests/s',
  'us a request',
  'MB',
]

/** All sections as one table; the first three columns of figures are relative to the reference. */
export function comparisonTable(sections: readonly Section[]): string {
  const lines = sections.flatMap(({ title, results }) =>
    results.map((result) => [
      ...[result.contender.detail ?? title, result.contender.name],
      ...cells(result, referenceOf(result, results)),
    ]),
  )
  const failed = sections.flatMap(({ results }) => results.filter(({ failure }) => failure !== undefined))
  const reasons = failed.map(({ contender, failure }) => `${titleOf(contender)}: ${failure}.`)
  return [markdown(HEADER, lines, 2), ...new Set(reasons)].join('\n\n')
}

function cells({ rounds, ...result }: Result, reference: Result | undefined): readonly string[] {
  if (rounds.length === 0) return ['left out', '', '', '', '', '']
  const wrong = rounds.reduce((sum, round) => sum + round.wrong, 0)
  const median = (figure: (round: Round) => number): number => spread(rounds.map(figure)).median
  const relative = (figure: (round: Round) => number): string =>
    reference === undefined ? '' : showSpread(spread(ratios({ rounds, ...result }, reference, figure)))
  return [
    `${relative(({ rps }) => rps)}${wrong > 0 ? ` (${wrong} wrong answers)` : ''}`,
    ...[relative(({ cpuUs }) => cpuUs), relative(({ p99Us }) => p99Us)],
    ...[median(({ rps }) => rps).toFixed(0), median(({ cpuUs }) => cpuUs).toFixed(1)],
    median(({ rssMb }) => rssMb).toFixed(0),
  ]
}

const WIDTH = 760
const BARS_X = 190
const BARS_WIDTH = 330
const STEP = 22

/** Requests per second relative to the reference, as bars; for light and dark backgrounds. */
export function svg(sections: readonly Section[]): string {
  const bars = sections.flatMap(({ title, results }) => [
    { title },
    ...results.flatMap((result) => {
      const reference = referenceOf(result, results)
      if (reference === undefined || result.rounds.length === 0) return []
      const median = (figure: (round: Round) => number): number =>
        spread(ratios(result, reference, figure)).median
      return [
        { name: result.contender.name, rps: median(({ rps }) => rps), cpu: median(({ cpuUs }) => cpuUs) },
      ]
    }),
  ])
  const scale = BARS_WIDTH / Math.max(1, ...bars.map((bar) => ('rps' in bar ? bar.rps : 0)))
  let y = 13
  const drawn = bars.map((bar) => {
    y += 'title' in bar ? STEP + 8 : STEP
    if ('title' in bar) return `<text class="title" x="0" y="${y}">${bar.title}</text>`
    const end = BARS_X + bar.rps * scale
    return `<text x="0" y="${y}">${bar.name}</text>
  <rect class="${bar.name === 'Sluice' ? 'own' : ''}" x="${BARS_X}" y="${y - 12}" width="${(end - BARS_X).toFixed(0)}" height="16"/>
  <text x="${(end + 8).toFixed(0)}" y="${y}">${bar.rps.toFixed(2)} <tspan class="faint">at ${bar.cpu.toFixed(2)} of the processor time</tspan></text>`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + 12}" role="img" aria-label="Requests per second, bare http-proxy = 1.00">
  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .title { font-weight: 600 }
    .faint { fill: #59636e }
    rect { fill: #afb8c1 }
    .own { fill: #0969da }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .faint { fill: #9198a1 }
      rect { fill: #57606a }
      .own { fill: #4493f8 }
    }
  </style>
  <text class="faint" x="0" y="13">Requests per second, bare http-proxy = 1.00</text>
  ${drawn.join('\n  ')}
</svg>
`
}
