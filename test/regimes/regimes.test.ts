import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { play, stepsOf, tableOf, withTable } from './scenario.ts'
import { SCENARIOS } from './scenarios.ts'

const ROOT = new URL('../../', import.meta.url)
const read = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8')
const page = read('docs/regimes.md')

describe.each(SCENARIOS)('the scenario of $regime', (scenario) => {
  it('is answered as expected, and docs/regimes.md has its table (npm run regimes)', async () => {
    const answers = await play(scenario)
    const steps = stepsOf(scenario)
    expect(steps.map(({ at, name }, i) => `${at} ${name}: ${answers[i]}`)).toEqual(
      steps.map(({ at, name, answer }) => `${at} ${name}: ${answer}`),
    )
    expect(page).toBe(withTable(page, scenario.regime, tableOf(scenario, answers)))
  })
})

describe('docs/regimes.md', () => {
  const sections = page.split(/^## /m).flatMap((section) => {
    const [, file] = /\]\(\.\.\/(config\/examples\/.*?\.yaml)\)/.exec(section) ?? []
    return file === undefined ? [] : [{ file, section }]
  })

  it('has a section for each example', () => {
    const files = readdirSync(new URL('config/examples', ROOT)).map((name) => `config/examples/${name}`)
    expect(sections.map(({ file }) => file).toSorted()).toEqual(files.toSorted())
  })

  it.each(sections)('quotes the lines of $file as they are', ({ file, section }) => {
    const [, rules = ''] = /\n\| rule \|.*\n\|[-|]+\n((?:\|.*\n)+)/.exec(section) ?? []
    const lines = [...rules.matchAll(/^\| .*? \| (.*?) \| .*\|$/gm)].map(([, cell]) => cell!)
    expect(lines.length).toBeGreaterThan(2)
    const text = read(file)
    for (const [, code] of lines.join().matchAll(/`([^`]+)`/g))
      expect(text).toContain(code!.replaceAll('\\|', '|'))
  })
})
