import { AUSTRALIA } from './australia.ts'
import { BRAZIL } from './brazil.ts'
import { EUROPEAN_UNION } from './european-union.ts'
import { RECIPES } from './recipes.ts'
import type { Scenario } from './scenario.ts'
import { UNITED_KINGDOM } from './united-kingdom.ts'

/** The pages that show scenarios as tables, with their scenarios. */
export const PAGES: Readonly<Record<string, readonly Scenario[]>> = {
  'docs/regimes.md': [EUROPEAN_UNION, UNITED_KINGDOM, BRAZIL, AUSTRALIA],
  'docs/choosing-a-limit.md': RECIPES,
}
