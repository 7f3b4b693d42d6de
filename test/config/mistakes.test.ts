import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { problemLine } from '../../src/config/yaml/issue.ts'
import { BESIDE, completed, load, mistakesIn } from './load-text.ts'

const ENV = { EMPTY: '', WORD: 'word', BIG: '99999', LIST: '[a, b]' }
const NOW_MS = Date.parse('2027-01-01T00:00:00Z')
const FOLDER = join(import.meta.dirname, 'mistakes')

interface Case {
  readonly title: string
  readonly text: string
  readonly lines: readonly string[]
}

/** Reads the cases of a file: `#--- title`, a text, completed to a valid file unless the title begins with `whole: `, and `#> ` before each expected line. */
async function casesOf(file: string): Promise<readonly Case[]> {
  const [, ...cases] = (await readFile(join(FOLDER, file), 'utf8')).trimEnd().split(/^#--- /m)
  return cases.map((one) => {
    const [title = '', ...rest] = one.replace(/\n$/, '').split('\n')
    const text = rest.filter((line) => !line.startsWith('#> ')).join('\n')
    const lines = rest.filter((line) => line.startsWith('#> ')).map((line) => `sluice.yaml:${line.slice(3)}`)
    return { title, text: title.startsWith('whole: ') ? text : completed(text), lines }
  })
}

function namedIn(text: string): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(BESIDE).filter(([name]) => text.includes(name)))
}

for (const file of (await readdir(FOLDER)).filter((file) => file !== 'warnings.yaml')) {
  const cases = await casesOf(file)
  describe(`mistakes in ${file}`, () => {
    it.for(cases.map((one) => [one.title, one] as const))('names %s', async ([, { text, lines }]) => {
      const mistakes = await mistakesIn(text, ENV, [], namedIn(text))
      expect(mistakes).toEqual(lines)
      expect(mistakes.join('\n')).not.toMatch(/hunter2|271828/)
    })
  })
}

const warnings = await casesOf('warnings.yaml')
describe('warnings', () => {
  it.for(warnings.map((one) => [one.title, one] as const))('names %s', async ([, { text, lines }]) => {
    const { config } = await load(text, {}, [], undefined, NOW_MS)
    expect(config.warnings.map((one) => problemLine(one).replace(/^.*\/(?=sluice\.yaml:)/, ''))).toEqual(
      lines,
    )
  })
})
