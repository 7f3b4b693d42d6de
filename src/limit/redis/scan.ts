import type { KeyFilter } from '../key.ts'
import type { RedisConnection } from './connection.ts'
import type { createDeadlines } from './deadlines.ts'
import { hashTag } from './hash-slot.ts'

/** Creates the functions that find keys by a filter; `within` limits the time of each page. */
export function createScan(
  connection: RedisConnection,
  within: ReturnType<typeof createDeadlines>['within'],
) {
  const { client, explain } = connection
  const { commands } = client

  /** Yields the keys that a filter accepts: those of `named`, then page by page those of a scan, some of them twice. */
  async function* find({ named, glob, matches }: KeyFilter, signal?: AbortSignal) {
    connection.assertConfigured()
    const counts = await Promise.all(
      named.map((key) => within(() => explain(commands.exists(key), client.server(key)))),
    )
    yield named.filter((_, i) => counts[i]! > 0)
    if (glob === undefined) return
    // A glob without a wildcard in its hash tag matches keys of one slot.
    const isOfOneSlot = !/[*?[\\]/.test(hashTag(glob))
    for (const server of isOfOneSlot ? [client.server(glob)] : client.tags().keys()) {
      const node = client.node(server)
      if (node === undefined) throw new Error(`Redis is not connected: ${server}.`)
      let cursor = '0'
      do {
        signal?.throwIfAborted()
        const page = () => explain(node.scan(cursor, 'MATCH', glob, 'COUNT', 1000), server)
        const [next, keys] = await within(page)
        yield keys.filter((key) => matches(key) && !named.includes(key))
        cursor = next
      } while (cursor !== '0')
    }
  }

  return {
    async keys(filter: KeyFilter, max = Infinity, signal?: AbortSignal): Promise<readonly string[]> {
      const found = new Set<string>()
      for await (const keys of find(filter, signal)) {
        for (const key of keys) found.add(key)
        if (found.size >= max) break
      }
      return [...found].slice(0, max)
    },

    async reset(filter: KeyFilter, signal?: AbortSignal): Promise<number> {
      let freed = 0
      for await (const keys of find(filter, signal)) {
        // One command per key, since the keys of a cluster may have several slots.
        const counts = keys.map((key) => explain(commands.unlink(key), client.server(key)))
        for (const count of await Promise.all(counts)) freed += count
      }
      return freed
    },
  }
}
