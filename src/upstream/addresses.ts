import { Health } from '../health.ts'

/** An address that is passed over from now on, with its last failure, or in use again. */
export interface AddressChange {
  readonly address: string
  readonly up: boolean
  readonly cause?: string
}

function createAddress(origin: string, onChange: (change: AddressChange) => void, now: () => number) {
  const { protocol, hostname, port } = new URL(origin)
  const health = new Health({
    // So many in a row are no single call's fault.
    failures: 3,
    backoffMs: 1000,
    maxBackoffMs: 30_000,
    onDown: ({ message }) => onChange({ address: origin, up: false, cause: message }),
    onUp: () => onChange({ address: origin, up: true }),
    now,
  })
  const keepAlive = createKeepAliveEstimate(now)
  const host = hostname.replace(/^\[|\]$/g, '')
  /** `sockets` are those that are open to it, or being opened. */
  return {
    origin,
    host,
    port: Number(port) || (protocol === 'https:' ? 443 : 80),
    health,
    keepAlive,
    sockets: 0,
  }
}

export type Address = ReturnType<typeof createAddress>

/** Takes addresses in rotation, without those that are down until a trial request succeeds; if all are down, all are used. */
export function createAddresses(
  origins: readonly string[],
  onChange: (change: AddressChange) => void,
  now = (): number => performance.now(),
) {
  const all = origins.map((origin) => createAddress(origin, onChange, now))
  let rotation = 0

  /** Returns the next one that is not in `tried`: one that is up or due for a trial, else any; undefined if all were tried. */
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

/** A socket closed sooner was not closed for being idle: it was much used, or the server ends. */
const MIN_IDLE_MS = 100
/** An observation counts for this long at least, and for at most twice as long once others follow. */
const PERIOD_MS = 60_000

/** Estimates how long an address keeps idle sockets, in two numbers however many it closes. */
export function createKeepAliveEstimate(now: () => number) {
  let shortest = Number.POSITIVE_INFINITY
  let shortestBefore = Number.POSITIVE_INFINITY
  let periodEndsAt = 0
  return {
    /** Returns the shortest time after which the address closed an idle socket lately; infinite if it closed none. */
    ms: (): number => Math.min(shortest, shortestBefore),
    /** Records that it closed a socket idle for so long; infinite if it kept one for as long as the pool did. */
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
