import { z } from 'zod'
import type { Actual } from '../../actual/actual.ts'
import { parsePath } from '../../actual/path.ts'
import { counterNameOf, type KeyedLimit } from '../../policy/key.ts'
import { issueAt, mustBe } from '../yaml/issue.ts'
import { isFieldName } from './texts.ts'
import { choice, exclusive, int, section, stringThat } from './values.ts'

/** Maximum points that a call is charged when it is admitted: a month's limit of the largest ones. */
const MAX_POINTS = 1_000_000_000

const points = int(0, MAX_POINTS)

const path = stringThat((text) => {
  const names = parsePath(text)
  return typeof names !== 'string' || `is not a path: it ${names}`
}, 'the path of a number in the body, such as usage.total_tokens')

const SOURCES = ['json', 'field', 'bytes'] as const

/** The place of the number that a call used. */
const actual = section(
  {
    json: path.exactOptional(),
    field: stringThat(isFieldName, 'the name of a response field').exactOptional(),
    bytes: choice(['request', 'response', 'both']).exactOptional(),
  },
  function* (written) {
    if (SOURCES.every((key) => written[key] === undefined))
      yield issueAt([], 'must have one of "json", "field" and "bytes"; write one')
    yield* exclusive(written, SOURCES)
  },
)

/** The points that a call is charged until its response says what it used. */
const reserve = section({ reserve: int(1, MAX_POINTS), actual })
type Reserve = z.output<typeof reserve>

const RESERVE = '{ reserve: 4000, actual: { json: usage.total_tokens } }'
const A_COST = `a whole number from 0 to ${MAX_POINTS}, or ${RESERVE}`
/** Limits with the names of the keys of a reserve cannot be named here. */
const LIMIT = z.string().regex(/^(?!(?:reserve|actual)$)/, { error: 'is a key of a reserve, not a limit' })
const ofLimits = z.record(LIMIT, z.union([points, reserve], mustBe(A_COST)))

const A_MAPPING = 'a mapping of limits to these, such as { requests: 4 }'
export const cost = z.union([points, reserve, ofLimits], mustBe(`${A_COST}, or ${A_MAPPING}`))

/** The points that a call of a route is charged at first: for all limits of the route, or for each by its name. */
export type Cost = z.output<typeof cost>

export const isReserve = (cost: Cost): cost is Reserve => typeof cost === 'object' && 'actual' in cost

interface Costly {
  readonly cost?: Cost | undefined
}

/** Returns what a call of a route is charged under a limit: as under its counter. */
function chargeOf({ cost = 1 }: Costly, limit: KeyedLimit): number | Reserve {
  return typeof cost === 'number' || isReserve(cost) ? cost : (cost[counterNameOf(limit)] ?? 1)
}

/** Returns the points that a call of a route takes from a limit when it is admitted. */
export function costOf(route: Costly, limit: KeyedLimit): number {
  const charge = chargeOf(route, limit)
  return typeof charge === 'number' ? charge : charge.reserve
}

/** Returns where the number is that a call of a route used of a limit; undefined if its cost is fixed. */
export function actualOf(route: Costly, limit: KeyedLimit): Actual | undefined {
  const charge = chargeOf(route, limit)
  return typeof charge === 'number' || limit.isConcurrent === true ? undefined : charge.actual
}

/** True if calls of a route may take more points than one from a limit. */
export const takesPoints = (route: Costly, limit: KeyedLimit): boolean =>
  costOf(route, limit) > 1 || actualOf(route, limit) !== undefined
