import type { Cluster, Redis } from 'ioredis'
import { configError, type StoreConfigError } from './diagnose.ts'

/** Redis 7.0, Redis 6.2, and later versions say this differently. */
const REFUSED = /\bNOPERM\b|The user executing the script can't|ACL failure in script/

/** True if Redis refused a command, also one of a script, or its keys to its user. */
export const isRefused = ({ message }: Error): boolean => REFUSED.test(message)

/**
 * Tries each command that scripts may call, on a key that no limit has; the errors of Redis 7.0 do
 * not name the command of a script. Returns the names of those that are refused, each once.
 */
const PROBE = `
local key, missing, known = ARGV[1], {}, {}
local function try(name, ...)
  local reply = redis.pcall(name, ...)
  local text = type(reply) == 'table' and reply.err or ''
  local isRefused = text:find('NOPERM') or text:find("can't run this command") or text:find('ACL failure')
  -- The keys are refused, not the command: a call of the gateway has the better error.
  local isOfKeys = text:find('access a key') or text:find('one of the keys')
  if isRefused and not isOfKeys and not known[name] then
    known[name] = true
    missing[#missing + 1] = name
  end
end
try('set', key, '1', 'PX', 1000)
try('get', key)
try('getrange', key, 0, 0)
try('strlen', key)
try('setrange', key, 0, '1')
try('pexpire', key, 1000)
try('pttl', key)
try('exists', key)
try('unlink', key)
try('zadd', key, 1, 'member')
try('pexpire', key, 1000)
try('zcard', key)
try('zrange', key, 0, 0)
try('zremrangebyscore', key, 0, 0)
try('zrem', key, 'member')
try('hset', key, 'field', '1')
try('pexpire', key, 1000)
try('hget', key, 'field')
try('hgetall', key)
try('hdel', key, 'field')
try('time')
try('scan', '0', 'COUNT', 1)
try('info', 'server')
return missing`

/** Returns the commands that Redis refuses to the user of a connection; rejects if it refuses EVAL. */
export const missingCommands = async (commands: Redis | Cluster, prefix: string) =>
  (await commands.eval(PROBE, 0, `${prefix}:{~check}:~permissions`)) as readonly string[]

/** Returns the remedy for commands that are refused. */
export const grantAdvice = (missing: readonly string[]): StoreConfigError =>
  configError(new Error(`NOPERM for ${missing.map((name) => `+${name}`).join(' ')}`))!
