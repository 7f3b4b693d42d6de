import { expect, it } from 'vitest'
import { FULL, LONG } from '../helpers/runs.ts'
import { createHistory, type Profile, PROFILES } from './history.ts'
import { type Compared, playReal } from './real.ts'

/** Seeds of each profile. */
const SEEDS = LONG ? 20 : 1
const PATIENCE_MS = LONG ? 600_000 : 60_000

/** `npm test` has every second profile. */
const PLAYED = (Object.keys(PROFILES) as Profile[]).filter((_, at) => FULL || at % 2 === 0)

it.each(PLAYED)(
  'answers as a real Redis does through the faults of %s',
  async (profile) => {
    const compared: Compared = { differences: [], counts: {} }
    for (let seed = 1; seed <= SEEDS; seed++) {
      await playReal(`${profile} ${seed}`, createHistory(profile, seed), compared)
    }
    // oxlint-disable-next-line no-console
    if (LONG) console.info(profile, compared.counts)
    expect(compared.counts['replies']).toBeGreaterThan(20)
    expect(compared.differences).toEqual([])
  },
  PATIENCE_MS,
)
