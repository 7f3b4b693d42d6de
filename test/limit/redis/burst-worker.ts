import { RedisStore, type RedisStoreOptions } from '../../../src/limit/redis/store.ts'
import type { Quota } from '../../../src/limit/limit.ts'

/** What a worker is told: to hammer these quotas, with so many calls under way at a time. */
export interface Burst {
  readonly topology: RedisStoreOptions['topology']
  readonly quotas: readonly Quota[]
  readonly concurrency: number
  /** Calls to make, or milliseconds for which to make them. */
  readonly calls?: number
  readonly forMs?: number
}

/** When an admitted call was asked for and answered: milliseconds on the machine’s monotonic clock. */
export type Admitted = readonly [askedAtMs: number, answeredAtMs: number]

// First the burst; it says `ready` when it is connected. Then the word to go; it says what was admitted.
process.once('message', (burst: Burst) => {
  const store = new RedisStore({ topology: burst.topology, prefix: 'burst' })
  void store.connect().then(() => process.send!('ready'))
  process.once('message', () => {
    void hammer(store, burst).then((admitted) => process.send!(admitted, () => process.exit(0)))
  })
})

/** Of all processes alike: `performance.timeOrigin` is off by what a process was kept waiting for while it was taken. */
const now = (): number => Number(process.hrtime.bigint()) / 1e6

async function hammer(
  store: RedisStore,
  { quotas, concurrency, calls = Number.POSITIVE_INFINITY, forMs = Number.POSITIVE_INFINITY }: Burst,
): Promise<readonly Admitted[]> {
  const admitted: Admitted[] = []
  const endMs = now() + forMs
  let made = 0
  async function one(): Promise<void> {
    while (made < calls && now() < endMs) {
      made++
      const askedAtMs = now()
      const charge = await store.charge(quotas)
      if (charge.admitted) admitted.push([askedAtMs, now()])
    }
  }
  await Promise.all(Array.from({ length: concurrency }, one))
  await store.close()
  return admitted
}
