// Simulates the limiter through faults: `npm run simulate -- --seconds 600`, or one history: `npm
// run simulate -- --profile single
// --seed 7`. Prints the shortest history that breaks a promise, and then fails.
import { fork } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { once } from 'node:events'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { createHistory, FIRST_SETTLED, type Profile, PROFILES } from '../test/simulation/history.ts'
import { judge } from '../test/simulation/judge.ts'
import { play } from '../test/simulation/play.ts'
import { describe, shrink } from '../test/simulation/shrink.ts'

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    profile: { type: 'string' },
    seed: { type: 'string' },
    /** The first seed; the processes take turns. */
    from: { type: 'string', default: '1' },
    step: { type: 'string' },
  },
})
const profiles = (values.profile === undefined ? Object.keys(PROFILES) : [values.profile]) as Profile[]

interface Tally {
  histories: number
  hours: number
  calls: number
  withoutRedis: number
}

/** Plays the history of a seed; returns what was played, after printing a broken promise. */
async function trial(profile: Profile, seed: number): Promise<Tally & { isBroken: boolean }> {
  const played = await play(createHistory(profile, seed))
  const [violation] = judge(played)
  if (violation !== undefined) {
    console.error(
      `${profile}, seed ${seed}: the promise "${violation.promise}" is broken. The shortest history found:`,
    )
    console.error(await describe(await shrink(played.history, violation.promise), violation.promise))
  }
  const { calls, history } = played
  const withoutRedis = calls.filter(({ mode }) => mode !== 'store').length
  return {
    histories: 1,
    hours: history.ms / 3.6e6,
    calls: calls.length,
    withoutRedis,
    isBroken: violation !== undefined,
  }
}

/** Plays every `step`th seed until the time is over. */
async function work(from: number, step: number): Promise<void> {
  const endAt = performance.now() + Number(values.seconds) * 1000
  const tally: Tally = { histories: 0, hours: 0, calls: 0, withoutRedis: 0 }
  for (let seed = from; performance.now() < endAt && process.exitCode === undefined; seed += step) {
    // As many histories in which calls are settled as others.
    const seeds = seed < FIRST_SETTLED ? [seed, seed + FIRST_SETTLED] : [seed]
    for (const profile of profiles)
      for (const one of seeds) {
        const { isBroken, ...played } = await trial(profile, one)
        for (const name of Object.keys(tally) as (keyof Tally)[]) tally[name] += played[name]
        if (isBroken) process.exitCode = 1
      }
  }
  process.send?.(tally)
}

if (values.seed !== undefined) {
  for (const profile of profiles)
    if ((await trial(profile, Number(values.seed))).isBroken) process.exitCode = 1
} else if (values.step !== undefined) {
  await work(Number(values.from), Number(values.step))
} else {
  const processes = availableParallelism()
  const all = await Promise.all(
    Array.from({ length: processes }, async (_, i) => {
      const from = String(Number(values.from) + i)
      const child = fork(import.meta.filename, [
        ...process.argv.slice(2),
        '--from',
        from,
        '--step',
        String(processes),
      ])
      const ended = once(child, 'exit')
      const [tally] = (await once(child, 'message')) as [Tally]
      if ((await ended)[0] !== 0) process.exitCode = 1
      return tally
    }),
  )
  const sum = (name: keyof Tally): number => all.reduce((total, tally) => total + tally[name], 0)
  console.log(
    `${sum('hours').toFixed(1)} simulated hours, ${sum('histories')} histories of the seeds from ${values.from}, ${sum('calls')} calls (${sum('withoutRedis')} without Redis), ${process.exitCode === 1 ? 'a promise is broken' : 'no promise is broken'}`,
  )
}
