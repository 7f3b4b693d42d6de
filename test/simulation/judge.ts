import { PROOF_MS, TIMEOUT_MS } from './gateway.ts'
import { excessOfAccesses, refusedAccesses } from './judge/accesses.ts'
import { brokenAtOnce } from './judge/at-once.ts'
import {
  actionsBetween,
  type Case,
  casesOf,
  losesData,
  overlapping,
  type Timed,
  type Violation,
} from './judge/evidence.ts'
import { refusedEarly } from './judge/least.ts'
import { excess, excessAfterChange, excessOfPeriods, excessOfSettled, excessOfShares } from './judge/most.ts'
import { brokenWaits, longWaits } from './judge/waits.ts'
import type { Played } from './play.ts'

export type { Violation } from './judge/evidence.ts'

/** Judges the responses by the promises of docs/outages.md. It knows which responses callers got and when, and the faults, and nothing of the code. */
export function judge(played: Played): readonly Violation[] {
  const { history } = played
  const cases = casesOf(played)
  return [...cases.flatMap((one) => [...broken(one)]), ...proofs(played), ...late(played)].map(
    ({ promise, text }) => ({
      promise,
      text: `${text} (${history.gateways} gateways, seed ${history.seed})`,
    }),
  )
}

function* broken(one: Case): Generator<Violation> {
  if (one.history.limits[one.name].shadow === true) {
    yield* refusedByShadow(one)
    return
  }
  if (one.kind === 'atOnce') {
    yield* brokenAtOnce(one)
    yield* unavailable(one)
    return
  }
  const isShare = one.history.limits[one.name].counts !== undefined
  if (isShare) yield* excessOfShares(one)
  // The calls of only a share are bounded as if it had a counter of its own.
  const admitted = one.admitted.filter(({ limits }) => !isShare || limits.includes(one.name))
  const own = { ...one, admitted }
  if (one.kind === 'access') yield* [...excessOfAccesses(own), ...refusedAccesses(own)]
  else if (one.kind !== undefined) yield* excessOfPeriods(own)
  else if (one.history.settles !== undefined) yield* excessOfSettled(own)
  else yield* [...excess(own), ...excessAfterChange(own)]
  yield* refusedEarly(one)
  yield* brokenWaits(one)
  yield* longWaits(one)
  yield* unavailable(one)
}

function* refusedByShadow({ calls, name }: Case): Generator<Violation> {
  const refused = calls.find(({ refusedBy }) => refusedBy === name)
  if (refused === undefined) return
  yield { promise: 'shadow', text: `a call was refused by the shadow limit ${name} at ${refused.toldAtMs}` }
}

/** Finds calls that nothing decided although no gateway was without Redis. */
function* unavailable({ calls, troubles, client }: Case): Generator<Violation> {
  const refused = calls.find(
    ({ isUnavailable, askedAtMs, toldAtMs }) =>
      isUnavailable && overlapping(troubles, askedAtMs, toldAtMs).length === 0,
  )
  if (refused === undefined) return
  yield { promise: 'unavailable', text: `a call by ${client} had no decision at ${refused.toldAtMs}` }
}

/** Finds proofs that passed more often than once at each gateway while they were valid. */
function proofs({ history, calls }: Played): readonly Violation[] {
  if (history.actions.some(({ kind }) => kind === 'replace' || kind === 'clock')) return []
  const passed = new Map<string, Timed[]>()
  for (const call of calls) {
    const { proof, client, gateway, admitted } = call
    if (proof === undefined || !admitted) continue
    const key = `${client} ${proof} ${gateway}`
    passed.set(key, [...(passed.get(key) ?? []), call])
  }
  const losses = history.actions.filter(losesData).length
  // A proof may have been charged when its call was asked about.
  const isWithin = (later: Timed, first: Timed): boolean =>
    later.toldAtMs >= first.toldAtMs && later.toldAtMs < first.askedAtMs + PROOF_MS - 1
  const twice = [...passed].find(([, uses]) =>
    uses.some((first) => uses.filter((later) => isWithin(later, first)).length > 1 + losses),
  )
  if (twice === undefined) return []
  const times = twice[1].map(({ toldAtMs }) => toldAtMs)
  return [{ promise: 'proof', text: `the proof ${twice[0]} passed at ${times.join(', ')}` }]
}

/** Finds calls that waited longer than the timeouts of two questions. */
function late({ history, calls }: Played): readonly Violation[] {
  const slow = calls.find(
    ({ askedAtMs, toldAtMs }) =>
      toldAtMs - askedAtMs > 2 * TIMEOUT_MS + 50 &&
      actionsBetween(history, ['suspend', 'replace'], askedAtMs - 500, toldAtMs).length === 0,
  )
  if (slow === undefined) return []
  const text = `a call at ${slow.askedAtMs} had its response after ${slow.toldAtMs - slow.askedAtMs} ms`
  return [{ promise: 'late', text }]
}
