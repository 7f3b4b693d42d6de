import { lookup, type LookupAddress } from 'node:dns'
import type { LookupFunction } from 'node:net'

/** Resolves a name to all of its addresses, like `dns.lookup`. */
export type Resolve = (
  name: string,
  options: { readonly all: true },
  done: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void

/**
 * Returns a lookup for sockets that lets the addresses of a name take turns: each connection begins
 * with the next one, and goes on to the others if that does not accept it (RFC 8305).
 */
export function createLookup(resolve: Resolve = lookup): LookupFunction {
  const turns = new Map<string, number>()
  return (name, options, done) =>
    resolve(name, { ...options, all: true }, (error, addresses) => {
      const turn = turns.get(name) ?? 0
      turns.set(name, turn + 1)
      done(error, error === null ? inTurn(addresses, turn) : [])
    })
}

/**
 * Rotates the addresses of each family, and keeps the preferred family first. They are sorted before:
 * a resolver that also rotates them could undo the rotation.
 */
function inTurn(addresses: readonly LookupAddress[], turn: number): LookupAddress[] {
  const families = [...new Set(addresses.map(({ family }) => family))]
  return families.flatMap((family) => {
    const own = addresses.filter((address) => address.family === family)
    const sorted = own.toSorted((one, other) => (one.address < other.address ? -1 : 1))
    const first = turn % sorted.length
    return [...sorted.slice(first), ...sorted.slice(0, first)]
  })
}
