/**
 * Sluice beside bare http-proxy and other gateways on Node and nginx: `npm run bench [-- --rows A,B --rounds N --seconds S --svg]`.
 * `--parts` leaves out one part of Sluice at a time. `--svg` writes docs/performance.svg and the table of the README.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { installPeers, ROOT } from './contenders.ts'
import { FIGURES } from './figures.ts'
import { compare, openBench } from './measure.ts'
import { comparisonTable, type Section, svg } from './report.ts'
import { ROWS } from './rows.ts'

const DEFAULT = 'reused,new,refused,identity,p99'
const MARKS = ['<!-- written by npm run bench -- --svg -->', '<!-- end of what is written -->'] as const

const { values } = parseArgs({
  options: {
    rows: { type: 'string', default: DEFAULT },
    rounds: { type: 'string', default: '15' },
    seconds: { type: 'string', default: '2' },
    parts: { type: 'boolean', default: false },
    svg: { type: 'boolean', default: false },
  },
})

/** The names of the rows asked for; p99 is a column of the first. */
function chosenRows(): readonly string[] {
  if (values.parts) return ['parts']
  const known = [...Object.keys(ROWS), ...Object.keys(FIGURES)]
  if (values.rows === 'all') return known.filter((name) => name !== 'parts')
  const names = values.rows.split(',').map((name) => (name === 'p99' ? 'reused' : name))
  const unknown = names.filter((name) => !known.includes(name))
  if (unknown.length > 0)
    throw new Error(`no row ${unknown.join(', ')}; there are ${known.join(', ')}, p99, all`)
  return [...new Set(names)]
}

function writeReadme(table: string): void {
  const file = join(ROOT, 'README.md')
  const text = readFileSync(file, 'utf8')
  const [from, to] = MARKS.map((mark) => text.indexOf(mark))
  if (from === -1 || to === -1) throw new Error(`README.md has no ${MARKS.join(' and ')}`)
  writeFileSync(file, `${text.slice(0, from! + MARKS[0].length)}\n\n${table}\n\n${text.slice(to)}`)
}

try {
  const rows = chosenRows()
  const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)]
  const startedAt = performance.now()
  const absent = installPeers()
  for (const [name, why] of absent) console.error(`bench: ${name} is left out: ${why}`)
  const bench = await openBench({ rounds, seconds, absent })
  const sections: Section[] = []
  const tables: string[] = []
  for (const name of rows) {
    console.error(`bench: ${name}`)
    const row = ROWS[name]
    if (row === undefined) tables.push(await FIGURES[name]!(bench))
    else sections.push({ title: row.title, results: await compare(bench, await row.contenders(bench)) })
  }
  bench.store.disconnect()
  const machine = `${cpus()[0]!.model}, Node ${process.versions.node}`
  const legend = `Relative to bare http-proxy in the same round, unless the contender says otherwise: median (min..max) of ${rounds} rounds of ${seconds} s, 50 connections, ${machine}.`
  if (sections.length > 0) tables.unshift(`${comparisonTable(sections)}\n\n${legend}`)
  console.log(tables.join('\n\n'))
  if (values.svg) {
    writeFileSync(join(ROOT, 'docs', 'performance.svg'), svg(sections))
    writeReadme(tables.join('\n\n'))
  }
  console.error(`bench: took ${((performance.now() - startedAt) / 60_000).toFixed(1)} min`)
  process.exit(0)
} catch (error) {
  console.error(`bench: ${(error as Error).message}`)
  process.exit(1)
}
