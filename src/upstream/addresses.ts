import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { Health } from '../health.ts'

/** An address that was taken out of rotation, with its last failure, or is in use again. */
export interface AddressChange {
  readonly address: string
  readonly up: boolean
  readonly cause?: string
}

function createAddress(origin: string, onChange: (change: AddressChange) => void, now: () => number) {
  const { protocol, hostname, port } = new URL(origin)
  const health = new Health({
    // Three in a row cannot be the fault of one request.
    failures: 3,
    backoffMs: 1000,
    maxBackoffMs: 30_000,
    onDown: ({ message }) => onChange({ address: origin, up: false, cause: message }),
    onUp: () => onChange({ address: origin, up: true }),
    clock: { ...SYSTEM_CLOCK, now },
  })
  const keepAlive = createKeepAliveEstimate(now)
  const host = hostname.replace(/^\[|\]$/g, '')
  const defaultPort = protocol === 'https:' ? 443 : 80
  /** `sockets` counts open and connecting sockets. */
  return { origin, host, port: Number(port) || defaultPort, health, keepAlive, sockets: 0 }
}

export type Address = ReturnType<typeof createAddress>

/** Rotates through addresses, without those that are down until a trial request succeeds; if all are down, all are used. */
export function createAddresses(
  origins: readonly string[],
  onChange: (change: AddressChange) => void,
  now = (): number => performance.now(),
) {
  const all = origins.map((origin) => createAddress(origin, onChange, now))
  let rotation = 0

  /** Returns the next address outside `tried`: one that is up or due for a trial, else any; undefined if all were tried. */
  function next(tried: readonly Address[] = []): Address | undefined {
    let down: Address | undefined
    for (let i = 0; i < all.length; i++) {
      const address = all[(rotation + i) % all.length]!
      if (tried.includes(address)) continue
      if (address.health.up || address.health.due()) {
        rotation += i + 1
        return address
      }
      down ??= address
    }
    rotation++
    return down
  }

  return { all, next }
}

export type Addresses = ReturnType<typeof createAddresses>

/** A socket that is closed sooner was not closed for being idle. */
const MIN_IDLE_MS = 100
/** An observation counts for at least this long, and at most twice as long once others follow. */
const PERIOD_MS = 60_000

/** Estimates how long an address keeps idle sockets, from the last two periods. */
export function createKeepAliveEstimate(now: () => number) {
  let shortest = Number.POSITIVE_INFINITY
  let shortestBefore = Number.POSITIVE_INFINITY
  let periodEndsAt = 0
  return {
    /** Returns the shortest recent time after which the address closed an idle socket; infinite if it closed none. */
    ms: (): number => Math.min(shortest, shortestBefore),
    /** Records the idle time of a socket that the address closed; infinite if the pool closed it first. */
    record(idleMs: number): void {
      if (idleMs < MIN_IDLE_MS) return
      if (now() >= periodEndsAt) {
        shortestBefore = shortest
        shortest = Number.POSITIVE_INFINITY
        periodEndsAt = now() + PERIOD_MS
      }
      shortest = Math.min(shortest, idleMs)
    },
  }
}
