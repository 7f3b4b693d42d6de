import { createLifetime, type Lifetime } from './keep-alive.ts'

/** One of the places where an upstream answers, and how it fares there. */
export interface Address {
  /** Such as `http://10.0.0.1:4000`. */
  readonly origin: string
  readonly host: string
  readonly port: number
  /** Sockets that are open to it, or being opened. */
  sockets: number
  /** Failures in a row. */
  failures: number
  /** Passed over until then, in `now` milliseconds; 0: it is up. */
  downUntil: number
  /** How long it is passed over next time. */
  waitMs: number
  readonly lifetime: Lifetime
}

/** An address that is passed over from now on, or in use again. */
export interface AddressChange {
  readonly address: string
  readonly up: boolean
  /** Its last failure, where it is down. */
  readonly cause?: string
}

/** Which address of an upstream is asked next. */
export interface Addresses {
  readonly all: readonly Address[]
  /** The next in turn that was not tried: one that is up or due for a trial, else any; undefined where all were tried. */
  next(tried?: readonly Address[]): Address | undefined
  answered(address: Address): void
  failed(address: Address, cause: string): void
}

/** Failures in a row after which an address is passed over: no single call's fault. */
const MOST_FAILURES = 3
const FIRST_WAIT_MS = 1000
const LONGEST_WAIT_MS = 30_000

/**
 * Takes addresses in turn, passing over those that failed lately. Each comes back by one request that tries it, after a second at
 * first, and after twice the time with every trial that is not answered. Where all are down, all are used.
 */
export function createAddresses(
  origins: readonly string[],
  onChange: (change: AddressChange) => void,
  now = (): number => performance.now(),
): Addresses {
  const all = origins.map(addressOf)
  let turn = 0
  return {
    all,
    next(tried = []) {
      if (all.length === 1) return tried.length === 0 ? all[0] : undefined
      let down: Address | undefined
      for (let i = 0; i < all.length; i++) {
        const address = all[(turn + i) % all.length]!
        if (tried.includes(address)) continue
        if (address.downUntil === 0) {
          turn += i + 1
          return address
        }
        if (address.downUntil <= now()) {
          address.waitMs = Math.min(2 * address.waitMs, LONGEST_WAIT_MS)
          address.downUntil = now() + address.waitMs
          turn += i + 1
          return address
        }
        down ??= address
      }
      turn++
      return down
    },
    answered(address) {
      address.failures = 0
      if (address.downUntil === 0) return
      address.downUntil = 0
      onChange({ address: address.origin, up: true })
    },
    failed(address, cause) {
      address.failures++
      if (address.failures < MOST_FAILURES || address.downUntil !== 0) return
      address.waitMs = FIRST_WAIT_MS
      address.downUntil = now() + FIRST_WAIT_MS
      onChange({ address: address.origin, up: false, cause })
    },
  }
}

function addressOf(origin: string): Address {
  const { protocol, hostname, port } = new URL(origin)
  return {
    origin,
    host: hostname.replace(/^\[|\]$/g, ''),
    port: Number(port) || (protocol === 'https:' ? 443 : 80),
    sockets: 0,
    failures: 0,
    downUntil: 0,
    waitMs: FIRST_WAIT_MS,
    lifetime: createLifetime(),
  }
}
