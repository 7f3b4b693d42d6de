import type { TLSSocket } from 'node:tls'
import type { Address } from './addresses.ts'

/** The TLS sessions of one upstream's sockets, which new ones resume: that spares both ends most of a handshake. */
export interface Sessions {
  /** What a new socket to an address may offer. */
  of(address: Address): Buffer | undefined
  /** Keeps what this socket to an address, which offers what `of` tells, is given by the far end. */
  keep(socket: TLSSocket, address: Address): void
  /** Offers nothing to an address for a while: its handshake failed where a session was offered. */
  refused(address: Address): void
}

/** How long after it was verified a certificate is taken for good: a session that is resumed shows none. */
const LONGEST_MS = 5 * 60_000
const REFUSED_MS = 5 * 60_000

interface Kept {
  readonly session: Buffer
  readonly verifiedAt: number
}

/** For sockets that all verify by the same authorities and name, and show the same certificate. */
export function createSessions(now = (): number => performance.now()): Sessions {
  const known = new Map<Address, Kept>()
  const refusedUntil = new Map<Address, number>()
  return {
    of(address) {
      const kept = known.get(address)
      if (now() < (refusedUntil.get(address) ?? 0)) return undefined
      return kept !== undefined && now() - kept.verifiedAt < LONGEST_MS ? kept.session : undefined
    },
    keep(socket, address) {
      const offered = known.get(address)
      // Node tells of none before the far end is verified.
      socket.on('session', (session) => {
        const verifiedAt = socket.isSessionReused() ? offered?.verifiedAt : now()
        if (verifiedAt !== undefined) known.set(address, { session, verifiedAt })
      })
    },
    refused: (address) => void refusedUntil.set(address, now() + REFUSED_MS),
  }
}
