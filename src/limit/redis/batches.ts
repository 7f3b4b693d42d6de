import type { Quota } from '../limit.ts'
import { allowanceOf, type Charge, DamagedKeyError } from '../store.ts'
import type { Scripts } from './scripts.ts'

interface Waiting {
  readonly quotas: readonly Quota[]
  readonly charging: boolean
  readonly resolve: (charge: Charge) => void
  readonly reject: (error: Error) => void
}

/** So that one script call blocks Redis for less than a millisecond. */
const MAX_BATCH = 64

/** Gathers the decisions of one iteration of the event loop by hash slot, and asks charge.lua for them together. */
export function createBatches(scripts: Scripts) {
  let gathering = new Map<number, Waiting[]>()

  function flush(): void {
    const gathered = gathering
    gathering = new Map()
    for (const all of gathered.values()) {
      for (let i = 0; i < all.length; i += MAX_BATCH) send(all.slice(i, i + MAX_BATCH))
    }
  }

  function send(batch: readonly Waiting[]): void {
    const keys: string[] = []
    const args: number[] = []
    for (const { quotas, charging } of batch) {
      args.push(charging ? quotas.length : -quotas.length)
      for (const { key, limit, windowMs, shadow, calls } of quotas) {
        keys.push(key)
        args.push(limit, windowMs * 1000, calls === undefined ? Number(shadow) : -calls)
      }
    }
    scripts.charge(keys, args, 1 + batch.length + 3 * keys.length).then(
      (numbers) => settle(batch, numbers),
      (error: Error) => {
        for (const { reject } of batch) reject(error)
      },
    )
  }

  /** Rejects if the script fails, or with a DamagedKeyError. */
  return (slot: number, quotas: readonly Quota[], charging: boolean): Promise<Charge> =>
    new Promise((resolve, reject) => {
      if (gathering.size === 0) setImmediate(flush)
      const one = { quotas, charging, resolve, reject }
      const batch = gathering.get(slot)
      if (batch === undefined) gathering.set(slot, [one])
      else batch.push(one)
    })
}

function settle(batch: readonly Waiting[], numbers: readonly number[]): void {
  const nowUs = numbers[0]!
  let at = 1
  for (const [i, { quotas, resolve, reject }] of batch.entries()) {
    const verdict = numbers[at++]
    let damaged: string | undefined
    const allowances = quotas.map((quota) => {
      const room = numbers[at++]!
      const remaining = numbers[at++]!
      const growsAtUs = numbers[at++]!
      if (room === -1) damaged ??= quota.key
      return allowanceOf(quota, room === 1, remaining, growsAtUs / 1000, (growsAtUs - nowUs) / 1000)
    })
    if (damaged !== undefined) reject(new DamagedKeyError(damaged))
    // All share one instant; a microsecond each keeps them in the order in which they were decided.
    else resolve({ admitted: verdict === 1, allowances, mode: 'store', decidedAt: (nowUs + i) / 1000 })
  }
}
