import type { Config } from '../../config/schema.ts'
import { describeTopology } from '../../limit/redis/options.ts'
import { createRedisStore, type RedisStore } from '../../limit/redis/store.ts'
import { adminUrl } from '../admin-url.ts'

/** Longest wait for an answer of Redis. */
const TIMEOUT_MS = 5000

/**
 * Acts on Redis, where the server of a key must be in reach; rejects with words for the operator where the store is not Redis or
 * out of reach.
 */
export async function withRedis<T>(
  { store, admin }: Config,
  keyOf: (prefix: string) => string,
  act: (store: RedisStore, prefix: string) => Promise<T>,
  onWarning: (warning: string) => void,
  timeoutMs = TIMEOUT_MS,
): Promise<T> {
  if (store === 'memory') {
    throw new Error(
      `The counters of "store: memory" are within the gateway's process. Ask its admin listener: curl ${adminUrl(admin.host, admin.port)}/limits/CLIENT, with -X DELETE to reset.`,
    )
  }
  const { redis, prefix } = store
  const remote = createRedisStore({ ...redis, prefix, timeoutMs, onWarning })
  // Of a cluster, other masters may be out of reach.
  const key = keyOf(prefix)
  try {
    await remote.connect()
    await remote.probe(remote.server(key))
    return await act(remote, prefix)
  } catch (error) {
    if ((error as Error).name !== 'TimeoutError') throw error
    const server = remote.server(key)
    const where = server.includes(':') ? `Redis at ${server}` : describeTopology(redis.topology)
    throw new Error(`${where} gave no answer in time.`, { cause: error })
  } finally {
    await remote.close()
  }
}
