import { createHash } from 'node:crypto'
import {
  CHARGE_SCRIPT,
  MERGE_SCRIPT,
  REGISTER_SCRIPT,
  RENEW_SCRIPT,
  SETTLE_SCRIPT,
} from '../../src/limit/redis/scripts.ts'
import type { Request } from './deployment.ts'

/**
 * Keys expire at an instant of the history's clock, which is written down in Redis as one decades later: no key expires by
 * Redis's own clock. Instead, the keys whose instant has come are removed before each script, and before the clock is set.
 */
const FAR_MS = 1e12

const CLOCK = '{ 0, table.remove(ARGV) }'
/** Each script, and the same with its clock as an additional last argument. The lines are the same. */
const COUNTING = [
  ["call('TIME')", CLOCK],
  ["'PX', ttl", `'PXAT', floor(now / 1000) + ${FAR_MS} + ttl`],
] as const
const SCRIPTS = [
  [
    CHARGE_SCRIPT,
    replaced(
      CHARGE_SCRIPT,
      ...COUNTING,
      ["call('PEXPIRE', name, ttl)", `call('PEXPIREAT', name, floor(now / 1000) + ${FAR_MS} + ttl)`],
      ["call('PTTL', name)", `call('PEXPIRETIME', name) - ${FAR_MS} - floor(now / 1000)`],
      ["call('PEXPIRE', name, 2", `call('PEXPIREAT', name, floor(now / 1000) + ${FAR_MS} + 2`],
    ),
  ],
  [
    RENEW_SCRIPT,
    replaced(
      RENEW_SCRIPT,
      COUNTING[0],
      ["call('PTTL', key)", `call('PEXPIRETIME', key) - ${FAR_MS} - floor(now / 1000)`],
      ["call('PEXPIRE', key, ", `call('PEXPIREAT', key, floor(now / 1000) + ${FAR_MS} + `],
    ),
  ],
  [MERGE_SCRIPT, replaced(MERGE_SCRIPT, ...COUNTING)],
  [
    REGISTER_SCRIPT,
    replaced(
      REGISTER_SCRIPT,
      ["redis.call('TIME')", CLOCK],
      ["'PEXPIRE', KEYS[1], ", `'PEXPIREAT', KEYS[1], math.floor(now / 1000) + ${FAR_MS} + `],
    ),
  ],
  [
    SETTLE_SCRIPT,
    replaced(SETTLE_SCRIPT, COUNTING[0], [
      "ARGV[1], 'PX', ARGV[3])",
      `ARGV[1], 'PXAT', floor(now / 1000) + ${FAR_MS} + ARGV[3])`,
    ]),
  ],
] as const

/** Replaces code that must be there. */
function replaced(script: string, ...changes: readonly (readonly [from: string, to: string])[]): string {
  let text = script
  for (const [from, to] of changes) {
    if (!text.includes(from)) throw new Error(`A script does not contain: ${from}`)
    text = text.replaceAll(from, () => to)
  }
  return text
}

const shaOf = (text: string): string => createHash('sha1').update(text).digest('hex')
const clocked = new Map(
  SCRIPTS.flatMap(([plain, text]) => [[plain, text] as const, [shaOf(plain), shaOf(text)] as const]),
)

/** Returns a command, with its clock if it runs a script. */
export function commandOf({ command, args }: Request, nowUs: number): [string, (string | number)[]] {
  if (command === 'zrem' || command === 'unlink') return [command, [...args]]
  if (command === 'pexpire')
    return ['pexpireat', [args[0]!, Math.floor(nowUs / 1000) + FAR_MS + Number(args[1])]]
  const [script, ...params] = args
  const text = clocked.get(String(script))
  if (text === undefined) throw new Error(`unknown script: ${script}`)
  return [command, [text, ...params, nowUs]]
}

/** Writes the hash of the script without a clock into an error. */
export const withPlainSha = (reply: unknown): unknown =>
  typeof reply === 'string'
    ? SCRIPTS.reduce((message, [plain, text]) => message.replaceAll(shaOf(text), shaOf(plain)), reply)
    : reply

/** Returns the keys that have expired at an instant, in milliseconds. */
export const EXPIRED = `
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local at = redis.call('PEXPIRETIME', key)
  if at > 0 and at - ${FAR_MS} < tonumber(ARGV[1]) then found[#found + 1] = key end
end
return found`

/** Returns all data, as a `Dump`. */
export const DUMP = `
local found, keys = {}, redis.call('KEYS', '*')
table.sort(keys)
for i, key in ipairs(keys) do
  local kind, at = redis.call('TYPE', key).ok, redis.call('PEXPIRETIME', key)
  found[i] = { key, kind, redis.call(kind == 'zset' and 'ZCARD' or 'GET', key), at > 0 and at - ${FAR_MS} or 0 }
end
return found`
