import { randomUUID } from 'node:crypto'
import type { Config, SharedStore } from '../../config/schema.ts'
import { createLiveOverrides } from '../../limit/overrides-live.ts'
import { listOverrides } from '../../limit/overrides.ts'
import { inspectNodes } from '../../limit/redis/diagnose.ts'
import { describeTopology } from '../../limit/redis/options.ts'
import { createRedisStore, type RedisStore } from '../../limit/redis/store.ts'
import { pluralize } from '../format.ts'
import { type Finding, type Probe, TIMEOUT_MS } from './probes.ts'

/** Connects to each server that the store names, and then counts and frees a call as the gateway does. */
export function redisProbe(config: Config): Probe {
  const { store } = config
  return async () => {
    if (store === 'memory')
      return [
        { state: 'ok', what: 'store', message: 'counts in the memory of this process; nothing to reach' },
      ]
    const { topology } = store.redis
    const nodes = await inspectNodes(store.redis, TIMEOUT_MS)
    const found = nodes.map((node) => describeNode(node, 'name' in topology ? 'sentinel' : 'Redis'))
    // Where none can be reached, counting fails for the same reason.
    if (found.every(({ state }) => state === 'failed')) return found
    return [...found, ...(await useStore(config, store))]
  }
}

function describeNode(node: Awaited<ReturnType<typeof inspectNodes>>[number], kind: string): Finding {
  const what = `${kind} at ${shownAddress(node.url)}`
  if ('found' in node) return { state: 'ok', what, message: node.found }
  const { name, message } = node.error
  if (name === 'StoreConfigError') return { state: 'failed', what, message }
  const wrong = message.startsWith('Unknown RESP type')
    ? 'something other than Redis answers there; correct store.redis'
    : `${message}; start it, or correct store.redis`
  return { state: 'failed', what, message: wrong }
}

const shownAddress = (url: string): string => (url.startsWith('redis') ? new URL(url).host : url)

/** Counts a call and frees it, and where that succeeds reads the overrides. */
async function useStore(config: Config, { redis, prefix }: SharedStore): Promise<readonly Finding[]> {
  const warnings: string[] = []
  const what = 'counting in Redis'
  const store = createRedisStore({
    ...redis,
    prefix,
    timeoutMs: TIMEOUT_MS,
    onWarning: (warning) => warnings.push(warning),
  })
  try {
    if (!(await store.connect()))
      throw new Error(`${describeTopology(redis.topology)} is out of reach in part`)
    // No client has a name like this, and the key is gone within a second even if it is not freed.
    const key = `${prefix}:{~check-${randomUUID()}}:check`
    await store.charge([{ name: 'check', key, limit: 1, windowMs: 1000, shadow: false }])
    await store.reset({ named: [key], glob: undefined, matches: () => true })
    const overrides = await findOverrides(config, store)
    const finding: Finding =
      warnings.length > 0
        ? { state: 'warning', what, message: warnings.join(' ') }
        : { state: 'ok', what, message: `counted a call and freed it, under the prefix "${prefix}"` }
    return [finding, overrides]
  } catch (error) {
    return [{ state: 'failed', what, message: (error as Error).message }]
  } finally {
    await store.close()
  }
}

/** Reads the overrides; warns of those that have no effect. */
async function findOverrides({ limits }: Config, store: RedisStore): Promise<Finding> {
  const what = 'overrides in Redis'
  const warnings: string[] = []
  const overrides = createLiveOverrides(store.overrides, {
    onChange: () => {},
    onUnreadable: (fields) => warnings.push(pluralize(fields, 'unreadable field')),
  })
  try {
    await overrides.load()
    const all = listOverrides(overrides.values(), limits, Date.now())
    const idle = all.filter(({ applies }) => !applies)
    if (idle.length > 0) warnings.push(`${idle.length} without effect`)
    const message = [
      all.length === 0 ? 'none' : `${all.length}, which "sluice limits overrides" lists`,
      ...warnings,
    ]
    return { state: warnings.length > 0 ? 'warning' : 'ok', what, message: message.join('; ') }
  } catch (error) {
    return { state: 'failed', what, message: (error as Error).message }
  }
}
