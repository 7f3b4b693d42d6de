import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Quota } from '../limit.ts'
import { allowanceOf, type Charge, DamagedKeyError } from '../store.ts'
import type { RedisConnection } from './connection.ts'
import { createDeadlines, ServerClocks } from './deadlines.ts'

const textOf = (file: string): string => readFileSync(new URL(file, import.meta.url), 'utf8')
const scriptOf = (text: string) => ({ text, sha: createHash('sha1').update(text).digest('hex') })

export const CHARGE_SCRIPT = textOf('charge.lua')
const GATEWAYS = scriptOf(textOf('gateways.lua'))
/** Several times the interval of the fallback's probes. */
const GATEWAY_LIFE_MS = 10_000

/** Gets the outcome of each question to a server; one question may carry several decisions. */
export type OnReply = (server: string, error: Error | undefined) => void

/** So that Redis is at work while the gateway reads on: all requests of an iteration in one batch would leave one idle at a time. */
const MAX_BATCH = 24

interface Waiting {
  readonly quotas: readonly Quota[]
  readonly charging: boolean
  readonly resolve: (charge: Charge) => void
  readonly reject: (error: Error) => void
}

export interface ScriptOptions {
  readonly script?: string
  /** The longest that Redis may take for an answer; what it reads later is not charged. */
  readonly timeoutMs?: number
}

/** Runs the scripts, each within the timeout, and reports the outcome of every charge to `onReply`. */
export function createScripts(
  connection: RedisConnection,
  { script = CHARGE_SCRIPT, timeoutMs = 60_000 }: ScriptOptions,
  onReply: OnReply,
) {
  const { client } = connection
  const { commands } = client
  const chargeScript = scriptOf(script)
  const bound = createDeadlines(timeoutMs)
  const clocks = new ServerClocks()

  function run(
    server: string,
    { text, sha }: ReturnType<typeof scriptOf>,
    keys: readonly string[],
    args: readonly (number | string)[],
  ): Promise<unknown> {
    const asked = commands.evalsha(sha, keys.length, ...keys, ...args).catch((error: Error) => {
      // Redis forgets its scripts at a restart, a failover or SCRIPT FLUSH.
      if (!error.message.startsWith('NOSCRIPT')) throw error
      return commands.eval(text, keys.length, ...keys, ...args)
    })
    return connection.explain(asked, server)
  }

  /**
   * Runs charge.lua with a deadline that is surely no later than the caller's, so that what timed out is not charged. If that
   * is past already, because too little is known of the server's clock, runs it once more with one that is no earlier.
   */
  async function chargeUntil(
    server: string,
    keys: readonly string[],
    rules: readonly string[],
    left: () => number,
  ): Promise<readonly number[]> {
    for (const side of ['no later', 'no earlier'] as const) {
      const sentAt = performance.now()
      const deadline = clocks.at(server, sentAt + left(), side)
      const reply = await run(server, chargeScript, keys, [deadline, ...rules])
      if (!isNumbers(reply)) break
      clocks.learn(server, sentAt, performance.now(), reply[0]!)
      if (reply.length > 1) return reply
    }
    return []
  }

  let gathering = new Map<number, Waiting[]>()

  function flush(): void {
    const gathered = gathering
    gathering = new Map()
    for (const batch of gathered.values()) void send(batch)
  }

  async function send(batch: readonly Waiting[]): Promise<void> {
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
    try {
      connection.assertConfigured()
      const reply = await bound((left) => chargeUntil(server, keys, rules, left))
      if (reply.length !== 1 + batch.length + 3 * keys.length) {
        throw new Error('Redis did not answer as charge.lua does.')
      }
      onReply(server, undefined)
      settle(batch, reply)
    } catch (error) {
      onReply(server, error as Error)
      for (const { reject } of batch) reject(error as Error)
    }
  }

  return {
    /** Compares the connection with the configuration, as `RedisConnection.check`. */
    check: () => bound(connection.check),

    /** Runs gateways.lua under a sample key of a server; resolves with its three numbers. */
    async gateways(server: string, sample: string, id: string): Promise<readonly [number, number, number]> {
      const keys = [`${sample}~gateways`, `${sample}~since`]
      const sentAt = performance.now()
      const reply = await bound(() => run(server, GATEWAYS, keys, [id, GATEWAY_LIFE_MS]))
      if (!isNumbers(reply) || reply.length !== 3) {
        throw new Error('Redis did not answer as gateways.lua does.')
      }
      clocks.learn(server, sentAt, performance.now(), reply[0]!)
      return reply as readonly [number, number, number]
    },

    /**
     * Asks charge.lua for a decision, together with others of the same hash slot in this iteration of the event loop.
     * Rejects if the script fails, or with a DamagedKeyError.
     */
    decide: (slot: number, quotas: readonly Quota[], charging: boolean): Promise<Charge> =>
      new Promise((resolve, reject) => {
        const one = { quotas, charging, resolve, reject }
        const batch = gathering.get(slot)
        if (batch === undefined) {
          if (gathering.size === 0) setImmediate(flush)
          gathering.set(slot, [one])
        } else if (batch.push(one) === MAX_BATCH) {
          gathering.delete(slot)
          void send(batch)
        }
      }),
  }
}

function settle(batch: readonly Waiting[], numbers: readonly number[]): void {
  const nowUs = numbers[0]!
  let at = 1
  for (const [i, { quotas, resolve, reject }] of batch.entries()) {
    const verdict = numbers[at++]
    let damaged: string | undefined
    const allowances = quotas.map((quota) => {
      const room = numbers[at++]!
      const remaining = numbers[at++]!
      const growsAtUs = numbers[at++]!
      if (room === -1) damaged ??= quota.key
      return allowanceOf(quota, room === 1, remaining, growsAtUs / 1000, (growsAtUs - nowUs) / 1000)
    })
    if (damaged !== undefined) reject(new DamagedKeyError(damaged))
    // All share one instant; a microsecond each keeps them in the order in which they were decided.
    else resolve({ admitted: verdict === 1, allowances, mode: 'store', decidedAt: (nowUs + i) / 1000 })
  }
}

function isNumbers(reply: unknown): reply is readonly number[] {
  return Array.isArray(reply) && reply.length > 0 && reply.every(Number.isSafeInteger)
}
