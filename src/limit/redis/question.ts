import { mergedKey } from '../key.ts'
import type { Quota } from '../quota.ts'
import type { Charge, OwnCalls, OwnCount } from '../store.ts'
import { type Sending, type Span, spanOf } from './sending.ts'

/**
 * The question to charge.lua about a batch of decisions, each under several limits.
 *
 *     KEYS   | the log of each limit, that of its access before it | the leases | the marks of merges |
 *            |<--- decision 1 ----->|<--- decision 2 --->| ...     |<--- 1 --->| ...
 *
 *     ARGV   | deadline | from | number of logs | rule | rule | leases | id | rule | ...
 *                                               |<- 1->|<- 2, with calls at once ->|
 *
 *     rule   | action | limit, window, flags | of a calendar period: its start           | ... the next log
 *                     |                      | with own calls: their number, those of the
 *                     |                      |   merge under way, its number, its mark in KEYS
 *                     |                      | with a cost: the cost                     |
 *
 *     leases | limit, length of a lease, own calls, 1 for a shadow | ... the next limit of calls at once
 *
 * A rule and its leases are text, numbers separated by blanks: charge.lua reads equal rules once.
 */
export interface Question {
  readonly decisions: readonly AskedDecision[]
  /** The number of keys, KEYS and ARGV. */
  readonly params: readonly [keys: number, ...keysAndArgs: (string | number)[]]
  /** The number of integers in the reply. */
  readonly size: number
}

/** A decision in a batch. */
export interface BatchedDecision {
  /** False if it is only read. */
  readonly isCharge: boolean
  readonly quotas: readonly Quota[]
  /** Undefined if the store has all calls. */
  readonly own: OwnCalls | undefined
  /** The id of its leases; undefined if it has none. */
  readonly lease: string | undefined
  readonly onEnd: (outcome: Charge | Error) => void
}

/** The question to charge.lua about one decision. */
export interface AskedDecision {
  readonly decision: BatchedDecision
  /** The logs in the order of the message, which is that of the limits with a window. */
  readonly logs: readonly AskedLog[]
  readonly leases: readonly AskedLeases[]
}

/** The log of a limit, or of its access, which precedes it. */
export interface AskedLog {
  readonly key: string
  readonly limit: number
  readonly cost: number
  readonly shadow: boolean
  readonly isAccess: boolean
  readonly span: Span
  /** Calls of this gateway that count in addition to the log; undefined without. */
  readonly own: OwnCount | undefined
  /** The key of the limit, to which the mark of a merge belongs. */
  readonly limitKey: string
}

/** The leases of a limit of calls at once. */
export interface AskedLeases {
  readonly quota: Quota
  /** Calls in progress of this gateway that the store may not have. */
  readonly own: number
}

/** Bits of the actions for a decision, which are added up; 0 reads it only. */
const [CHARGE, AT_ONCE] = [1, 2] as const
/** The flags of a log, which charge.lua tests one by one: a further one is 32 there, too. */
const [SHADOW, CALENDAR, OWN, ACCESS, COST] = [1, 2, 4, 8, 16] as const

/** Returns the question to charge.lua for a batch that this gateway sends now. */
export function questionOf(batch: readonly BatchedDecision[], gateway: string, sending: Sending): Question {
  const decisions = batch.map((decision) => askedOf(decision, sending))
  const logs: string[] = []
  const leases: string[] = []
  let [fromUs, untilUs] = [0, sending.deadlineUs]
  for (const asked of decisions) {
    for (const { key, span } of asked.logs) {
      logs.push(key)
      // A decision holds within each calendar period that it names.
      if (span.startUs === 0) continue
      fromUs = Math.max(fromUs, span.startUs)
      untilUs = Math.min(untilUs, span.endUs - 1)
    }
    for (const { quota } of asked.leases) leases.push(quota.key)
  }
  const keys = [...logs, ...leases]
  const answered = keys.length
  const rules: string[] = []
  for (const asked of decisions) {
    rules.push(ruleOf(asked, gateway, keys))
    if (asked.leases.length > 0) rules.push(leasesOf(asked), asked.decision.lease ?? '')
  }
  const params = [keys.length, ...keys, untilUs, fromUs, logs.length, ...rules] as const
  return { decisions, params, size: 1 + batch.length + 3 * answered }
}

function askedOf(decision: BatchedDecision, sending: Sending): AskedDecision {
  const own = decision.own?.isEmpty() === false ? decision.own : undefined
  const logs: AskedLog[] = []
  const leases: AskedLeases[] = []
  for (const quota of decision.quotas)
    if (quota.isConcurrent) leases.push({ quota, own: decision.own?.unstored(quota.key) ?? 0 })
    else {
      if (quota.access !== undefined) logs.push(accessLogOf(quota, own, sending))
      logs.push(logOf(quota, own, sending))
    }
  return { decision, logs, leases }
}

function logOf(quota: Quota, own: OwnCalls | undefined, sending: Sending): AskedLog {
  const { key, limit, shadow, cost = 1 } = quota
  const span = spanOf(quota, sending)
  return { key, limit, cost, shadow, isAccess: false, span, own: own?.since(key, span.since), limitKey: key }
}

/** The log of an access has room for one call: the one that began it. */
function accessLogOf(
  { key: limitKey, access }: Quota,
  own: OwnCalls | undefined,
  sending: Sending,
): AskedLog {
  const { key } = access!
  const span = spanOf(access!, sending)
  const counted = own?.since(limitKey, span.since, key)
  return { key, limit: 1, cost: 1, shadow: false, isAccess: true, span, own: counted, limitKey }
}

/** Returns the rule of a decision, and adds the marks that it names to the keys. */
function ruleOf({ decision, logs, leases }: AskedDecision, gateway: string, keys: string[]): string {
  let rule = `${(decision.isCharge ? CHARGE : 0) + (leases.length > 0 ? AT_ONCE : 0)}`
  for (const { limit, cost, shadow, isAccess, span, own, limitKey } of logs) {
    let flags = shadow ? SHADOW : 0
    let further = ''
    if (span.startUs > 0) {
      flags += CALENDAR
      further += ` ${span.startUs}`
    }
    if (own !== undefined) {
      flags += OWN
      const mark = keys.push(mergedKey(limitKey, gateway, own.number))
      further += ` ${own.calls} ${own.sent} ${own.number} ${mark}`
    }
    if (isAccess) flags += ACCESS
    if (cost > 1) {
      flags += COST
      further += ` ${cost}`
    }
    rule += ` ${limit} ${span.lengthUs} ${flags}${further}`
  }
  return rule
}

/** Returns the leases of a decision as text. */
const leasesOf = ({ leases }: AskedDecision): string =>
  leases
    .map(({ quota, own }) => `${quota.limit} ${quota.windowMs * 1000} ${own} ${quota.shadow ? 1 : 0}`)
    .join(' ')
