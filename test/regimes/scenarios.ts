import { AUSTRALIA } from './australia.ts'
import { BRAZIL } from './brazil.ts'
import { EUROPEAN_UNION } from './european-union.ts'
import { UNITED_KINGDOM } from './united-kingdom.ts'

export const SCENARIOS = [EUROPEAN_UNION, UNITED_KINGDOM, BRAZIL, AUSTRALIA]
