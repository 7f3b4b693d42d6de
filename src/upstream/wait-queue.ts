import { createShares } from '../limit/concurrency.ts'

/** A request that waits for a socket; one that was destroyed waits no more. */
interface Waiting {
  readonly caller: string
  readonly request: { readonly destroyed: boolean }
}

/** The requests that wait for a socket. */
export interface Line<One extends Waiting> {
  /** False where there is no place left, or none for its caller. */
  join(one: One): boolean
  /** Lets begin who can: in their order, but for those whose callers have their share already. */
  serve(): void
}

/**
 * A line with so many places in all, and for each caller. `begin` gives a request what it waits for, or is false; while
 * `isFull`, it need not be asked.
 */
export function createLine<One extends Waiting>(
  places: number,
  each: number,
  begin: (one: One) => boolean,
  isFull: () => boolean,
): Line<One> {
  const taken = createShares(places, each)
  const waiting: One[] = []

  function leave(at: number): void {
    const [one] = waiting.splice(at, 1)
    taken.giveBack(one!.caller)
  }

  /** Those who left while they waited give their places back. */
  function hasPlace(caller: string): boolean {
    if (taken.free(caller)) return true
    for (let i = waiting.length - 1; i >= 0; i--) if (waiting[i]!.request.destroyed) leave(i)
    return taken.free(caller)
  }

  return {
    join(one) {
      if (!hasPlace(one.caller)) return false
      taken.take(one.caller)
      waiting.push(one)
      return true
    },
    serve() {
      for (let i = 0; i < waiting.length;) {
        if (isFull()) return
        if (waiting[i]!.request.destroyed || begin(waiting[i]!)) leave(i)
        else i++
      }
    },
  }
}
