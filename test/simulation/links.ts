import type { Link } from './deployment.ts'
import type { Action, History } from './history.ts'
import { createRandom } from './random.ts'
import type { World } from './time.ts'

/** Messages take a fraction of a millisecond, and now and then more. */
const DELAY_MS = [0.05, 0.5] as const

/** A connection that broke because an answer was lost. */
export type Break = Action & { readonly kind: 'cut' }

/** The network of one gateway, with its faults. */
interface FaultyLink extends Link {
  slowUntilMs: number
  slowMs: number
  losesUntilMs: number
}

/** Creates the network between each gateway and Redis; adds the connections that break to `breaks`. */
export function createLinks({ gateways, seed }: History, world: World, breaks: Break[]): FaultyLink[] {
  return Array.from({ length: gateways }, (_, gateway) => {
    const random = createRandom(seed * 31 + gateway)
    const link: FaultyLink = {
      ...{ heldUntilMs: 0, slowUntilMs: 0, slowMs: 0, losesUntilMs: 0 },
      loses(keys) {
        if (world.now() >= link.losesUntilMs || keys.some((key) => key.endsWith('~gateways'))) return false
        link.losesUntilMs = 0
        breaks.push({ kind: 'cut', gateway, losesRequests: false, number: -1, atMs: world.now(), ms: 0 })
        return true
      },
      delayMs: () =>
        world.now() < link.slowUntilMs && random.chance(0.1)
          ? random.between(0, link.slowMs)
          : random.between(...DELAY_MS),
    }
    return link
  })
}
