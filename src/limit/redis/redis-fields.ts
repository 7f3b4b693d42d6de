import { randomUUID } from 'node:crypto'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { overridesKey } from '../key.ts'
import { counterOf, MAX_COUNTER_DIGITS, type SharedFields, VERSION_FIELD } from '../versioned-fields.ts'
import type { RedisConnection } from './connection.ts'
import { createDeadlines } from './deadlines.ts'
import type { RedisStoreOptions } from './store-options.ts'

/** Minimum timeout: requests do not wait for the answer, which may be long. */
const MIN_TIMEOUT_MS = 1000

/**
 * Writes the fields, and removes those with an empty value; or replaces all, unless the stored
 * version is not older. A key with other content is replaced. ARGV holds `change` or `restore`, the
 * counter of the writer's version, the random part of the new one, and then fields, each followed
 * by its value. Returns 1 if it wrote.
 */
const WRITE = `
local key, call = KEYS[1], redis.call
local version = redis.pcall('HGET', key, '${VERSION_FIELD}')
if type(version) ~= 'string' then call('UNLINK', key) end
local digits = type(version) == 'string' and version:match('^%d+') or ''
local stored = #digits <= ${MAX_COUNTER_DIGITS} and tonumber(digits) or 0
local counter = tonumber(ARGV[2])
if ARGV[1] == 'change' then
  counter = math.min(math.max(stored, counter) + 1, ${10 ** MAX_COUNTER_DIGITS - 1})
elseif stored >= counter then
  return 0
else
  call('UNLINK', key)
end
for i = 4, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if value == '' then call('HDEL', key, field) else call('HSET', key, field, value) end
end
call('HSET', key, '${VERSION_FIELD}', string.format('%.0f %s', counter, ARGV[3]))
return 1`

/**
 * Creates the fields of the overrides in one hash of Redis. It never expires: eviction of volatile
 * keys would remove it.
 */
export function createRedisFields(connection: RedisConnection, options: RedisStoreOptions) {
  const { client, check, explain } = connection
  const { prefix, timeoutMs = 0, clock = SYSTEM_CLOCK } = options
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
  const write = (version: string[], fields: ReadonlyMap<string, string | undefined>) =>
    ask(() => {
      const pairs = [...fields].flatMap(([field, value]) => [field, value ?? ''])
      return commands.eval(WRITE, 1, key, ...version, ...pairs)
    })

  return {
    version: async () => (await read(() => commands.hget(key, VERSION_FIELD), null)) ?? '',
    read: () => read(() => commands.hgetall(key), {}),
    async change(fields, known) {
      await write(['change', String(counterOf(known)), randomUUID()], fields)
    },
    async restore(fields, version) {
      const [counter = '', random = ''] = version.split(' ')
      return (await write(['restore', counter, random], fields)) === 1
    },
  } satisfies SharedFields
}
