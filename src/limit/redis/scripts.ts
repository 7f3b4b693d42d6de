import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import type { Quota } from '../limit.ts'
import type { Addition, Charge } from '../store.ts'
import type { RedisConnection, RedisStoreOptions } from './connection.ts'
import { createDeadlines, ServerClocks } from './deadlines.ts'
import { ADD, additionOf, type Asked, CHARGE, chargesOf, periodsAt, READ, ruleOf } from './protocol.ts'

const read = (file: string): string => readFileSync(new URL(file, import.meta.url), 'utf8')
export const CHARGE_SCRIPT = read('charge.lua')
export const REGISTER_SCRIPT = read('register.lua')
const scriptOf = (text: string) => ({ text, sha: createHash('sha1').update(text).digest('hex') })
type Script = ReturnType<typeof scriptOf>
type Params = readonly [keys: number, ...keysAndArgs: (string | number)[]]

const REGISTER = scriptOf(REGISTER_SCRIPT)
/** Several intervals of the fallback's probes. */
const GATEWAY_LIFE_MS = 10_000

/** Called with the outcome of each script call, which may decide several requests. */
export type OnReply = (server: string, error: Error | undefined) => void

/** Maximum decisions per script call. With larger batches, Redis and the gateway take turns being idle. */
const MAX_BATCH = 24
/** Maximum script calls for a batch. The second knows the clock; in the third, another period has begun meanwhile. */
const MAX_TRIES = 3

/** Creates the functions that run the scripts, each within the timeout. */
export function createScripts(
  { client, check, explain, assertConfigured }: RedisConnection,
  { script = CHARGE_SCRIPT, timeoutMs = 60_000, clock = SYSTEM_CLOCK }: RedisStoreOptions,
  onReply: OnReply,
) {
  const { commands } = client
  const chargeScript = scriptOf(script)
  const deadlines = new Map<string, ReturnType<typeof createDeadlines>>()
  const clocks = new ServerClocks()
  let batches = new Map<number, Asked[]>()

  function deadlinesOf(server: string) {
    let own = deadlines.get(server)
    if (own === undefined) deadlines.set(server, (own = createDeadlines(timeoutMs, clock)))
    return own
  }

  /** Runs a script whose reply is numbers, the first of them the server's clock; returns none for any other reply. */
  async function run(server: string, { text, sha }: Script, params: Params): Promise<readonly number[]> {
    const sentAt = clock.now()
    const asked = commands.evalsha(sha, ...params)
    const reply = await asked.catch((error: Error) => {
      // Redis loses its scripts at a restart, a failover or SCRIPT FLUSH.
      const isLost = error.message.startsWith('NOSCRIPT')
      return explain(isLost ? commands.eval(text, ...params) : asked, server)
    })
    if (!Array.isArray(reply) || reply.length === 0 || !reply.every(Number.isSafeInteger)) return []
    clocks.learn(server, sentAt, clock.now(), reply[0])
    return reply
  }

  /** Asks charge.lua, and again if it decided nothing because the server's clock, for the deadline or for calendars, was not known well enough. */
  async function ask(batch: readonly Asked[], server: string, remainingMs: () => number) {
    assertConfigured()
    const keys: string[] = []
    for (const { quotas } of batch) for (const { key } of quotas) keys.push(key)
    const runUntil = (bound: 'earliest' | 'latest', nowUs: number) => {
      const nowMs = nowUs / 1000
      const [from, until] = periodsAt(batch, nowMs)
      const deadline = Math.min(until, clocks.at(server, clock.now() + remainingMs(), bound))
      const rules = batch.map((asked) => ruleOf(asked, clocks, server, nowMs))
      return run(server, chargeScript, [keys.length, ...keys, deadline, from, ...rules])
    }
    // The earliest possible deadline on the server's clock, so that a call that has timed out is not charged.
    const nowUs = clocks.at(server, clock.now(), 'latest') || clock.date() * 1000
    let reply = await runUntil('earliest', nowUs)
    for (let tries = 1; reply.length === 1 && remainingMs() > 0 && tries < MAX_TRIES; tries++)
      reply = await runUntil('latest', reply[0]!)
    if (reply.length !== 1 + batch.length + 3 * keys.length) {
      throw new Error('Redis returned an invalid reply to charge.lua.')
    }
    return chargesOf(batch, reply, clocks.localMs(server, reply[0]!))
  }

  async function send(batch: readonly Asked[]): Promise<void> {
    const server = client.server(batch[0]!.quotas[0]!.key)
    const end = (outcomes: readonly (Charge | Error)[] | Error, additions: boolean): void => {
      for (let i = 0; i < batch.length; i++) {
        const { action, onEnd } = batch[i]!
        if ((action === ADD) === additions) onEnd(outcomes instanceof Error ? outcomes : outcomes[i]!)
      }
    }
    const { within, failAll } = deadlinesOf(server)
    const hasAdditions = batch.some(({ action }) => action === ADD)
    try {
      const outcomes = await within((remainingMs) => {
        const answer = ask(batch, server, remainingMs)
        // Additions end with the answer, or with the connection, even after the timeout.
        if (hasAdditions) void answer.catch((error: Error) => error).then((outcomes) => end(outcomes, true))
        return answer
      })
      onReply(server, undefined)
      end(outcomes, false)
    } catch (error) {
      onReply(server, error as Error)
      // The fallback decides all that have no answer, in their order: none of them must be decided by an answer under way.
      failAll(error as Error)
      end(error as Error, false)
    }
  }

  function sendAll(): void {
    const gathered = batches
    batches = new Map()
    for (const batch of gathered.values()) void send(batch)
  }

  /** Adds questions to the batch of their hash slot, which is sent together. The configuration ensures that their keys share it. */
  function enqueue(asked: readonly Asked[]): void {
    const slot = client.slot(asked[0]!.quotas[0]!.key)
    let batch = batches.get(slot)
    if (batch === undefined) {
      if (batches.size === 0) clock.soon(sendAll)
      batches.set(slot, (batch = []))
    }
    if (batch.push(...asked) < MAX_BATCH) return
    batches.delete(slot)
    void send(batch)
  }

  return {
    check: (server: string) => deadlinesOf(server).within(check),
    clocks,

    /** Registers a gateway with a server, under keys that begin with `sample`. Times are epoch milliseconds of Redis's clock. */
    async register(server: string, sample: string, id: string) {
      const params: Params = [2, `${sample}~gateways`, `${sample}~since`, id, GATEWAY_LIFE_MS]
      const reply = await deadlinesOf(server).within(() => run(server, REGISTER, params))
      if (reply.length !== 3) throw new Error('Redis returned an invalid reply to the registration.')
      const [nowUs, gateways, sinceUs] = reply as readonly [number, number, number]
      return { gateways, seenAt: nowUs / 1000, sinceAt: sinceUs / 1000 }
    },

    /**
     * Runs charge.lua for a decision, right after the additions to its keys, in one batch with others of the same hash slot in this
     * iteration of the event loop. Rejects if the script fails, or with a DamagedKeyError.
     */
    decide: (quotas: readonly Quota[], charging: boolean, additions: readonly Addition[] = []) =>
      new Promise<Charge>((resolve, reject) => {
        const onEnd = (outcome: Charge | Error): void =>
          outcome instanceof Error ? reject(outcome) : resolve(outcome)
        enqueue([...additions.map(additionOf), { action: charging ? CHARGE : READ, quotas, onEnd }])
      }),
  }
}
