import { leaseAllowance } from '../leases.ts'
import { fullAt, type Quota } from '../quota.ts'
import {
  type Allowance,
  allowanceOf,
  type Charge,
  chargeOf,
  DamagedKeyError,
  type OwnCount,
} from '../store.ts'
import type { AskedDecision, AskedLeases, AskedLog, Question } from './question.ts'
import { invalidReply } from './runner.ts'

/** The integers of a reply, read one after another. */
class Reply {
  readonly #numbers: readonly number[]
  #at = 0

  constructor(numbers: readonly number[]) {
    this.#numbers = numbers
  }

  next(): number {
    const number = this.#numbers[this.#at++]
    if (number === undefined) throw invalidReply()
    return number
  }
}

/** Values of `room` of a key: it is damaged, or the sum of these. */
const DAMAGED = -1
const [HAS_ROOM, IS_MERGED] = [1, 2] as const

/** Counts of a log in the store. */
interface Counted {
  readonly isDamaged: boolean
  readonly hasRoom: boolean
  readonly used: number
  /** Microseconds of the server's clock. */
  readonly growsAtUs: number
  /** Calls of this gateway that the log does not have. */
  readonly own: number
  /** The number of this gateway's merge that the log has although it was not answered yet. */
  readonly merged: number | undefined
}

/** Counts of a limit of calls at once in the store. */
interface InProgress {
  readonly isDamaged: boolean
  readonly allowance: Allowance
}

/** Reads the reply of charge.lua, which decided at `localMs` of the local clock or before. */
export function chargesOf({ decisions }: Question, numbers: readonly number[], localMs?: number) {
  const reply = new Reply(numbers)
  const nowUs = reply.next()
  // All decisions of a batch share one instant; a microsecond each keeps their order.
  return decisions.map((asked, i) => readDecision(reply, asked, nowUs, (nowUs + i) / 1000, localMs))
}

function readDecision(
  reply: Reply,
  { decision, logs, leases }: AskedDecision,
  nowUs: number,
  decidedAt: number,
  localMs: number | undefined,
): Charge | DamagedKeyError {
  const { quotas, lease } = decision
  const admitted = reply.next() === 1
  const counted = logs.map((log) => readLog(reply, log))
  const inProgress = leases.map((asked) => readLeases(reply, asked, nowUs))

  const damaged =
    logs[counted.findIndex(({ isDamaged }) => isDamaged)]?.key ??
    leases[inProgress.findIndex(({ isDamaged }) => isDamaged)]?.quota.key
  if (damaged !== undefined) return new DamagedKeyError(damaged)

  let [nextLog, nextLeases] = [0, 0]
  const allowances = quotas.map((quota) => {
    if (quota.isConcurrent) return inProgress[nextLeases++]!.allowance
    const access = quota.access && counted[nextLog++]
    return allowanceOfLog(quota, counted[nextLog++]!, access, nowUs)
  })
  const chargedUs = nowUs
  return chargeOf(quotas, allowances, { admitted, mode: 'store', decidedAt, chargedUs, localMs, lease })
}

const NOT_OWN: OwnCount = { calls: 0, sent: 0, number: 0, spreadMs: 0 }

function readLog(reply: Reply, log: AskedLog): Counted {
  const [room, used] = [reply.next(), reply.next()]
  let growsAtUs = reply.next()
  const { calls, sent, number, spreadMs } = log.own ?? NOT_OWN
  const isMerged = room >= IS_MERGED
  const own = isMerged ? calls : calls + sent
  const hasRoom = room % 2 === HAS_ROOM
  // While own calls fill the limit, they must leave, too.
  if (own > 0 && own >= (hasRoom ? log.limit : fullAt(log))) growsAtUs += Math.ceil(spreadMs * 1000)
  const merged = isMerged ? number : undefined
  return { isDamaged: room === DAMAGED, hasRoom, used, growsAtUs, own, merged }
}

function readLeases(reply: Reply, { quota }: AskedLeases, nowUs: number): InProgress {
  const [room, used, oldestUs] = [reply.next(), reply.next(), reply.next()]
  const allowance = leaseAllowance(quota, room === HAS_ROOM, used, nowUs / 1000)
  const sinceAt = oldestUs / 1000
  return { isDamaged: room === DAMAGED, allowance: oldestUs > 0 ? { sinceAt, ...allowance } : allowance }
}

function allowanceOfLog(quota: Quota, counted: Counted, access: Counted | undefined, nowUs: number) {
  const { hasRoom, used, growsAtUs, own, merged } = counted
  const found = allowanceOf(quota, hasRoom, used, growsAtUs / 1000, (growsAtUs - nowUs) / 1000, own)
  const allowance = merged === undefined ? found : { merged, ...found }
  if (access === undefined) return allowance
  const resetAfterMs = (access.growsAtUs - nowUs) / 1000
  return { access: { used: access.used, own: access.own, resetAfterMs }, ...allowance }
}
