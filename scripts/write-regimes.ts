import { readFileSync, writeFileSync } from 'node:fs'
import { play, tableOf, withTable } from '../test/regimes/scenario.ts'
import { SCENARIOS } from '../test/regimes/scenarios.ts'

// Run by `npm run regimes`, after a change to config/examples or to a scenario.
const page = new URL('../docs/regimes.md', import.meta.url)
let text = readFileSync(page, 'utf8')
for (const scenario of SCENARIOS)
  text = withTable(text, scenario.regime, tableOf(scenario, await play(scenario)))
writeFileSync(page, text)
