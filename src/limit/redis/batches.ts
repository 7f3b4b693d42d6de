import type { Quota } from '../limit.ts'
import { type Allowance, type Charge, DamagedKeyError } from '../store.ts'

/** Asks charge.lua: the keys, then the arguments after the first, which is the deadline; its answer is of so many numbers. */
export type Ask = (
  keys: readonly string[],
  args: readonly number[],
  size: number,
) => Promise<readonly number[]>

/** Decisions of the same turn of the event loop, gathered by where they are decided. */
export interface Batches {
  /** Decides with the others of this turn and `place`; rejects when the batch fails, or a key is damaged. */
  add(place: number, quotas: readonly Quota[], charging: boolean): Promise<Charge>
}

interface Waiting {
  readonly quotas: readonly Quota[]
  readonly charging: boolean
  readonly resolve: (charge: Charge) => void
  readonly reject: (error: Error) => void
}

/** One script call blocks Redis for less than a millisecond. */
const MOST_AT_ONCE = 64

/** Gathers decisions. */
export function createBatches(ask: Ask): Batches {
  let gathering = new Map<number, Waiting[]>()

  function send(batch: readonly Waiting[]): void {
    const { keys, args } = request(batch)
    ask(keys, args, 1 + batch.length + 3 * keys.length).then(
      (numbers) => {
        for (const [i, charge] of charges(numbers, batch).entries()) {
          if (charge instanceof DamagedKeyError) batch[i]!.reject(charge)
          else batch[i]!.resolve(charge)
        }
      },
      (error: unknown) => {
        const cause = error instanceof Error ? error : new Error(String(error))
        for (const { reject } of batch) reject(cause)
      },
    )
  }

  function flush(): void {
    const gathered = gathering
    gathering = new Map()
    for (const all of gathered.values()) {
      for (let i = 0; i < all.length; i += MOST_AT_ONCE) {
        send(all.length <= MOST_AT_ONCE ? all : all.slice(i, i + MOST_AT_ONCE))
      }
    }
  }

  return {
    add(place, quotas, charging) {
      return new Promise((resolve, reject) => {
        if (gathering.size === 0) setImmediate(flush)
        const one = { quotas, charging, resolve, reject }
        const batch = gathering.get(place)
        if (batch === undefined) gathering.set(place, [one])
        else batch.push(one)
      })
    },
  }
}

/** KEYS and ARGV of charge.lua. */
function request(batch: readonly Waiting[]): { readonly keys: string[]; readonly args: number[] } {
  const keys: string[] = []
  const args: number[] = []
  for (const { quotas, charging } of batch) {
    args.push(charging ? quotas.length : -quotas.length)
    for (const { key, limit, windowMs, shadow, calls } of quotas) {
      keys.push(key)
      args.push(limit, windowMs * 1000, calls === undefined ? Number(shadow) : -calls)
    }
  }
  return { keys, args }
}

/** Reads the answer of charge.lua. */
function charges(
  numbers: readonly number[],
  batch: readonly Waiting[],
): readonly (Charge | DamagedKeyError)[] {
  const nowUs = numbers[0]!
  let at = 1
  return batch.map(({ quotas }, i) => {
    const verdict = numbers[at++]!
    const damaged = verdict === -1 ? quotas.findIndex((_, j) => numbers[at + 3 * j] === -1) : -1
    const admitted = verdict === 1
    const allowances = quotas.map((quota) => {
      at += 3
      return allowance(quota, numbers[at - 3] === 1, numbers[at - 2]!, numbers[at - 1]!, nowUs)
    })
    if (damaged !== -1) return new DamagedKeyError(quotas[damaged]!.key)
    // One instant is that of the whole batch; told so, its calls stay in the order in which they were decided.
    return { admitted, allowances, mode: 'store', decidedAt: (nowUs + i) / 1000 }
  })
}

function allowance(
  { name, limit, windowMs, shadow }: Quota,
  admitted: boolean,
  remaining: number,
  growsAtUs: number,
  nowUs: number,
): Allowance {
  const resetAfterMs = (growsAtUs - nowUs) / 1000
  return {
    name,
    limit,
    windowMs,
    remaining,
    resetAt: Math.ceil(growsAtUs / 1000),
    resetAfterMs,
    retryAfterMs: remaining > 0 ? 0 : resetAfterMs,
    admitted,
    shadow,
  }
}
