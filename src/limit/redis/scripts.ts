import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { RedisConnection } from './connection.ts'
import { Deadlines, ServerClocks } from './deadlines.ts'

const textOf = (file: string): string => readFileSync(new URL(file, import.meta.url), 'utf8')
const scriptOf = (text: string) => ({ text, sha: createHash('sha1').update(text).digest('hex') })

export const CHARGE_SCRIPT = textOf('charge.lua')
const GATEWAYS = scriptOf(textOf('gateways.lua'))
/** Several times the interval of the fallback's probes. */
const GATEWAY_LIFE_MS = 10_000

/** Gets the outcome of each question to a server; one question may carry several decisions. */
export type OnReply = (server: string, error: Error | undefined) => void

export interface ScriptOptions {
  readonly script?: string
  /** The longest that Redis may take for an answer; what it reads later is not charged. */
  readonly timeoutMs?: number
}

export type Scripts = ReturnType<typeof createScripts>

/** Runs the scripts, each within the timeout, and reports the outcome of every charge to `onReply`. */
export function createScripts(
  connection: RedisConnection,
  { script = CHARGE_SCRIPT, timeoutMs = 60_000 }: ScriptOptions,
  onReply: OnReply,
) {
  const chargeScript = scriptOf(script)
  const deadlines = new Deadlines(timeoutMs)
  const clocks = new ServerClocks()

  function run(
    server: string,
    { text, sha }: ReturnType<typeof scriptOf>,
    keys: readonly string[],
    args: readonly (number | string)[],
  ): Promise<unknown> {
    const { commands } = connection.client
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
    args: readonly number[],
    left: () => number,
  ): Promise<readonly number[]> {
    for (const bound of ['no later', 'no earlier'] as const) {
      const sentAt = performance.now()
      const deadline = clocks.at(server, sentAt + left(), bound)
      const reply = await run(server, chargeScript, keys, [deadline, ...args])
      if (!isNumbers(reply)) break
      clocks.learn(server, sentAt, performance.now(), reply[0]!)
      if (reply.length > 1) return reply
    }
    return []
  }

  return {
    /** Compares the connection with the configuration, as `RedisConnection.check`. */
    check: () => deadlines.bound(() => connection.check()),

    /** Runs gateways.lua under a sample key of a server; resolves with its three numbers. */
    async gateways(server: string, sample: string, id: string): Promise<readonly [number, number, number]> {
      const keys = [`${sample}~gateways`, `${sample}~since`]
      const sentAt = performance.now()
      const reply = await deadlines.bound(() => run(server, GATEWAYS, keys, [id, GATEWAY_LIFE_MS]))
      if (!isNumbers(reply) || reply.length !== 3) {
        throw new Error('Redis did not answer as gateways.lua does.')
      }
      clocks.learn(server, sentAt, performance.now(), reply[0]!)
      return reply as readonly [number, number, number]
    },

    /** Runs charge.lua with the arguments that follow the deadline; resolves with so many numbers. */
    async charge(keys: readonly string[], args: readonly number[], size: number): Promise<readonly number[]> {
      const server = connection.client.server(keys[0]!)
      try {
        connection.assertRight()
        const reply = await deadlines.bound((left) => chargeUntil(server, keys, args, left))
        if (reply.length !== size) throw new Error('Redis did not answer as charge.lua does.')
        onReply(server, undefined)
        return reply
      } catch (error) {
        onReply(server, error as Error)
        throw error
      }
    },
  }
}

function isNumbers(reply: unknown): reply is readonly number[] {
  return Array.isArray(reply) && reply.length > 0 && reply.every(Number.isSafeInteger)
}
