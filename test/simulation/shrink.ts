import type { History } from './history.ts'
import { judge, type Violation } from './judge.ts'
import { type Call, play } from './play.ts'

async function violationOf(history: History, promise: Violation['promise']): Promise<Violation | undefined> {
  return judge(await play(history)).find((found) => found.promise === promise)
}

/** Returns the shortest history found that still breaks the promise: without actions that it does not need, and as short as it can be. */
export async function shrink(history: History, promise: Violation['promise']): Promise<History> {
  let shortest = history
  const attempt = async (next: History): Promise<boolean> => {
    if ((await violationOf(next, promise)) === undefined) return false
    shortest = next
    return true
  }
  for (let isShorter = true; isShorter;) {
    isShorter = false
    for (const action of shortest.actions.toReversed()) {
      const actions = shortest.actions.filter((other) => other !== action)
      if (await attempt({ ...shortest, actions })) isShorter = true
    }
    for (const part of [0.5, 0.8, 0.95]) {
      if (await attempt({ ...shortest, ms: shortest.ms * part })) isShorter = true
    }
  }
  return shortest
}

/** Describes a history that breaks a promise: its actions, and the last calls of each client up to the violation. */
export async function describe(history: History, promise: Violation['promise'], max = 30): Promise<string> {
  const { calls } = await play(history)
  const { actions, ...setting } = history
  const violation = await violationOf(history, promise)
  const lines = calls
    .toSorted((a, b) => a.toldAtMs - b.toldAtMs)
    .slice(-max)
    .map((call) => `  ${call.askedAtMs.toFixed(3)} to ${call.toldAtMs.toFixed(3)}  ${outcomeOf(call)}`)
  return [
    violation?.text ?? 'no violation',
    JSON.stringify(setting),
    ...actions.map((action) => `  ${JSON.stringify(action)}`),
    ...lines,
  ].join('\n')
}

function outcomeOf({
  client,
  gateway,
  limits,
  mode,
  admitted,
  refusedBy,
  retryAfterMs,
  isReplay,
  waitedFor,
}: Call): string {
  const waited = waitedFor === undefined ? '' : ', after its wait'
  const outcome = admitted
    ? 'admitted'
    : isReplay
      ? 'refused: proof used before'
      : `refused by ${refusedBy}, to wait ${retryAfterMs.toFixed(3)} ms`
  return `${client} at gateway ${gateway} (${limits.join(', ')})${waited}: ${outcome} (${mode})`
}
