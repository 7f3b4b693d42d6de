import { RedisStore, type RedisStoreOptions } from '../../src/limit/redis-store.ts'
import type { Quota } from '../../src/limit/limit.ts'

/** What a worker is told: hammer these quotas until an instant, with so many calls under way at a time. */
export interface Burst {
  readonly topology: RedisStoreOptions['topology']
  readonly quotas: readonly Quota[]
  readonly untilMs: number
  readonly concurrency: number
}

/** When an admitted call was asked for and answered: milliseconds on the machine's clock. */
export type Admitted = readonly [askedAtMs: number, answeredAtMs: number]

process.once('message', (burst: Burst) => {
  void run(burst).then((admitted) => process.send!(admitted, () => process.exit(0)))
})

const now = (): number => performance.timeOrigin + performance.now()

async function run({ topology, quotas, untilMs, concurrency }: Burst): Promise<readonly Admitted[]> {
  const store = new RedisStore({ topology, prefix: 'burst' })
  await store.connect()
  const admitted: Admitted[] = []
  async function hammer(): Promise<void> {
    while (now() < untilMs) {
      const askedAtMs = now()
      const charge = await store.charge(quotas)
      if (charge.admitted) admitted.push([askedAtMs, now()])
    }
  }
  await Promise.all(Array.from({ length: concurrency }, hammer))
  await store.close()
  return admitted
}
