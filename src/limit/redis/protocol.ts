import { mergedKey } from '../key.ts'
import { type Lease, leaseAllowance } from '../leases.ts'
import { type Access, type Calendar, fullAt, isLeased, type Quota, type Window } from '../quota.ts'
import { type Allowance, allowanceOf, type Charge, chargeOf, DamagedKeyError } from '../store.ts'
import type { Merge, OwnCalls, OwnCount } from '../store.ts'
import type { ServerClocks } from './server-clocks.ts'

/** A decision in a batch. */
export interface BatchedDecision {
  /** The first number of its rule for charge.lua. */
  readonly action: typeof READ | typeof CHARGE
  readonly quotas: readonly Quota[]
  /** Undefined if the store has all calls. */
  readonly own: OwnCalls | undefined
  /** The id of its leases; undefined if it has none. */
  readonly lease: string | undefined
  readonly onEnd: (outcome: Charge | Error) => void
}
export const [READ, CHARGE] = [0, 1] as const
/** Added to the action of a decision with limits of calls at once. */
const AT_ONCE = 2
const [SHADOW, CALENDAR, OWN, ACCESS, COST] = [1, 2, 4, 8, 16] as const
/** The window of the access of a token, for merge.lua. */
const OF_TOKEN = -1

/** A server's clock, and this gateway's, when a script is sent. */
export interface Sending {
  readonly clocks: ServerClocks
  readonly server: string
  /** Milliseconds of the server's clock, and of the local clock. */
  readonly nowMs: number
  readonly localMs: number
}

/** Returns the keys with logs that charge.lua reads: of every quota, the key of its access before its own. */
export function keysOf(batch: readonly Pick<BatchedDecision, 'quotas'>[]): readonly string[] {
  const keys: string[] = []
  for (const { quotas } of batch)
    for (const quota of quotas) {
      if (quota.access !== undefined) keys.push(quota.access.key)
      if (!isLeased(quota)) keys.push(quota.key)
    }
  return keys
}

const hasLeases = ({ quotas }: Pick<BatchedDecision, 'quotas'>): boolean => quotas.some(isLeased)
const NO_KEYS: readonly string[] = []
const NOT_OWN: Omit<OwnCount, 'number'> = { calls: 0, sent: 0, spreadMs: 0 }

/** Returns the keys with leases that charge.lua reads. */
export const leaseKeysOf = (batch: readonly BatchedDecision[]): readonly string[] =>
  batch.some(hasLeases)
    ? batch.flatMap(({ quotas }) => quotas.filter(isLeased).map(({ key }) => key))
    : NO_KEYS

/**
 * Returns the arguments of charge.lua for these keys: the keys with those of merges, the rules, and
 * the own calls that they name for each of the keys.
 */
export function argumentsOf(
  batch: readonly BatchedDecision[],
  keys: readonly string[],
  gateway: string,
  sending: Sending,
) {
  const counts: (OwnCount | undefined)[] = []
  const all = [...keys]
  const logRules = batch.map(({ action, quotas, own }) => {
    let rule = String(action)
    for (const quota of quotas) {
      const { access, limit, shadow, cost = 1, isConcurrent } = quota
      if (isConcurrent) continue
      if (access !== undefined) rule += ruleOf(quota, access, 1, ACCESS, own)
      rule += ruleOf(quota, undefined, limit, (shadow ? SHADOW : 0) + (cost > 1 ? COST : 0), own)
      if (cost > 1) rule += ` ${cost}`
    }
    return rule
  })
  /** Returns the rule of a quota, or of its access. */
  function ruleOf(quota: Quota, access: Access | undefined, limit: number, flags: number, own?: OwnCalls) {
    const { startUs, lengthUs, since } = spanOf(access ?? quota, sending)
    const counted = own === undefined || own.isEmpty() ? undefined : own.since(quota.key, since, access?.key)
    counts.push(counted)
    const isPeriod = startUs === undefined ? 0 : CALENDAR
    const period = startUs === undefined ? '' : ` ${startUs}`
    if (counted === undefined) return ` ${limit} ${lengthUs} ${flags + isPeriod}${period}`
    const { calls, sent, number } = counted
    const mark = all.push(mergedKey(quota.key, gateway))
    return ` ${limit} ${lengthUs} ${flags + isPeriod + OWN}${period} ${calls} ${sent} ${number} ${mark}`
  }
  const rules = batch.some(hasLeases) ? withLeases(batch, logRules) : logRules
  return { all, rules, counts }
}

/** Adds the rules and the ids of leases to the rules of decisions. */
function withLeases(batch: readonly BatchedDecision[], rules: readonly string[]): readonly string[] {
  return batch.flatMap(({ action, quotas, own, lease = '' }, i) => {
    const leased = quotas.filter(isLeased).map(({ key, limit, windowMs, shadow }) => {
      const beside = own?.unstored(key) ?? 0
      return `${limit} ${windowMs * 1000} ${beside} ${shadow ? 1 : 0}`
    })
    const rule = rules[i]!
    return leased.length === 0 ? rule : [`${action + AT_ONCE}${rule.slice(1)}`, leased.join(' '), lease]
  })
}

/**
 * Returns the window as charge.lua counts it, and the instant of this gateway's clock after which
 * its own calls are in it.
 */
function spanOf({ windowMs, calendar }: Window, { clocks, server, nowMs, localMs }: Sending) {
  if (calendar === undefined)
    return { startUs: undefined, lengthUs: windowMs * 1000, since: localMs - windowMs }
  const { startMs, endMs } = calendar.periodAt(nowMs)
  const startUs = startMs * 1000
  // The earliest that it can be: a call too many is refused, not admitted.
  const since = clocks.localMs(server, startUs, 'earliest')
  return { startUs, lengthUs: (endMs - startMs) * 1000, since }
}

/**
 * Returns the arguments of merge.lua: every instant on the server's clock is no earlier than the
 * call was made, and no later than the caller's wait assumes, if the clock is still known as well.
 */
export function mergeOf(
  { number, quota, calls, spreadMs, back }: Merge,
  keys: readonly string[],
  sending: Sending,
  deadlineUs: number,
): readonly number[] {
  const { clocks, server, nowMs } = sending
  const [from, until] = periodsAt([{ quotas: [quota] }], nowMs)
  const { startUs = 0, lengthUs } = spanOf(quota, sending)
  const isInPeriod = back !== undefined && quota.calendar?.periodAt(nowMs).endMs === back.endsAt
  const access = calls.find((call) => call.access !== undefined)?.access
  const positions = new Map(keys.map((key, i) => [key, i + 1]))
  const together = access === undefined ? 0 : access.isOfToken ? OF_TOKEN : access.windowMs * 1000
  const instants = calls.flatMap(({ atUs, calls, access }) => {
    const earliest = clocks.at(server, atUs / 1000, 'earliest')
    const madeAt = Math.max(earliest, clocks.at(server, atUs / 1000 - spreadMs, 'latest'))
    return [madeAt, calls, access === undefined ? 0 : positions.get(access.key)!]
  })
  const limited = [quota.limit, lengthUs, startUs, isInPeriod ? back.calls : 0, together]
  return [number, from, Math.min(until, deadlineUs), ...limited, ...instants]
}

/** Returns the arguments of renew.lua. */
export function renewalOf(leases: readonly Lease[], deadlineUs: number) {
  const keys = [...new Set(leases.map(({ quota }) => quota.key))]
  const positions = new Map(keys.map((key, i) => [key, i + 1]))
  const args = leases.flatMap(({ quota, id }) => [positions.get(quota.key)!, id, quota.windowMs * 1000])
  return [keys.length, ...keys, deadlineUs, ...args] as const
}

/**
 * Returns the range of a server's clock, in microseconds, in which the periods of all calendars are
 * those that contain `nowMs`.
 */
export function periodsAt(
  batch: readonly Pick<BatchedDecision, 'quotas'>[],
  nowMs: number,
): [fromUs: number, untilUs: number] {
  let [fromUs, untilUs] = [0, Number.MAX_SAFE_INTEGER]
  function narrow(calendar: Calendar | undefined): void {
    if (calendar === undefined) return
    const { startMs, endMs } = calendar.periodAt(nowMs)
    fromUs = Math.max(fromUs, startMs * 1000)
    untilUs = Math.min(untilUs, endMs * 1000 - 1)
  }
  for (const { quotas } of batch)
    for (const { calendar, access } of quotas) {
      narrow(calendar)
      narrow(access?.calendar)
    }
  return [fromUs, untilUs]
}

/** Returns the number of keys with logs: of accesses, and of limits that are not of calls at once. */
function logsOf(quotas: readonly Quota[]): number {
  let logs = 0
  for (const { access, isConcurrent } of quotas) logs += isConcurrent ? 0 : access === undefined ? 1 : 2
  return logs
}

/** Reads the reply of charge.lua to a batch, which was decided at `localMs` of the local clock or before. */
export function chargesOf(
  batch: readonly BatchedDecision[],
  counts: readonly (OwnCount | undefined)[],
  numbers: readonly number[],
  localMs: number,
) {
  const nowUs = numbers[0]!
  let [at, key] = [1, 0]
  return batch.map(({ quotas, lease }, i): Charge | DamagedKeyError => {
    const admitted = numbers[at++] === 1
    let damaged: string | undefined
    let leasesAt = at + 3 * logsOf(quotas)
    const allowances = quotas.map((quota): Allowance => {
      if (quota.isConcurrent) {
        const [room, used, oldestUs] = numbers.slice(leasesAt, leasesAt + 3) as [number, number, number]
        leasesAt += 3
        if (room === -1) damaged ??= quota.key
        const sinceAt = oldestUs === 0 ? undefined : oldestUs / 1000
        return leaseAllowance(quota, room === 1, used, nowUs / 1000, sinceAt)
      }
      const access = quota.access && read(quota.access.key, 1)
      const { hasRoom, used, growsAtUs, resetAfterMs, own } = read(quota.key, quota.limit, fullAt(quota))
      return allowanceOf(quota, hasRoom, used, growsAtUs / 1000, resetAfterMs, own, access)
    })
    function read(name: string, limit: number, full = limit) {
      const [room, used] = [numbers[at]!, numbers[at + 1]!]
      let growsAtUs = numbers[at + 2]!
      at += 3
      if (room === -1) damaged ??= name
      const { calls, sent, spreadMs } = counts[key++] ?? NOT_OWN
      const own = room >= 2 ? calls : calls + sent
      const hasRoom = room % 2 === 1
      // While own calls fill the limit, they must leave, too.
      if (own > 0 && own >= (hasRoom ? limit : full)) growsAtUs += Math.ceil(spreadMs * 1000)
      return { hasRoom, used, growsAtUs, resetAfterMs: (growsAtUs - nowUs) / 1000, own }
    }
    at = leasesAt
    if (damaged !== undefined) return new DamagedKeyError(damaged)
    // All decisions of a batch share one instant; a microsecond each keeps their order.
    const decidedAt = (nowUs + i) / 1000
    return chargeOf(quotas, allowances, { admitted, mode: 'store', decidedAt, localMs, lease })
  })
}
