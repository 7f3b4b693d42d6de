import type { Caller } from '../../limit/caller.ts'
import type { Config } from '../../config/schema.ts'
import { prefixOf } from '../../limit/key.ts'
import { type ClientLimit, compileLimits, inForce, type Limit } from '../../limit/limit.ts'
import type { Params } from '../../downstream/router.ts'
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
  const caller = { client: client ?? '', user: user ?? '', ip: ip ?? '' }
  return compileLimits(limits, prefixOf(store), clientLimits)(caller, params, nowMs).map((quota) => {
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

function decided(
  configured: Limit,
  own: ClientLimit | undefined,
  nowMs: number,
): Pick<ExplainedLimit, 'decidedBy' | 'because' | 'next'> {
  const rule = inForce(configured, own, nowMs)
  const endsAt = own?.untilAt
  if (rule === own) {
    const because = `the client's own limit${endsAt === undefined ? '' : `, until ${instant(endsAt)}`}`
    const next =
      endsAt === undefined ? null : { limit: inForce(configured, own, endsAt).limit, from: instant(endsAt) }
    return { decidedBy: 'client', because, next }
  }
  const ended = endsAt === undefined ? '' : `; the client's own limit ended at ${instant(endsAt)}`
  const coming = configured.changes.find(({ fromAt }) => fromAt > nowMs)
  const next = coming === undefined ? null : { limit: coming.limit, from: instant(coming.fromAt) }
  if (!('fromAt' in rule)) return { decidedBy: 'limit', because: `for every client${ended}`, next }
  return { decidedBy: 'change', because: `changed at ${instant(rule.fromAt)}${ended}`, next }
}
