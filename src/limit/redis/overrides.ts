import { randomUUID } from 'node:crypto'
import { type OverrideSource, VERSION_FIELD } from '../overrides.ts'
import type { RedisConnection } from './connection.ts'
import { createDeadlines } from './deadlines.ts'

/** At least this: no request waits for the answer, and it may be long. */
const LEAST_TIMEOUT_MS = 1000

/**
 * Changes a hash and its version. ARGV[1] is the new version, ARGV[2] is 1 to do so only if there is no version yet; then come
 * fields, each with its value, or with the empty text if it is to be removed. What is no hash is replaced. Returns 1 if it did.
 */
const WRITE = `
local known = redis.pcall('HEXISTS', KEYS[1], '${VERSION_FIELD}')
if type(known) == 'table' then redis.call('UNLINK', KEYS[1]) end
if ARGV[2] == '1' and known == 1 then return 0 end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
redis.call('HSET', KEYS[1], '${VERSION_FIELD}', ARGV[1])
return 1`

/** Returns the key of all overrides. No client has an empty hash tag. */
export const overridesKey = (prefix: string): string => `${prefix}:{}:~overrides`

/** Creates the source of overrides that is one hash of Redis. It never expires, so that no eviction of volatile keys takes it. */
export function createRedisOverrides(
  connection: RedisConnection,
  prefix: string,
  timeoutMs = 0,
): OverrideSource {
  const { client } = connection
  const { commands } = client
  const key = overridesKey(prefix)
  const bound = createDeadlines(Math.max(LEAST_TIMEOUT_MS, timeoutMs))

  const ask = <T>(question: () => Promise<T>): Promise<T> =>
    bound(async () => {
      await connection.check()
      return await connection.explain(question(), client.server(key))
    })

  return {
    version: async () => (await ask(() => commands.hget(key, VERSION_FIELD).catch(ofHash(null)))) ?? '',
    read: () => ask(() => commands.hgetall(key).catch(ofHash({}))),
    async write(fields, ifLost = false) {
      const pairs = [...fields].flatMap(([field, value]) => [field, value ?? ''])
      return (await ask(() => commands.eval(WRITE, 1, key, randomUUID(), ifLost ? 1 : 0, ...pairs))) === 1
    },
  }
}

/** Returns `otherwise` if the key holds something else than a hash, which the next write replaces. */
const ofHash =
  <T>(otherwise: T) =>
  (error: Error): T => {
    if (error.message.startsWith('WRONGTYPE')) return otherwise
    throw error
  }
