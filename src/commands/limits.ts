import type { Config } from '../config/schema.ts'
import { createDeadlines } from '../limit/deadlines.ts'
import { RedisStore } from '../limit/redis-store.ts'
import { type ClientUsage, createUsage, type Usage } from '../limit/usage.ts'
import { table } from './table.ts'
import { duration } from './units.ts'

/** Longest that the command waits for all of Redis to be looked through. */
const SLOWEST_MS = 60_000

/**
 * Does something about one client's counters, straight in Redis, and says in words or JSON what came of it. Rejects with
 * words for the operator: of the store's configuration, or of a Redis that is out of reach.
 */
export async function withCounters<T>(config: Config, act: (usage: Usage) => Promise<T>): Promise<T> {
  const { store, admin, limits, clientLimits } = config
  if (store === 'memory') {
    const host = admin.host.includes(':') ? `[${admin.host}]` : admin.host
    throw new Error(
      `The counters of "store: memory" are within the gateway's process. Ask its admin listener: curl http://${host}:${admin.port}/limits/CLIENT, with -X DELETE to reset.`,
    )
  }
  const { redis, prefix } = store
  const remote = new RedisStore({
    ...redis,
    prefix,
    onWarning: (warning) => process.stderr.write(`warning: ${warning}\n`),
  })
  try {
    await remote.connect()
    const usage = createUsage({ store: remote, prefix, limits, clientLimits })
    const asked = remote.probe(`${prefix}:{limits}:`).then(() => act(usage))
    return await createDeadlines(SLOWEST_MS).bound(asked)
  } finally {
    await remote.close()
  }
}

/** What a client has used, for people. */
export function describeUsage({ client, limits, truncated }: ClientUsage): string {
  if (limits.length === 0) return `Nothing is counted of the client "${client}".`
  const shown = table([
    ['KEY', 'LIMIT', 'CALLS', 'USED', 'REMAINING', 'WINDOW', 'RESET', 'UNTIL', 'MODE'],
    ...limits.map(({ key, name, limit, remaining, windowSeconds, reset, until, shadow }) => [
      key,
      name,
      String(limit),
      String(limit - remaining),
      String(remaining),
      duration(windowSeconds * 1000),
      limit > remaining || limit === 0 ? reset : '-',
      until ?? '-',
      shadow ? 'shadow' : 'live',
    ]),
  ])
  const changes = limits.flatMap(({ name, changes }) =>
    changes.map(({ from, limit }) => `From ${from} on, "${name}" allows ${limit}.`),
  )
  const rest = truncated ? [`These are the first ${limits.length} keys; there are more.`] : []
  return [shown, [...new Set(changes), ...rest].join('\n')].filter(Boolean).join('\n\n')
}
