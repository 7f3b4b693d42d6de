/**
 * Compares Sluice with bare http-proxy and other gateways on Node and nginx:
 * `npm run bench [-- --rows A,B --rounds N --seconds S --svg]`.
 * `--parts` omits one part of Sluice at a time. `--svg` writes the table of this version of Node.js into docs/performance.md, and
 * docs/performance.svg on the version of the container.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { installPeers, ROOT } from './contenders.ts'
import { FIGURES } from './figures.ts'
import { type Bench, compare, runCommand } from './measure.ts'
import { comparisonTable, type Section, svg } from './report.ts'
import { ROWS } from './rows.ts'

const MAJOR = process.versions.node.split('.')[0]!
const IMAGE_MAJOR = '24'

const { values } = parseArgs({
  options: {
    rows: { type: 'string', default: 'reused,new,refused,identity,p99' },
    rounds: { type: 'string', default: '15' },
    seconds: { type: 'string', default: '2' },
    parts: { type: 'boolean', default: false },
    svg: { type: 'boolean', default: false },
  },
})

/** The names of the rows asked for; p99 is a column of the first. */
function chosenRows(): ReadonlySet<string> {
  const known = [...Object.keys(ROWS), ...Object.keys(FIGURES)]
  const names = (values.parts ? 'parts' : values.rows.replace('p99', 'reused')).split(',')
  if (names.includes('all')) return new Set(known)
  const unknown = names.filter((name) => !known.includes(name))
  if (unknown.length === 0) return new Set(names)
  throw new Error(`no row ${unknown.join(', ')}; there are ${known.join(', ')}, p99, all`)
}

function publish(sections: readonly Section[], text: string): void {
  const file = join(ROOT, 'docs', 'performance.md')
  const [begin, end] = [`<!-- bench ${MAJOR}: begin -->`, `<!-- bench ${MAJOR}: end -->`]
  const [before, , after] = readFileSync(file, 'utf8').split(new RegExp(`(?<=${begin})|(?=${end})`))
  if (after === undefined) throw new Error(`docs/performance.md has no ${begin} and ${end}`)
  writeFileSync(file, `${before}\n\n${text}\n\n${after}`)
  if (MAJOR === IMAGE_MAJOR) writeFileSync(join(ROOT, 'docs', 'performance.svg'), svg(sections))
}

async function command(bench: Bench): Promise<number> {
  const startedAt = performance.now()
  const sections: Section[] = []
  const tables: string[] = []
  for (const name of chosenRows()) {
    console.error(`bench: ${name}`)
    const row = ROWS[name]
    if (row === undefined) tables.push(await FIGURES[name]!(bench))
    else sections.push({ title: row.title, results: await compare(bench, await row.contenders(bench)) })
  }
  if (sections.length > 0) {
    const how = `median (min..max) of ${bench.rounds} rounds of ${bench.seconds} s at 50 connections`
    const machine = `${cpus()[0]!.model}, Node ${process.versions.node}`
    const legend = `Requests, processor time and p99 relative to bare http-proxy in the same round; ${how}; ${machine}.`
    tables.unshift(`${comparisonTable(sections)}\n\n${legend}`)
  }
  console.log(tables.join('\n\n'))
  if (values.svg) publish(sections, tables.join('\n\n'))
  console.error(`bench: took ${((performance.now() - startedAt) / 60_000).toFixed(1)} min`)
  return 0
}

const absent = installPeers()
for (const [name, why] of absent) console.error(`bench: ${name} is left out: ${why}`)
await runCommand(values, command, absent)
