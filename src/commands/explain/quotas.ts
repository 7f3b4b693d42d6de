import type { Caller } from '../../authenticate/caller.ts'
import type { Config } from '../../config/schema.ts'
import { type Limit, quotasFor } from '../../limit/limit.ts'
import type { Params } from '../../route.ts'
import { instant } from '../units.ts'

/** What a limit is for a caller at an instant, and why. */
export interface ExplainedLimit {
  readonly name: string
  readonly limit: number
  readonly windowMs: number
  readonly shadow: boolean
  readonly per: readonly string[]
  /** The key that is counted; null while a part of it is not known. */
  readonly key: string | null
  /** Its parts that the question leaves open. */
  readonly lacking: readonly string[]
  /** The limit as configured, a change of it, or the client's own limit. */
  readonly decidedBy: 'limit' | 'change' | 'client'
  readonly because: string
  /** What it will be for this caller, as far as is known; an ISO 8601 instant. */
  readonly next: { readonly limit: number; readonly from: string } | null
}

/** What the question says of who calls. */
export type Asker = { readonly [Part in keyof Caller]?: Caller[Part] | undefined }

type Limits = Pick<Config, 'clientLimits' | 'store'>

/** Applies limits as the gateway does, and says of each what decided it. */
export function explainLimits(
  limits: readonly Limit[],
  { client, user, ip }: Asker,
  params: Params,
  { clientLimits, store }: Limits,
  nowMs: number,
): readonly ExplainedLimit[] {
  const known: Readonly<Record<string, string | undefined>> = { ...params, client, user, ip }
  // As the gateway names them where counters are in memory.
  const prefix = store === 'memory' ? 'sluice' : store.prefix
  const caller = { client: client ?? '', user: user ?? '', ip: ip ?? '' }
  return quotasFor(limits, caller, params, prefix, nowMs, clientLimits).map((quota) => {
    const configured = limits.find(({ name }) => name === quota.name)!
    const { name, limit, windowMs, shadow } = quota
    const lacking = configured.per.filter((part) => known[part] === undefined)
    return {
      name,
      limit,
      windowMs,
      shadow,
      per: configured.per,
      key: lacking.length > 0 ? null : quota.key,
      lacking,
      ...decided(configured, clientLimits.get(client ?? '')?.get(name), nowMs),
    }
  })
}

type Own = { readonly untilAt?: number } | undefined

function decided(
  { changes, limit }: Limit,
  own: Own,
  nowMs: number,
): Pick<ExplainedLimit, 'decidedBy' | 'because' | 'next'> {
  const inForce = changes.toSorted((a, b) => a.fromAt - b.fromAt)
  const latest = (atMs: number) => inForce.findLast(({ fromAt }) => fromAt <= atMs)
  const endsAt = own?.untilAt
  if (own !== undefined && (endsAt === undefined || nowMs < endsAt)) {
    const because = `the client's own limit${endsAt === undefined ? '' : `, until ${instant(endsAt)}`}`
    const next =
      endsAt === undefined ? null : { limit: latest(endsAt)?.limit ?? limit, from: instant(endsAt) }
    return { decidedBy: 'client', because, next }
  }
  const ended = endsAt === undefined ? '' : `; the client's own limit ended at ${instant(endsAt)}`
  const coming = inForce.find(({ fromAt }) => fromAt > nowMs)
  const next = coming === undefined ? null : { limit: coming.limit, from: instant(coming.fromAt) }
  const change = latest(nowMs)
  if (change === undefined) return { decidedBy: 'limit', because: `for every client${ended}`, next }
  return { decidedBy: 'change', because: `changed at ${instant(change.fromAt)}${ended}`, next }
}
