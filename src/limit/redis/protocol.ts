import { mergedKey } from '../key.ts'
import { leaseAllowance } from '../leases.ts'
import { type Access, fullAt, isLeased, type Place, type Quota, type Window } from '../quota.ts'
import { type Allowance, allowanceOf, type Charge, chargeOf, DamagedKeyError } from '../store.ts'
import type { Merge, OwnCalls, OwnCount } from '../store.ts'
import type { ServerClocks } from './server-clocks.ts'

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
export type Batch = readonly BatchedDecision[]
export type Question = ReturnType<typeof questionOf>

/** The first number of the rule of a decision for charge.lua: the sum of these. */
const [CHARGE, AT_ONCE] = [1, 2] as const
/** The flags of a key's rule, which charge.lua tests one by one: a further one is 32 there, too. */
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
  /** The time of the server's clock after which the script does nothing, in microseconds. */
  readonly deadlineUs: number
}

/**
 * Returns the question to charge.lua for a batch: its keys and arguments, the number of integers in
 * its reply, and the own calls that it names for each log.
 */
export function questionOf(batch: Batch, gateway: string, sending: Sending) {
  const [logs, leased, marks, rules]: [string[], string[], string[], string[]] = [[], [], [], []]
  const counts: (OwnCount | undefined)[] = []
  let [fromUs, untilUs] = [0, sending.deadlineUs]
  for (const { isCharge, quotas, own, lease = '' } of batch) {
    let [rule, leases] = ['', '']
    for (const quota of quotas) {
      const { key, access, limit, windowMs, shadow, cost = 1 } = quota
      if (quota.isConcurrent) {
        leased.push(key)
        leases += ` ${limit} ${windowMs * 1000} ${own?.unstored(key) ?? 0} ${shadow ? 1 : 0}`
        continue
      }
      if (access !== undefined) rule += ruleOf(quota, 1, ACCESS, own, access)
      rule += ruleOf(quota, limit, (shadow ? SHADOW : 0) + (cost > 1 ? COST : 0), own)
      if (cost > 1) rule += ` ${cost}`
    }
    const action = isCharge ? CHARGE : 0
    if (leases === '') rules.push(`${action}${rule}`)
    else rules.push(`${action + AT_ONCE}${rule}`, leases, lease)
  }
  /** Returns the rule of a quota, or of its access. */
  function ruleOf(quota: Quota, limit: number, flags: number, own?: OwnCalls, access?: Access) {
    const { startUs, endUs, lengthUs, since } = spanOf(access ?? quota, sending)
    if (startUs > 0) [fromUs, untilUs] = [Math.max(fromUs, startUs), Math.min(untilUs, endUs - 1)]
    logs.push(access?.key ?? quota.key)
    const counted = own?.isEmpty() === false ? own.since(quota.key, since, access?.key) : undefined
    counts.push(counted)
    const kind = startUs === 0 ? 0 : CALENDAR
    const period = startUs === 0 ? '' : ` ${startUs}`
    if (counted === undefined) return ` ${limit} ${lengthUs} ${flags + kind}${period}`
    const { calls, sent, number } = counted
    const mark = marks.unshift(mergedKey(quota.key, gateway, number))
    return ` ${limit} ${lengthUs} ${flags + kind + OWN}${period} ${calls} ${sent} ${number} ${mark}`
  }
  const keys = [...logs, ...leased, ...marks]
  const size = 1 + batch.length + 3 * (logs.length + leased.length)
  return { params: [keys.length, ...keys, untilUs, fromUs, logs.length, ...rules] as const, size, counts }
}

/**
 * Returns the window as the scripts count it, from `startUs` to before `endUs` if it is a calendar
 * period, and the instant of this gateway's clock after which its own calls are in it.
 */
function spanOf({ windowMs, calendar }: Window, { clocks, server, nowMs, localMs }: Sending) {
  if (calendar === undefined) {
    const lengthUs = windowMs * 1000
    return { startUs: 0, endUs: Number.MAX_SAFE_INTEGER, lengthUs, since: localMs - windowMs }
  }
  const { startMs, endMs } = calendar.periodAt(nowMs)
  const [startUs, endUs] = [startMs * 1000, endMs * 1000]
  // The earliest that it can be: a call too many is refused, not admitted.
  const since = clocks.localMs(server, startUs, 'earliest')
  return { startUs, endUs, lengthUs: endUs - startUs, since }
}

/**
 * Returns the keys and arguments of merge.lua: every instant on the server's clock is no earlier
 * than the call was made, and no later than the caller's wait assumes, if the clock is still known
 * as well.
 */
export function mergeOf(own: Merge, gateway: string, sending: Sending) {
  const { number, quota, calls, spreadMs, back } = own
  const { clocks, server, deadlineUs } = sending
  const { startUs, endUs, lengthUs } = spanOf(quota, sending)
  const accesses = new Set(calls.flatMap(({ access }) => access?.key ?? []))
  const keys = [mergedKey(quota.key, gateway, number), quota.key, ...accesses]
  const positions = new Map(keys.map((key, i) => [key, i + 1]))
  const access = calls.find((call) => call.access !== undefined)?.access
  const together = access === undefined ? 0 : access.isOfToken ? OF_TOKEN : access.windowMs * 1000
  const refunded = back?.endsAt === endUs / 1000 ? back.calls : 0
  const instants = calls.flatMap(({ atUs, calls, access }) => {
    const earliest = clocks.at(server, atUs / 1000, 'earliest')
    const madeAt = Math.max(earliest, clocks.at(server, atUs / 1000 - spreadMs, 'latest'))
    return [madeAt, calls, access === undefined ? 0 : positions.get(access.key)!]
  })
  const until = Math.min(endUs - 1, deadlineUs)
  const args = [number, until, quota.limit, lengthUs, startUs, refunded, together, ...instants]
  return [keys.length, ...keys, ...args] as const
}

/** Returns the keys and arguments of renew.lua for leases and their lengths, in milliseconds. */
export function renewalOf(leases: readonly Place[], lengths: readonly number[], { deadlineUs }: Sending) {
  const keys = [...new Set(leases.map(({ quota }) => quota.key))]
  const positions = new Map(keys.map((key, i) => [key, i + 1]))
  const argsOf = ({ quota, id }: Place, i: number) => {
    const lengthUs = Math.ceil(lengths[i]! * 1000)
    return [positions.get(quota.key)!, id, lengthUs]
  }
  const args = leases.flatMap(argsOf)
  return [keys.length, ...keys, deadlineUs, ...args] as const
}

const NOT_OWN: OwnCount = { calls: 0, sent: 0, number: 0, spreadMs: 0 }

/** Reads the reply of charge.lua to a batch, which was decided at `localMs` of the local clock or before. */
export function chargesOf(batch: Batch, { counts }: Question, numbers: readonly number[], localMs: number) {
  const nowUs = numbers[0]!
  let [at, key] = [1, 0]
  return batch.map(({ quotas, lease }, i): Charge | DamagedKeyError => {
    const admitted = numbers[at++] === 1
    let damaged: string | undefined
    function fromLog(quota: Pick<Quota, 'key' | 'limit' | 'cost'>) {
      const [room, used] = [numbers[at]!, numbers[at + 1]!]
      let growsAtUs = numbers[at + 2]!
      at += 3
      if (room === -1) damaged ??= quota.key
      const { calls, sent, spreadMs } = counts[key++] ?? NOT_OWN
      const own = room >= 2 ? calls : calls + sent
      const hasRoom = room % 2 === 1
      // While own calls fill the limit, they must leave, too.
      if (own > 0 && own >= (hasRoom ? quota.limit : fullAt(quota))) growsAtUs += Math.ceil(spreadMs * 1000)
      return { hasRoom, used, growsAtUs, resetAfterMs: (growsAtUs - nowUs) / 1000, own }
    }
    const logged = quotas.some(isLeased) ? quotas.filter((quota) => !isLeased(quota)) : quotas
    const allowances = logged.map((quota): Allowance => {
      const access = quota.access && fromLog({ key: quota.access.key, limit: 1 })
      const { hasRoom, used, growsAtUs, resetAfterMs, own } = fromLog(quota)
      const allowance = allowanceOf(quota, hasRoom, used, growsAtUs / 1000, resetAfterMs, own)
      return access === undefined ? allowance : { ...allowance, access }
    })
    // The leases of a decision come after its logs.
    for (let i = 0; i < quotas.length; i++) {
      const quota = quotas[i]!
      if (!quota.isConcurrent) continue
      const [room, used, oldestUs] = [numbers[at]!, numbers[at + 1]!, numbers[at + 2]!]
      at += 3
      if (room === -1) damaged ??= quota.key
      const allowance = leaseAllowance(quota, room === 1, used, nowUs / 1000)
      allowances.splice(i, 0, oldestUs > 0 ? { ...allowance, sinceAt: oldestUs / 1000 } : allowance)
    }
    if (damaged !== undefined) return new DamagedKeyError(damaged)
    // All decisions of a batch share one instant; a microsecond each keeps their order.
    const decidedAt = (nowUs + i) / 1000
    return chargeOf(quotas, allowances, { admitted, mode: 'store', decidedAt, localMs, lease })
  })
}
