import { expect, it } from 'vitest'
import { createHistory, FIRST_SETTLED, type Profile, PROFILES } from './history.ts'
import { judge } from './judge.ts'
import { play } from './play.ts'
import { FULL, LONG } from '../helpers/runs.ts'

/** One history of each profile, and one whose calls are settled; `npm run simulate` runs on. */
it.each(Object.keys(PROFILES) as Profile[])(
  'keeps its promises through the faults of %s',
  async (profile) => {
    for (const seed of [1, FIRST_SETTLED + 1])
      expect(judge(await play(createHistory(profile, seed)))).toEqual([])
  },
)

/** Histories that broke a promise before the code or the judge was mended, or that find one of the faults of `npm run simulate:faults`. */
const FOUND: readonly (readonly [Profile, number])[] = [
  ...[92, 163, 169, 172, 178, 216, 297, 548, 808, 20877].map((seed) => ['single', seed] as const),
  ...[34, 122, 141, 593, 620].map((seed) => ['several', seed] as const),
  ...[19, 202, 333, 344, 617, 500289].map((seed) => ['clocks', seed] as const),
  ...[74, 218, 70013].map((seed) => ['losing', seed] as const),
  ...[66, 1199, 3000447].map((seed) => ['regulated', seed] as const),
  ...[127, 1342, 1655, 2590, 3111, 702453, 3000180].map((seed) => ['kinds', seed] as const),
  ...[2446, 740042].map((seed) => ['points', seed] as const),
  ...[333, 10746, 11697].map((seed) => ['replaced', seed] as const),
  ['ruled', 3000697],
  ['atOnce', 2503921],
  ['kinds', 5000320],
  ['shares', 10000082],
  ['shares', 10000245],
  ['single', 31000013],
  ['losing', 31000083],
  ['several', 32000142],
  ['replaced', 34000209],
  ['ruled', 34000146],
  ['regulated', 35000233],
  ['single', 36000160],
  ['shares', 36000287],
  ['kept', 37000102],
  ['replaced', 38000141],
  ['several', 39000229],
  ['kinds', 40000115],
  ['losing', 41000040],
  ['kept', 42000099],
  ...[10000008, 10000029, 10000089].map((seed) => ['kept', seed] as const),
]

/** `npm test` plays every third one. */
const PLAYED = FOUND.filter((_, at) => FULL || at % 3 === 0)

/** The histories that take up to 16 s each, in `npm run test:long`. */
const SLOW: typeof FOUND = [
  ['single', 20082],
  ['single', 22641],
  ['regulated', 164],
  ['replaced', 5456],
]

it.each(LONG ? [...FOUND, ...SLOW] : PLAYED)(
  'keeps its promises in a history of %s that broke one: seed %i',
  async (profile, seed) => {
    expect(judge(await play(createHistory(profile, seed)))).toEqual([])
  },
)

it('repeats a history exactly', async () => {
  const history = createHistory('several', 7)
  expect(await play(history)).toEqual(await play(history))
})
