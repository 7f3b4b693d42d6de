import type { Config } from '../../config/schema.ts'
import { encodePart } from '../../limit/key.ts'
import { createLiveOverrides } from '../../limit/overrides-live.ts'
import { type ListedOverride, listOverrides } from '../../limit/overrides.ts'
import { overridesKey } from '../../limit/redis/overrides.ts'
import type { RedisStore } from '../../limit/redis/store.ts'
import { type ClientUsage, createUsage, type SetLimit, type Usage } from '../../limit/usage.ts'
import { counted, formatDuration, formatParagraphs, formatTable } from '../format.ts'
import { type Given, idOf, type Io, load, print, writeLines, UsageError, wordsOf } from '../io.ts'
import { setLimits } from './set.ts'
import { withRedis } from './with-redis.ts'

/**
 * Shows or resets what Redis counts of one client, or sets its limits; without a client, shows the overrides of all. `top` shows
 * those that use most.
 */
export async function run(given: Given, io: Io): Promise<void> {
  const [action] = wordsOf(given)
  if (action === 'top') return await (await import('./top.ts')).run(given, io)
  const client = idOf(given, 'client')
  const warn = (warning: string): void => writeLines(io.stderr, `warning: ${warning}`)
  if (client === undefined) {
    if (action !== 'show') throw new UsageError('Which client? Give its id.')
    const { config } = await load(given, io)
    print(io, given, { overrides: await readOverrides(config, warn) }, describeOverrides)
    return
  }
  if (action === 'set') {
    await setLimits(given, client, io, warn)
    return
  }
  const { config } = await load(given, io)
  if (action === 'show') {
    const usage = await withCounters(
      config,
      client,
      async ({ ofClient }, loadOverrides) => {
        // In a cluster, another master may have them.
        await loadOverrides().catch((error: Error) => warn(`without the overrides: ${error.message}`))
        return await ofClient(client)
      },
      warn,
    )
    print(io, given, usage, describeUsage)
  } else {
    const freed = await withCounters(config, client, ({ free }) => free(client), warn)
    const words = `Freed ${counted(freed, 'key')} of the client "${client}".`
    print(io, given, { client, freed }, () => words)
  }
}

/** Acts on one client’s counters in Redis, as `withRedis`; under the overrides, once `loadOverrides` has read them. */
async function withCounters<T>(
  config: Config,
  client: string,
  act: (usage: Usage, loadOverrides: () => Promise<void>) => Promise<T>,
  onWarning: (warning: string) => void,
): Promise<T> {
  const { limits, clientLimits } = config
  const keyOf = (prefix: string): string => `${prefix}:{${encodePart(client)}}:`
  return await withRedis(
    config,
    keyOf,
    (store, prefix) => {
      const { limits: overrides, load } = overridesOf(store, onWarning)
      return act(createUsage({ store, prefix, limits, clientLimits, overrides }), load)
    },
    onWarning,
  )
}

/** Returns every override in Redis that has not ended; rejects as `withRedis`. */
async function readOverrides(
  config: Config,
  onWarning: (warning: string) => void,
): Promise<readonly ListedOverride[]> {
  return await withRedis(
    config,
    overridesKey,
    async (store) => {
      const { limits: overrides, load } = overridesOf(store, onWarning)
      await load()
      return listOverrides(overrides, config.limits, config.clientLimits, Date.now())
    },
    onWarning,
  )
}

const overridesOf = (store: RedisStore, onWarning: (warning: string) => void) =>
  createLiveOverrides(store.overrides, {
    onChange: () => {},
    onBad: (lines) =>
      onWarning(`${lines} of the lines in which Redis keeps the overrides cannot be read, and are ignored`),
  })

function describeOverrides({ overrides }: { readonly overrides: readonly ListedOverride[] }): string {
  if (overrides.length === 0) return 'There are no overrides.'
  return formatTable([
    ['CLIENT', 'LIMIT', 'CALLS', 'UNTIL', 'SET', 'IN FORCE'],
    ...overrides.map(({ client, name, limit, until, set, beatenByFile, applies }) => [
      client,
      name,
      String(limit),
      until ?? '-',
      set,
      applies ? (beatenByFile ? 'no: the file has its own limit of the client' : 'yes') : 'no: no such limit',
    ]),
  ])
}

function describeUsage({ client, limits, own, overrides, truncated }: ClientUsage): string {
  const set = [
    ...overrides.map((one) => `An override gives the client ${words(one)}.`),
    ...own.map((one) => `The file gives the client its own ${words(one)}.`),
  ].join('\n')
  if (limits.length === 0) return formatParagraphs([`Nothing is counted of the client "${client}".`, set])
  const table = formatTable([
    ['KEY', 'LIMIT', 'CALLS', 'USED', 'REMAINING', 'WINDOW', 'RESET', 'UNTIL', 'KIND'],
    ...limits.map(({ key, name, limit, remaining, windowSeconds, reset, until, override, shadow }) => [
      key,
      name,
      String(limit),
      String(limit - remaining),
      String(remaining),
      formatDuration(windowSeconds * 1000),
      limit > remaining || limit === 0 ? reset : '-',
      until ?? '-',
      `${shadow ? 'shadow' : 'live'}${override ? ', override' : ''}`,
    ]),
  ])
  const changes = limits.flatMap(({ name, changes }) =>
    changes.map(({ from, limit }) => `From ${from} on, "${name}" allows ${limit}.`),
  )
  const rest = truncated ? [`These are the first ${limits.length} keys; there are more.`] : []
  return formatParagraphs([table, [...new Set(changes), ...rest].join('\n'), set])
}

const words = ({ name, limit, until }: SetLimit): string =>
  `"${name}" of ${limit}${until === null ? '' : ` until ${until}`}`
