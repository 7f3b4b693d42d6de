import { randomUUID } from 'node:crypto'
import type { Config, SharedStore } from '../../config/compile.ts'
import { createLiveOverrides } from '../../limit/overrides-live.ts'
import { listOverrides } from '../../limit/overrides.ts'
import { inspectNodes } from '../../limit/redis/diagnose.ts'
import { describeTopology } from '../../limit/redis/options.ts'
import { createRedisStore, type RedisStore } from '../../limit/redis/store.ts'
import { pluralize } from '../format.ts'
import { type Finding, type Probe, TIMEOUT_MS } from './probes.ts'

/** Returns a probe that connects to each server of the store, and then counts and frees a call as the gateway does. */
export function redisProbe(config: Config): Probe {
  const { store } = config
  return async () => {
    if (store === 'memory')
      return { state: 'ok', what: 'store', message: 'counts in the memory of this process; needs no server' }
    const { topology } = store.redis
    const nodes = await inspectNodes(store.redis, TIMEOUT_MS)
    const found = nodes.map((node) => describeNode(node, 'name' in topology ? 'sentinel' : 'Redis'))
    // If no node can be reached, counting fails for the same reason.
    if (found.every(({ state }) => state === 'failed')) return found
    return [...found, ...(await useStore(config, store))]
  }
}

function describeNode(node: Awaited<ReturnType<typeof inspectNodes>>[number], kind: string): Finding {
  const what = `${kind} at ${node.url.startsWith('redis') ? new URL(node.url).host : node.url}`
  if ('found' in node) return { state: 'ok', what, message: node.found }
  const { name, message } = node.error
  if (name === 'StoreConfigError') return { state: 'failed', what, message }
  const reason = message.startsWith('Unknown RESP type')
    ? 'the server is not Redis; correct store.redis'
    : `${message}; start it, or correct store.redis`
  return { state: 'failed', what, message: reason }
}

async function useStore(config: Config, { redis, prefix }: SharedStore): Promise<readonly Finding[]> {
  const warnings: string[] = []
  const what = 'counting in Redis'
  const onWarning = (warning: string) => void warnings.push(warning)
  const store = createRedisStore({ ...redis, prefix, timeoutMs: TIMEOUT_MS, onWarning })
  try {
    if (!(await store.connect())) throw new Error(`${describeTopology(redis.topology)} is partly unavailable`)
    // No client id encodes to this key, which expires within a second even if it is not freed.
    const key = `${prefix}:{~check-${randomUUID()}}:check`
    await store.charge([{ name: 'check', key, limit: 1, windowMs: 1000, shadow: false }])
    await store.reset({ named: [key], glob: undefined, matches: () => true })
    const overrides = await readOverrides(config, store)
    const message = warnings.join(' ') || `counted a call and freed it, under the prefix "${prefix}"`
    return [{ state: warnings.length > 0 ? 'warning' : 'ok', what, message }, overrides]
  } catch (error) {
    return [{ state: 'failed', what, message: (error as Error).message }]
  } finally {
    await store.close()
  }
}

/** Counts the overrides; warns of those that have no effect. */
async function readOverrides({ limits }: Config, store: RedisStore): Promise<Finding> {
  const what = 'overrides in Redis'
  const warnings: string[] = []
  const overrides = createLiveOverrides(store.overrides, {
    onChange: () => {},
    onUnreadable: (fields) => warnings.push(pluralize(fields, 'unreadable field')),
  })
  try {
    await overrides.load()
    const all = listOverrides(overrides.values(), limits, Date.now())
    const unused = all.filter(({ applies }) => !applies).length
    if (unused > 0) warnings.push(`${unused} without effect`)
    const total = all.length === 0 ? 'none' : `${all.length}, which "sluice limits overrides" lists`
    const message = [total, ...warnings].join('; ')
    return { state: warnings.length > 0 ? 'warning' : 'ok', what, message }
  } catch (error) {
    return { state: 'failed', what, message: (error as Error).message }
  }
}
