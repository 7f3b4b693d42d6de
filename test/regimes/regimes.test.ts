import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { play, stepsOf, tableOf, withTable } from './scenario.ts'
import { PAGES } from './scenarios.ts'

const ROOT = new URL('../../', import.meta.url)
const read = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8')
const page = read('docs/regimes.md')
const scenarios = Object.entries(PAGES).flatMap(([name, scenarios]) =>
  scenarios.map((scenario) => ({ name, regime: scenario.regime, scenario })),
)

describe.each(scenarios)('the scenario of $regime', ({ name, scenario }) => {
  it('is answered as expected, and its page has its table (npm run regimes)', async () => {
    const page = read(name)
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

  it('each example has a section in docs/regimes.md or docs/choosing-a-limit.md, or in docs/charging-by-use.md', () => {
    const files = readdirSync(new URL('config/examples', ROOT)).map((name) => `config/examples/${name}`)
    const recipes = PAGES['docs/choosing-a-limit.md']!.map(({ regime }) => `config/examples/${regime}.yaml`)
    const byUse = read('docs/charging-by-use.md').match(/config\/examples\/[\w-]+\.yaml/g)!
    const shown = [...sections.map(({ file }) => file), ...recipes, ...byUse]
    expect(shown.toSorted()).toEqual(files.toSorted())
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
