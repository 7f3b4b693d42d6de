import { randomUUID } from 'node:crypto'
import { counterOf, type OverrideSource, VERSION_FIELD } from '../overrides.ts'
import type { RedisConnection } from './connection.ts'
import { createDeadlines } from './deadlines.ts'

/** At least this: no request waits for the answer, and it may be long. */
const LEAST_TIMEOUT_MS = 1000

/**
 * Begins both scripts: `kept` becomes the counter of the version, 0 if there is none. What is no hash of overrides is removed.
 * ARGV[1] is the counter that the writer knows, ARGV[2] the version's random part; then come fields, each with its value.
 */
const BEGIN = `
local version = redis.pcall('HGET', KEYS[1], '${VERSION_FIELD}')
if type(version) ~= 'string' then redis.call('UNLINK', KEYS[1]) end
local kept = type(version) == 'string' and tonumber(version:match('^%d+')) or 0
local known = tonumber(ARGV[1])`

/** The empty text removes a field. */
const CHANGE = `${BEGIN}
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
redis.call('HSET', KEYS[1], '${VERSION_FIELD}', string.format('%d %s', math.max(kept, known) + 1, ARGV[2]))`

const RESTORE = `${BEGIN}
if kept >= known then return 0 end
redis.call('UNLINK', KEYS[1])
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('HSET', KEYS[1], '${VERSION_FIELD}', ARGV[1] .. ' ' .. ARGV[2])
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

  const run = <T>(
    script: string,
    counter: number,
    random: string,
    fields: ReadonlyMap<string, string | undefined>,
  ): Promise<T> =>
    ask(() => {
      const pairs = [...fields].flatMap(([field, value]) => [field, value ?? ''])
      return commands.eval(script, 1, key, counter, random, ...pairs) as Promise<T>
    })

  return {
    version: async () => (await ask(() => commands.hget(key, VERSION_FIELD).catch(ofHash(null)))) ?? '',
    read: () => ask(() => commands.hgetall(key).catch(ofHash({}))),
    change: (fields, known) => run(CHANGE, counterOf(known), randomUUID(), fields),
    async restore(fields, version) {
      const [counter, random] = version.split(' ')
      return (await run(RESTORE, Number(counter), random!, fields)) === 1
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
