import { expect, it } from 'vitest'
import { createHistory, type Profile, PROFILES } from './history.ts'
import { judge } from './judge.ts'
import { play } from './play.ts'

/** Seeds of each profile in this test; `npm run simulate` runs on. */
const SEEDS = 25

it.each(Object.keys(PROFILES) as Profile[])(
  'keeps its promises through the faults of %s',
  async (profile) => {
    for (let seed = 1; seed <= SEEDS; seed++) {
      expect(judge(await play(createHistory(profile, seed)))).toEqual([])
    }
  },
)

it('repeats a history exactly', async () => {
  const history = createHistory('several', 7)
  expect(await play(history)).toEqual(await play(history))
})
