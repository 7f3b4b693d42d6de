import { createForward, type Forward, type Upstream } from '../upstream/upstream.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { reused } from './keyed-cache.ts'

/** The ways to the upstreams, kept with their sockets over reloads that do not change them. */
export interface Upstreams {
  /** By name, the ways that are in use from now on. */
  forwards(upstreams: readonly Upstream[]): ReadonlyMap<string, Forward>
  /** Ends those that are in use no more; requests under way end in peace. */
  endUnused(): void
  end(): void
}

/** Log and metrics hear of each address that fails, and when it answers again. */
export function createUpstreams(log: Log, metrics: Metrics): Upstreams {
  const ways = reused(
    (upstream: Upstream) =>
      createForward(upstream, ({ address, up, cause }) => {
        const what = { upstream: upstream.name, address }
        if (up) log.info(what, 'the upstream answers again at this address')
        else
          log.warn(
            { ...what, cause },
            'the upstream fails at this address; others are asked, where it has any',
          )
      }),
    (forward) => forward.close(),
  )
  let inUse: ReadonlyMap<string, Forward> = new Map()
  metrics.watchUpstreams(() =>
    [...inUse].flatMap(([upstream, { addresses }]) =>
      addresses().map(({ address, up }) => ({ upstream, address, up })),
    ),
  )
  return {
    forwards: (upstreams) =>
      (inUse = new Map(upstreams.map((upstream) => [upstream.name, ways.get(upstream)]))),
    endUnused: ways.endUnused,
    end: ways.end,
  }
}
