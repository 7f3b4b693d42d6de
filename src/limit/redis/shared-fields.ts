import { randomUUID } from 'node:crypto'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { overridesKey } from '../key.ts'
import { counterOf, MAX_COUNTER_DIGITS, type SharedFields, VERSION_FIELD } from '../shared-fields.ts'
import type { RedisConnection, RedisStoreOptions } from './connection.ts'
import { createDeadlines } from './deadlines.ts'

/** Minimum timeout: requests do not wait for the answer, which may be long. */
const MIN_TIMEOUT_MS = 1000

/**
 * Begins both scripts: sets `stored` to the counter of the version, 0 if there is none, and removes
 * a key with other content. ARGV holds the counter that the writer knows, the version's random
 * part, and then fields, each followed by its value.
 */
const BEGIN = `
local version = redis.pcall('HGET', KEYS[1], '${VERSION_FIELD}')
if type(version) ~= 'string' then redis.call('UNLINK', KEYS[1]) end
local digits = type(version) == 'string' and version:match('^%d+') or ''
local stored = #digits <= ${MAX_COUNTER_DIGITS} and tonumber(digits) or 0
local known = tonumber(ARGV[1])`

/** Writes the fields, and removes those with an empty value. */
const CHANGE = `${BEGIN}
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
redis.call('HSET', KEYS[1], '${VERSION_FIELD}', string.format('%.0f %s', math.min(math.max(stored, known) + 1, ${10 ** MAX_COUNTER_DIGITS - 1}), ARGV[2]))`

/** Replaces all fields, unless the stored version is not older. Returns 1 if it did. */
const RESTORE = `${BEGIN}
if stored >= known then return 0 end
redis.call('UNLINK', KEYS[1])
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('HSET', KEYS[1], '${VERSION_FIELD}', ARGV[1] .. ' ' .. ARGV[2])
return 1`

/**
 * Creates the fields of the overrides in one hash of Redis. It never expires: eviction of volatile
 * keys would remove it.
 */
export function createRedisFields(
  { client, check, explain }: RedisConnection,
  { prefix, timeoutMs = 0, clock = SYSTEM_CLOCK }: RedisStoreOptions,
): SharedFields {
  const { commands } = client
  // The hash tag is empty, unlike that of every client.
  const key = overridesKey(prefix)
  const { within: withDeadline } = createDeadlines(Math.max(MIN_TIMEOUT_MS, timeoutMs), clock)

  const ask = <T>(request: () => Promise<T>): Promise<T> =>
    withDeadline(async () => {
      await check()
      return await explain(request(), client.server(key))
    })
  /** Reads the hash; returns `otherwise` if the key has another type, which the next write replaces. */
  const read = <T>(request: () => Promise<T>, otherwise: T): Promise<T> =>
    ask(request).catch((error: Error) => {
      if (error.message.startsWith('WRONGTYPE')) return otherwise
      throw error
    })
  const run = (script: string, version: string[], fields: ReadonlyMap<string, string | undefined>) =>
    ask(() => {
      const pairs = [...fields].flatMap(([field, value]) => [field, value ?? ''])
      return commands.eval(script, 1, key, ...version, ...pairs)
    })

  return {
    version: async () => (await read(() => commands.hget(key, VERSION_FIELD), null)) ?? '',
    read: () => read(() => commands.hgetall(key), {}),
    async change(fields, known) {
      await run(CHANGE, [String(counterOf(known)), randomUUID()], fields)
    },
    async restore(fields, version) {
      const [counter = '', random = ''] = version.split(' ')
      return (await run(RESTORE, [counter, random], fields)) === 1
    },
  }
}
