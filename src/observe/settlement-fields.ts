import { Unsettled } from '../actual/actual.ts'
import type { Exchange } from '../gateway/exchange.ts'
import type { Reserved, CallSettlement } from '../gateway/settlement.ts'

/** One value for all limits of a call, or values by the names of limits. */
type ByLimit<T> = T | Readonly<Record<string, T>>

/** The reserves of a call and what became of them, as the log and spans show them. */
interface SettlementFields {
  readonly reserved: ByLimit<number>
  /** The points that the call used; undefined if they are not known. */
  readonly settled: ByLimit<number> | undefined
  /** Why they are not. */
  readonly unsettled: ByLimit<string> | undefined
}

/** Returns what is shown of the reserves of a call. */
function settlementFields({ reserved }: CallSettlement): SettlementFields {
  return {
    reserved: valuesOf(reserved, ({ points }) => points)!,
    settled: valuesOf(reserved, ({ used }) => (typeof used === 'number' ? used : undefined)),
    unsettled: valuesOf(reserved, ({ used }) => (used instanceof Unsettled ? used.reason : undefined)),
  }
}

/** Returns the value that all limits have, else those of the limits that have one; undefined if none has. */
function valuesOf<T extends number | string>(
  all: readonly Reserved[],
  valueOf: (one: Reserved) => T | undefined,
): ByLimit<T> | undefined {
  const [first] = all
  const common = valueOf(first!)
  if (all.length === 1 || all.every((one) => valueOf(one) === common)) return common
  const named = all.map((one) => [one.quota.name, valueOf(one)] as const)
  return Object.fromEntries(named.filter((pair): pair is [string, T] => pair[1] !== undefined))
}

/** Returns the fields of a call's reserves for its line of the log. */
export function settlementText(settlement: CallSettlement): string {
  const { reserved, settled, unsettled } = settlementFields(settlement)
  let text = `,"reserved":${jsonOf(reserved)}`
  if (settled !== undefined) text += `,"settled":${jsonOf(settled)}`
  if (unsettled !== undefined) text += `,"unsettled":${jsonOf(unsettled)}`
  return text
}

/** Returns a value as JSON; most are a number. */
const jsonOf = (value: ByLimit<string | number>): string | number =>
  typeof value === 'number' ? value : JSON.stringify(value)

/** Returns the attributes of a call's reserves for its span; values by limit as JSON. */
export function settlementAttributes({ settlement }: Exchange): Record<string, string | number | undefined> {
  if (settlement === undefined) return {}
  const { reserved, settled, unsettled } = settlementFields(settlement)
  return {
    'sluice.reserved': attributeOf(reserved),
    'sluice.settled': attributeOf(settled),
    'sluice.unsettled': attributeOf(unsettled),
  }
}

const attributeOf = (value: ByLimit<string | number> | undefined): string | number | undefined =>
  typeof value === 'object' ? JSON.stringify(value) : value
