import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Quota } from '../limit.ts'
import { allowanceOf, type Charge, DamagedKeyError } from '../store.ts'
import type { RedisConnection, RedisStoreOptions } from './connection.ts'
import { createDeadlines, ServerClocks } from './deadlines.ts'

export const CHARGE_SCRIPT = readFileSync(new URL('charge.lua', import.meta.url), 'utf8')
const scriptOf = (text: string) => ({ text, sha: createHash('sha1').update(text).digest('hex') })
type Script = ReturnType<typeof scriptOf>
type Params = readonly [keys: number, ...keysAndArgs: (string | number)[]]

/**
 * Registers a gateway. KEYS: a sorted set of gateways by when each was last seen, and a key without expiry. ARGV: the gateway's
 * id, and its time to live in milliseconds. Returns this server's clock, the number of gateways, and since when this server has
 * held its data; times are microseconds since the epoch.
 */
const REGISTER = scriptOf(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Replace keys of another type: they hold no calls.
local function wrong(reply) return type(reply) == 'table' and string.find(reply.err or '', 'WRONGTYPE') end
if wrong(redis.pcall('ZCARD', KEYS[1])) then redis.call('UNLINK', KEYS[1]) end
if wrong(redis.pcall('GET', KEYS[2])) then redis.call('UNLINK', KEYS[2]) end

redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2] * 1000)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], string.format('%.0f', now), 'NX')
return { now, redis.call('ZCARD', KEYS[1]), tonumber(redis.call('GET', KEYS[2])) or 0 }`)
/** Several intervals of the fallback's probes. */
const GATEWAY_LIFE_MS = 10_000

/** Called with the outcome of each script call, which may decide several requests. */
export type OnReply = (server: string, error: Error | undefined) => void

/** Maximum decisions per script call. With larger batches, Redis and the gateway take turns being idle. */
const MAX_BATCH = 24

interface Pending {
  readonly quotas: readonly Quota[]
  readonly charging: boolean
  readonly resolve: (charge: Charge) => void
  readonly reject: (error: Error) => void
}

/** Creates the functions that run the scripts, each within the timeout. */
export function createScripts(
  { client, check, explain, assertConfigured }: RedisConnection,
  { script = CHARGE_SCRIPT, timeoutMs = 60_000 }: RedisStoreOptions,
  onReply: OnReply,
) {
  const { commands } = client
  const chargeScript = scriptOf(script)
  const withDeadline = createDeadlines(timeoutMs)
  const clocks = new ServerClocks()
  let batches = new Map<number, Pending[]>()

  /** Runs a script whose reply is numbers, the first of them the server's clock; returns none for any other reply. */
  async function run(server: string, { text, sha }: Script, params: Params): Promise<readonly number[]> {
    const sentAt = performance.now()
    const asked = commands.evalsha(sha, ...params)
    const reply = await asked.catch((error: Error) => {
      // Redis loses its scripts at a restart, a failover or SCRIPT FLUSH.
      const isLost = error.message.startsWith('NOSCRIPT')
      return explain(isLost ? commands.eval(text, ...params) : asked, server)
    })
    if (!Array.isArray(reply) || reply.length === 0 || !reply.every(Number.isSafeInteger)) return []
    clocks.learn(server, sentAt, performance.now(), reply[0])
    return reply
  }

  async function send(batch: readonly Pending[]): Promise<void> {
    const keys: string[] = []
    const rules: string[] = []
    for (const { quotas, charging } of batch) {
      let rule = charging ? '1' : '0'
      for (const { key, limit, windowMs, shadow, calls } of quotas) {
        keys.push(key)
        rule += ` ${limit} ${windowMs * 1000} ${calls === undefined ? Number(shadow) : -calls}`
      }
      rules.push(rule)
    }
    const server = client.server(keys[0]!)
    const runUntil = (bound: 'earliest' | 'latest', remainingMs: number) => {
      const deadline = clocks.at(server, performance.now() + remainingMs, bound)
      return run(server, chargeScript, [keys.length, ...keys, deadline, ...rules])
    }
    try {
      assertConfigured()
      const reply = await withDeadline(async (remainingMs) => {
        // The earliest possible deadline on the server's clock, so that a call that has timed out is not charged.
        const first = await runUntil('earliest', remainingMs())
        // The deadline had passed: the server's clock was not known well enough.
        return first.length === 1 ? await runUntil('latest', remainingMs()) : first
      })
      if (reply.length !== 1 + batch.length + 3 * keys.length) {
        throw new Error('Redis returned an invalid reply to charge.lua.')
      }
      onReply(server, undefined)
      settle(batch, reply)
    } catch (error) {
      onReply(server, error as Error)
      for (const { reject } of batch) reject(error as Error)
    }
  }

  function sendAll(): void {
    const gathered = batches
    batches = new Map()
    for (const batch of gathered.values()) void send(batch)
  }

  return {
    check: () => withDeadline(check),

    /** Registers a gateway with a server, under keys that begin with `sample`. Times are epoch milliseconds of Redis's clock. */
    async register(server: string, sample: string, id: string) {
      const params: Params = [2, `${sample}~gateways`, `${sample}~since`, id, GATEWAY_LIFE_MS]
      const reply = await withDeadline(() => run(server, REGISTER, params))
      if (reply.length !== 3) throw new Error('Redis returned an invalid reply to the registration.')
      const [nowUs, gateways, sinceUs] = reply as readonly [number, number, number]
      return { gateways, seenAt: nowUs / 1000, sinceAt: sinceUs / 1000 }
    },

    /**
     * Runs charge.lua for a decision, in one batch with others of the same hash slot in this iteration of the event loop.
     * Rejects if the script fails, or with a DamagedKeyError.
     */
    decide: (quotas: readonly Quota[], charging: boolean): Promise<Charge> =>
      new Promise((resolve, reject) => {
        const request = { quotas, charging, resolve, reject }
        // The configuration ensures that all quotas of a decision share their slot.
        const slot = client.slot(quotas[0]!.key)
        const batch = batches.get(slot)
        if (batch === undefined) {
          if (batches.size === 0) setImmediate(sendAll)
          batches.set(slot, [request])
        } else if (batch.push(request) === MAX_BATCH) {
          batches.delete(slot)
          void send(batch)
        }
      }),
  }
}

function settle(batch: readonly Pending[], numbers: readonly number[]): void {
  const nowUs = numbers[0]!
  let at = 1
  for (const [i, { quotas, resolve, reject }] of batch.entries()) {
    const admitted = numbers[at++] === 1
    let damaged: string | undefined
    const allowances = quotas.map((quota) => {
      const room = numbers[at++]!
      const remaining = numbers[at++]!
      const growsAtUs = numbers[at++]!
      if (room === -1) damaged ??= quota.key
      return allowanceOf(quota, room === 1, remaining, growsAtUs / 1000, (growsAtUs - nowUs) / 1000)
    })
    if (damaged !== undefined) reject(new DamagedKeyError(damaged))
    // All decisions of a batch share one instant; a microsecond each keeps their order.
    else resolve({ admitted, allowances, mode: 'store', decidedAt: (nowUs + i) / 1000 })
  }
}
