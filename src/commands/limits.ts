import type { Config } from '../config/schema.ts'
import { Deadlines, TimeoutError } from '../limit/redis/deadlines.ts'
import { encodePart } from '../limit/key.ts'
import { describeTopology } from '../limit/redis/options.ts'
import { RedisStore } from '../limit/redis/store.ts'
import { type ClientUsage, createUsage, type Usage } from '../limit/usage.ts'
import { table } from './table.ts'
import { duration } from './units.ts'

/** Longest that the command waits for Redis to answer at all. */
const ANSWERS_MS = 5000

/**
 * Does something about one client's counters, straight in Redis, and says in words or JSON what came of it. Rejects with
 * words for the operator: of the store's configuration, or of a Redis that is out of reach.
 */
export async function withCounters<T>(
  config: Config,
  client: string,
  act: (usage: Usage) => Promise<T>,
  answersMs = ANSWERS_MS,
): Promise<T> {
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
    timeoutMs: answersMs,
    onWarning: (warning) => process.stderr.write(`warning: ${warning}\n`),
  })
  // Of a cluster, other masters may be out of reach.
  const key = `${prefix}:{${encodePart(client)}}:`
  try {
    const there = remote.connect().then(() => remote.probe(remote.server(key)))
    await new Deadlines(answersMs).bound(() => there)
    return await act(createUsage({ store: remote, prefix, limits, clientLimits }))
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error
    const server = remote.server(key)
    const where = server.includes(':') ? `Redis at ${server}` : describeTopology(redis.topology)
    throw new Error(`${where} gave no answer in time.`, { cause: error })
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
