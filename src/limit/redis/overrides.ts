import type { RedisConnection } from './connection.ts'
import { createDeadlines } from './deadlines.ts'

/** At least this: no request waits for the answer, and it may be long. */
const LEAST_TIMEOUT_MS = 1000

/**
 * Replaces the text of a key, unless another did meanwhile: ARGV[1] is the version that it begins with, or empty if there is
 * none; ARGV[2] the text; ARGV[3] its life in milliseconds, or 0 for good. Returns 1 if it did.
 */
const REPLACE = `
local version = redis.pcall('GETRANGE', KEYS[1], 0, 35)
if type(version) == 'table' or #version ~= 36 or string.find(version, '[^%x-]') then version = '' end
if version ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[3] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1`

/** One text under one key, which every gateway reads. */
export type OverridesKey = ReturnType<typeof createOverridesKey>

/** Returns the key of all overrides. No client has an empty hash tag. */
export const overridesKey = (prefix: string): string => `${prefix}:{}:~overrides`

export function createOverridesKey(connection: RedisConnection, prefix: string, timeoutMs = 0) {
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
    /** Returns the first bytes of the text; empty if there is none. What is no text is `damaged`. */
    read: (bytes: number): Promise<string> =>
      ask(() =>
        commands.getrange(key, 0, bytes - 1).catch((error: Error) => {
          if (error.message.startsWith('WRONGTYPE')) return 'damaged'
          throw error
        }),
      ),
    /** Replaces the text that began with this version; false if it does not any more. It is kept so long; for good where that is 0. */
    replace: async (version: string, text: string, forMs: number): Promise<boolean> =>
      (await ask(() => commands.eval(REPLACE, 1, key, version, text, forMs))) === 1,
  }
}
