import type { Config } from '../config/schema.ts'
import { encodePart } from '../limit/key.ts'
import { describeTopology } from '../limit/redis/options.ts'
import { createRedisStore } from '../limit/redis/store.ts'
import { type ClientUsage, createUsage, type Usage } from '../limit/usage.ts'
import { formatDuration, formatParagraphs, formatTable } from './format.ts'
import { type Given, idOf, type Io, load, print, writeLines, UsageError, wordsOf } from './io.ts'

/** Longest wait for an answer of Redis. */
const TIMEOUT_MS = 5000

/** Shows or resets what Redis counts of one client, or shows those that use most. */
export async function run(given: Given, io: Io): Promise<void> {
  if (wordsOf(given)[0] === 'top') return await (await import('./top.ts')).run(given, io)
  const client = idOf(given, 'client')
  if (client === undefined) throw new UsageError('Which client? Give its id.')
  const { config } = await load(given, io)
  const warn = (warning: string): void => writeLines(io.stderr, `warning: ${warning}`)
  if (wordsOf(given)[0] === 'show') {
    const usage = await withCounters(config, client, ({ ofClient }) => ofClient(client), warn)
    print(io, given, usage, describeUsage)
  } else {
    const freed = await withCounters(config, client, ({ free }) => free(client), warn)
    const words = `Freed ${freed} ${freed === 1 ? 'key' : 'keys'} of the client "${client}".`
    print(io, given, { client, freed }, () => words)
  }
}

/** Acts on one client’s counters in Redis; rejects with words for the operator where the store is not Redis or out of reach. */
export async function withCounters<T>(
  { store, admin, limits, clientLimits }: Config,
  client: string,
  act: (usage: Usage) => Promise<T>,
  onWarning: (warning: string) => void,
  timeoutMs = TIMEOUT_MS,
): Promise<T> {
  if (store === 'memory') {
    const host = admin.host.includes(':') ? `[${admin.host}]` : admin.host
    throw new Error(
      `The counters of "store: memory" are within the gateway's process. Ask its admin listener: curl http://${host}:${admin.port}/limits/CLIENT, with -X DELETE to reset.`,
    )
  }
  const { redis, prefix } = store
  const remote = createRedisStore({ ...redis, prefix, timeoutMs, onWarning })
  // Of a cluster, other masters may be out of reach.
  const key = `${prefix}:{${encodePart(client)}}:`
  try {
    await remote.connect()
    await remote.probe(remote.server(key))
    return await act(createUsage({ store: remote, prefix, limits, clientLimits }))
  } catch (error) {
    if ((error as Error).name !== 'TimeoutError') throw error
    const server = remote.server(key)
    const where = server.includes(':') ? `Redis at ${server}` : describeTopology(redis.topology)
    throw new Error(`${where} gave no answer in time.`, { cause: error })
  } finally {
    await remote.close()
  }
}

function describeUsage({ client, limits, truncated }: ClientUsage): string {
  if (limits.length === 0) return `Nothing is counted of the client "${client}".`
  const table = formatTable([
    ['KEY', 'LIMIT', 'CALLS', 'USED', 'REMAINING', 'WINDOW', 'RESET', 'UNTIL', 'MODE'],
    ...limits.map(({ key, name, limit, remaining, windowSeconds, reset, until, shadow }) => [
      key,
      name,
      String(limit),
      String(limit - remaining),
      String(remaining),
      formatDuration(windowSeconds * 1000),
      limit > remaining || limit === 0 ? reset : '-',
      until ?? '-',
      shadow ? 'shadow' : 'live',
    ]),
  ])
  const changes = limits.flatMap(({ name, changes }) =>
    changes.map(({ from, limit }) => `From ${from} on, "${name}" allows ${limit}.`),
  )
  const rest = truncated ? [`These are the first ${limits.length} keys; there are more.`] : []
  return formatParagraphs([table, [...new Set(changes), ...rest].join('\n')])
}
