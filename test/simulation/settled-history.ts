import type { Action, History, Profile } from './history.ts'
import { createRandom, type Random } from './random.ts'

/** The profiles in which a client also calls only around a silence. */
const QUIET: ReadonlySet<Profile> = new Set<Profile>(['several', 'kept'])

/** Lets calls reserve points, and settles them when they end. */
export function settledHistory(profile: Profile, history: History): History {
  const random = createRandom(history.seed * 6007 + 1)
  const mayReserve = Object.values(history.limits).every(({ kind }) => kind !== 'access')
  const reserving = (action: Action): Action =>
    action.kind === 'caller' && mayReserve && action.cost === undefined && random.chance(0.7)
      ? { ...action, cost: random.pick([1, 2, 3, 5]) }
      : action
  const actions = history.actions.map(reserving)
  const settles = random.pick(['less', 'any'] as const)
  if (QUIET.has(profile)) actions.push(...aroundSilence(random, history).map(reserving))
  return { ...history, actions: actions.toSorted((a, b) => a.atMs - b.atMs), settles }
}

/**
 * Returns a silence of one gateway, after which its messages are slow, and the calls of a client that calls only before, in and
 * after it. So its calls end while the gateway has what it last heard of Redis, or hands its own calls over.
 */
function aroundSilence(random: Random, { gateways, ms, actions }: History): readonly Action[] {
  const gateway = random.integer(0, gateways - 1)
  const fromMs = random.between(4000, ms / 2)
  const silentMs = random.between(1000, 5000)
  const slowMs = random.between(0, 1500)
  const crowd = { kind: 'caller', client: 'quiet', gateway, manner: 'crowd', withProof: false } as const
  const overMs = fromMs + silentMs + slowMs
  const drafts = [
    { ...crowd, atMs: fromMs - random.between(100, 4000), ms: 1 },
    { kind: 'hang', gateway, atMs: fromMs, ms: silentMs },
    { ...crowd, atMs: fromMs + random.between(0, 1000), ms: silentMs },
    { kind: 'slow', gateway, atMs: fromMs + silentMs, ms: slowMs, delayMs: random.between(50, 250) },
    { ...crowd, atMs: overMs + random.between(3000, 4500), ms: 1 },
  ] as const
  return drafts.map((draft, i) => ({ ...draft, number: actions.length + i }))
}
