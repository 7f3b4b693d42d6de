import { type NumberSource, sourceOf, Unsettled, type Used } from '../actual/actual.ts'
import { ResponseReading } from '../actual/response-reading.ts'
import { allowanceUnder, type Decision } from '../limit/decision.ts'
import type { Limiter } from '../limit/limiter.ts'
import type { Quota } from '../limit/quota.ts'
import type { Allowance } from '../limit/store.ts'
import type { Limit } from '../policy/limit.ts'
import type { ResponseReader } from '../upstream/response-reader.ts'
import type { Held, Reserves } from './reserves.ts'
import type { Usage } from './usage.ts'

/** The charges of the calls of a route by what they use. */
export interface Settling {
  /** The place of the number, by the names of limits. */
  readonly sources: ReadonlyMap<string, NumberSource>
  /** True if a number is in the body of the response, which must not be compressed. */
  readonly readsBody: boolean
  /** True if a number is in a field of the response. */
  readonly readsFields: boolean
}

/** Returns how the calls of limits are charged by what they use; undefined if none is. */
export function settlingOf(limits: readonly Limit[]): Settling | undefined {
  const sources = new Map<string, NumberSource>()
  for (const { name, actual } of limits) if (actual !== undefined) sources.set(name, sourceOf(actual))
  if (sources.size === 0) return undefined
  const all = [...sources.values()]
  return {
    sources,
    readsBody: all.some(({ json }) => json !== undefined),
    readsFields: all.some(({ field }) => field !== undefined),
  }
}

/** A reserve that a call was charged, and what it turned out to use; undefined until that is decided. */
export interface Reserved extends Held {
  readonly source: NumberSource
  used: Used | undefined
}

/** A reserve, and the points that its call used, as far as they are known. */
type KnownUse = Readonly<Pick<Reserved, 'quota' | 'points' | 'used'>>

/** The end of a call, as far as its charges depend on it. */
export interface CallEnd {
  /** True if limits with `count: success` do not count the call. */
  readonly hasFailed: boolean
  /** Why no number of a body is known; undefined if the response is complete. */
  readonly obstacle: string | undefined
  /** Bytes of the bodies. */
  readonly request: number
  readonly response: number
}

interface SettlementDeps {
  readonly limiter: Pick<Limiter, 'settle'>
  readonly reserves: Reserves
  /** Returns the fields of limits of a decision, as text for `appendFields`. */
  rateLimitHeaders(decision: Decision, quotas: readonly Quota[]): string
  readonly usage: Pick<Usage, 'drop'>
}

/** Holds the reserves of an admitted call; undefined if it was charged none. */
export function openSettlement(
  deps: SettlementDeps,
  settling: Settling,
  quotas: readonly Quota[],
  decision: Decision,
): CallSettlement | undefined {
  const reserved = reservesOf(quotas, settling.sources, decision)
  if (reserved.length === 0) return undefined
  for (const one of reserved) deps.reserves.hold(one)
  return new CallSettlement(deps, settling, quotas, decision, reserved)
}

/**
 * The reserves of one admitted call. Each becomes what the call used: by a response field when the
 * head of the response comes, else at the end of the call. Until then, and if the number is unknown,
 * the reserve is what is counted.
 */
export class CallSettlement implements ResponseReader {
  readonly reserved: readonly Reserved[]
  /** The decision of the call, with what is known of its use. */
  decision: Decision
  /** The decision as the call was charged. */
  readonly #charged: Decision
  readonly #deps: SettlementDeps
  readonly #settling: Settling
  readonly #quotas: readonly Quota[]
  readonly #reading: ResponseReading

  constructor(
    deps: SettlementDeps,
    settling: Settling,
    quotas: readonly Quota[],
    decision: Decision,
    reserved: readonly Reserved[],
  ) {
    this.#deps = deps
    this.#settling = settling
    this.#quotas = quotas
    this.#charged = this.decision = decision
    this.reserved = reserved
    this.#reading = new ResponseReading(settling.readsBody)
  }

  /**
   * Reads the head of the response, before it is sent. Charges what its fields say, and returns the
   * fields of limits that are then true; undefined if there are no others. A reserve whose field has
   * no number stays open until the end.
   */
  readHead(status: number, rawHeaders: readonly string[], isBodiless: boolean): string | undefined {
    this.#reading.readHead(status, rawHeaders, isBodiless)
    if (!this.#settling.readsFields) return undefined
    const known = this.#knownByFields(status >= 400)
    if (known.size === 0) return undefined
    const shown = withUse(
      this.#charged,
      this.reserved.map((one) => ({ ...one, used: known.get(one) })),
    )
    // For a limit that counts successes, the end decides whether the call is one.
    const final = [...known.keys()].filter(({ quota }) => !quota.countsSuccess)
    for (const one of final) one.used = known.get(one)
    if (final.length > 0) this.#settle(final, false)
    return this.#deps.rateLimitHeaders(shown, this.#quotas)
  }

  readChunk(chunk: Buffer): void {
    this.#reading.readChunk(chunk)
  }

  /** Charges the rest at the end of the call, and refunds a failed one to limits that count successes. */
  end(end: CallEnd): void {
    const open = this.reserved.filter(({ used }) => used === undefined)
    for (const one of open) one.used = this.#usedAtEnd(one, end)
    this.#settle(open, end.hasFailed)
  }

  /** Returns what a response used whose head has the number of a reserve in a field. */
  #knownByFields(hasFailed: boolean): ReadonlyMap<Reserved, number> {
    const known = new Map<Reserved, number>()
    for (const one of this.reserved) {
      const { quota, source } = one
      if (source.field === undefined || (hasFailed && quota.countsSuccess)) continue
      const used = this.#reading.ofField(source.field)
      if (typeof used === 'number') known.set(one, used)
    }
    return known
  }

  #usedAtEnd({ quota, source }: Reserved, end: CallEnd): Used {
    if (end.hasFailed && quota.countsSuccess) return 0
    // A field is known if a head came.
    if (end.obstacle === undefined || (source.field !== undefined && this.#reading.hasHead))
      return this.#reading.ofWhole(source, end)
    return new Unsettled(end.obstacle)
  }

  /** Charges what the call used of reserves for which that was just decided; once for each. */
  #settle(now: readonly Reserved[], hasFailed: boolean): void {
    for (const one of now) this.#deps.reserves.release(one)
    this.decision = withUse(this.#charged, this.reserved)
    this.#deps.limiter.settle(this.#quotas, this.#charged, (quota) => {
      const used = now.find((one) => one.quota === quota)?.used
      if (typeof used === 'number') return used
      return hasFailed && quota.countsSuccess ? 0 : undefined
    })
    this.#deps.usage.drop(this.#quotas)
  }
}

/** Returns the quotas of a decision that were charged a reserve. */
function reservesOf(
  quotas: readonly Quota[],
  sources: Settling['sources'],
  decision: Decision,
): readonly Reserved[] {
  const reserved: Reserved[] = []
  for (const quota of quotas) {
    const source = sources.get(quota.name)
    if (source !== undefined && allowanceUnder(decision, quota)?.admitted === true)
      reserved.push({ quota, points: quota.cost!, source, used: undefined, place: 0 })
  }
  return reserved
}

/** Returns the decision of a call with what is known of its use. */
const withUse = (charged: Decision, known: readonly KnownUse[]): Decision => ({
  ...charged,
  allowances: charged.allowances.map((one) => settled(one, known)),
})

/** Returns an allowance with what is known of the use of its call, or of another limit's with the same counter. */
function settled(allowance: Allowance, known: readonly KnownUse[]): Allowance {
  const own = known.find(({ quota }) => isCountedBy(quota, allowance))
  if (typeof own?.used !== 'number') return allowance
  const change = own.used - own.points
  const used = Math.max(0, allowance.used + change)
  // Unused points first reduce what is owed beyond the limit.
  const remaining = Math.min(Math.max(0, allowance.limit - used), Math.max(0, allowance.remaining - change))
  return { ...allowance, used, remaining }
}

/** True if an allowance is that of a quota, or of a shadow with the same counter. */
const isCountedBy = ({ name, shadowShares }: Quota, allowance: Allowance): boolean =>
  name === allowance.name || (shadowShares?.some((share) => share.name === allowance.name) ?? false)
