import type { Gateway } from './gateway.ts'
import type { History } from './history.ts'
import type { Call } from './play.ts'
import { createRandom } from './random.ts'
import type { World } from './time.ts'

/** Time for which the place of a call whose caller left is kept, unless a lease is shorter. */
export const KEPT_MS = 10_000

/**
 * Creates the calls at once that are in progress: each for a while, some for longer than a lease; the
 * callers of some leave.
 */
export function createInProgress({ seed, limits }: History, world: World) {
  /** The calls at each gateway, with the functions that end them. */
  const all = new Map<Gateway, Map<Call, () => void>>()
  const callsOf = (gateway: Gateway) => [...(all.get(gateway)?.entries() ?? [])]

  return {
    /** Begins a call, and ends it later, unless its gateway ends before. */
    hold(call: Call, gateway: Gateway, release: (mayGoOn?: boolean) => void, number: number): void {
      const random = createRandom(seed * 6007 + number)
      const { windowMs } = limits.sync
      const lengthMs = random.pick([
        random.between(1, 100),
        random.between(1, 300),
        random.between(100, 2000),
        random.between(windowMs / 2, 3 * windowMs),
      ])
      const held = all.get(gateway) ?? new Map<Call, () => void>()
      all.set(gateway, held)
      function end(): void {
        if (!held.delete(call)) return
        call.endedAtMs = world.now()
        release()
      }
      function leave(): void {
        if (!held.has(call)) return
        release(true)
        call.leftAtMs = world.now()
        held.set(call, () => {})
        world.at(world.now() + KEPT_MS, () => void held.delete(call))
      }
      held.set(call, end)
      world.at(world.now() + lengthMs, random.chance(0.2) ? leave : end, gateway.loop)
    },
    /** Ends a gateway: a graceful one after its calls. */
    async endGateway(gateway: Gateway, isGraceful: boolean): Promise<void> {
      if (isGraceful) for (const [, end] of callsOf(gateway)) end()
      await gateway.end(isGraceful)
      for (const [call] of callsOf(gateway)) {
        Object.assign(call, { endedAtMs: world.now(), isCut: true })
        all.get(gateway)!.delete(call)
      }
    },
  }
}
