import { readFileSync, writeFileSync } from 'node:fs'
import { play, tableOf, withTable } from '../test/regimes/scenario.ts'
import { PAGES } from '../test/regimes/scenarios.ts'

// Run by `npm run regimes`, after a change to config/examples or to a scenario.
for (const [name, scenarios] of Object.entries(PAGES)) {
  const page = new URL(`../${name}`, import.meta.url)
  let text = readFileSync(page, 'utf8')
  for (const scenario of scenarios)
    text = withTable(text, scenario.regime, tableOf(scenario, await play(scenario)))
  writeFileSync(page, text)
}
