import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { gatewaysKey, seenKey, sinceKey } from '../key.ts'
import type { Place, Quota } from '../quota.ts'
import { type Charge, DamagedKeyError, type Merge, type OnReply, type OwnCalls } from '../store.ts'
import { mergeOf, renewalOf } from './changes.ts'
import type { RedisConnection, RedisStoreOptions } from './connection.ts'
import { createDeadlines } from './deadlines.ts'
import { type BatchedDecision, type Question, questionOf } from './question.ts'
import { chargesOf } from './reply.ts'
import type { Sending } from './sending.ts'
import { ServerClocks } from './server-clocks.ts'

const read = (file: string): string => readFileSync(new URL(file, import.meta.url), 'utf8')
const LAYOUT = read('layout.lua')
export const CHARGE_SCRIPT = LAYOUT + read('charge-one.lua') + read('charge.lua')
export const MERGE_SCRIPT = LAYOUT + read('merge.lua')
export const RENEW_SCRIPT = LAYOUT + read('renew.lua')
export const REGISTER_SCRIPT = read('register.lua')
const scriptOf = (text: string) => ({ text, sha: createHash('sha1').update(text).digest('hex') })
type Batch = readonly BatchedDecision[]
type Script = ReturnType<typeof scriptOf>
type Params = readonly [keys: number, ...keysAndArgs: (string | number)[]]
type ParamsOf = (sending: Sending) => Params

const REGISTER = scriptOf(REGISTER_SCRIPT)
/**
 * A silent gateway may count by itself: those that lose Redis within two minutes after it still
 * know of it, and leave it its part. Several windows of most limits.
 */
export const GATEWAY_LIFE_MS = 120_000

/** Maximum decisions per script call. With larger batches, Redis and the gateway take turns being idle. */
const MAX_BATCH = 24
/** Maximum script calls for a batch. The second knows the clock; in the third, another period has begun meanwhile. */
const MAX_TRIES = 3

const invalidReply = () => new Error('Redis returned an invalid reply to a script.')

const isAdmitted = (outcome: Charge | Error): boolean => 'admitted' in outcome && outcome.admitted

/** Ignores that a key of another type is damaged, which the next decision reports. */
function ignoreDamage(error: Error): void {
  if (!error.message.startsWith('WRONGTYPE')) throw error
}

/** Creates the functions that run the scripts for the gateway `id`, each within the timeout. */
export function createScripts(connection: RedisConnection, options: RedisStoreOptions, id: string) {
  const { client, check, explain, assertConfigured } = connection
  const { edit = (script) => script, timeoutMs = 60_000, clock = SYSTEM_CLOCK } = options
  const { commands } = client
  const chargeScript = scriptOf(edit(CHARGE_SCRIPT))
  const mergeScript = scriptOf(edit(MERGE_SCRIPT))
  const renewScript = scriptOf(edit(RENEW_SCRIPT))
  const deadlines = new Map<string, ReturnType<typeof createDeadlines>>()
  const clocks = new ServerClocks()
  let batches = new Map<number, BatchedDecision[]>()
  let onReply: OnReply | undefined

  function deadlinesOf(server: string) {
    let own = deadlines.get(server)
    if (own === undefined) deadlines.set(server, (own = createDeadlines(timeoutMs, clock)))
    return own
  }

  /** Runs a script whose reply is numbers, the first of them the server's clock; returns none for any other reply. */
  async function run(server: string, script: Script, params: Params): Promise<readonly number[]> {
    const sentAt = clock.now()
    const asked = commands.evalsha(script.sha, ...params)
    const reply = await asked.catch((error: Error) => {
      // Redis loses its scripts at a restart, a failover or SCRIPT FLUSH.
      const isLost = error.message.startsWith('NOSCRIPT')
      return explain(isLost ? commands.eval(script.text, ...params) : asked, server)
    })
    if (!Array.isArray(reply) || reply.length === 0 || !reply.every(Number.isSafeInteger)) return []
    clocks.learn(server, sentAt, clock.now(), reply[0])
    return reply
  }

  /**
   * Runs a script, and again if it did nothing because the server's clock, for the deadline or for
   * calendars, was not known well enough.
   */
  async function attempt(server: string, remainingMs: () => number, script: Script, paramsOf: ParamsOf) {
    assertConfigured()
    const runAt = (nowUs: number, bound: 'earliest' | 'latest') => {
      const localMs = clock.now()
      const deadlineUs = clocks.at(server, localMs + remainingMs(), bound)
      const sending = { clocks, server, nowMs: nowUs / 1000, localMs, deadlineUs }
      return run(server, script, paramsOf(sending))
    }
    // The earliest possible deadline on the server's clock, so that a call that has timed out is not charged.
    const nowUs = clocks.at(server, clock.now(), 'latest') || clock.date() * 1000
    let reply = await runAt(nowUs, 'earliest')
    for (let tries = 1; reply.length === 1 && remainingMs() > 0 && tries < MAX_TRIES; tries++)
      reply = await runAt(reply[0]!, 'latest')
    return reply
  }

  async function ask(batch: Batch, server: string, remainingMs: () => number) {
    let question: Question | undefined
    const reply = await attempt(server, remainingMs, chargeScript, (sending) => {
      question = questionOf(batch, id, sending)
      return question.params
    })
    if (reply.length !== question!.size) throw invalidReply()
    return chargesOf(question!, reply, clocks.localMs(server, reply[0]!, 'latest'))
  }

  async function send(batch: Batch): Promise<void> {
    const server = client.server(batch[0]!.quotas[0]!.key)
    const { within, failAll } = deadlinesOf(server)
    try {
      const outcomes = await within((remainingMs) => ask(batch, server, remainingMs))
      // A Redis that cannot write still refuses: only a charge shows that it can.
      if (batch.some(({ isCharge }, i) => isCharge && isAdmitted(outcomes[i]!))) onReply?.(server)
      for (let i = 0; i < batch.length; i++) batch[i]!.onEnd(outcomes[i]!)
    } catch (error) {
      // The fallback decides all that have no answer, in their order: none of them must be decided
      // by an answer under way.
      failAll(error as Error)
      // After that: the listener probes the server.
      onReply?.(server, error as Error)
      for (const { onEnd } of batch) onEnd(error as Error)
    }
  }

  function sendAll(): void {
    const gathered = batches
    batches = new Map()
    for (const batch of gathered.values()) void send(batch)
  }

  /**
   * Adds a question to the batch of its hash slot, which is sent together. The configuration
   * ensures that its keys share it.
   */
  function enqueue(asked: BatchedDecision): void {
    const slot = client.slot(asked.quotas[0]!.key)
    let batch = batches.get(slot)
    if (batch === undefined) {
      if (batches.size === 0) clock.soon(sendAll)
      batches.set(slot, (batch = []))
    }
    if (batch.push(asked) < MAX_BATCH) return
    batches.delete(slot)
    void send(batch)
  }

  /** Makes a request of the background within the timeout, and reports its failure. */
  async function within<T>(server: string, request: (remainingMs: () => number) => Promise<T>) {
    try {
      return await deadlinesOf(server).within(request)
    } catch (error) {
      onReply?.(server, error as Error)
      throw error
    }
  }

  /** Runs a script of the background. */
  const change = (server: string, script: Script, paramsOf: ParamsOf) =>
    within(server, (remainingMs) => attempt(server, remainingMs, script, paramsOf))

  return {
    check: (server: string) => deadlinesOf(server).within(check),
    /** Returns INFO about the memory of a server; nothing about a server that is not connected. */
    memory: (server: string) =>
      deadlinesOf(server).within(async () => (await client.node(server)?.info('memory')) ?? ''),
    clocks,

    /** Sets the listener to the outcomes of script calls. */
    listen(listener: OnReply): void {
      onReply = listener
    },

    /**
     * Registers a gateway with the server of a hash tag. Times are epoch milliseconds of Redis's
     * clock; `ownBefore` and `anyBefore` are those of the registrations before, of this gateway and
     * of any, that the server has; 0 if it has none.
     */
    async register(server: string, prefix: string, tag: string) {
      const keys = [gatewaysKey(prefix, tag), sinceKey(prefix, tag), seenKey(prefix, tag)]
      const params: Params = [keys.length, ...keys, id, GATEWAY_LIFE_MS]
      const reply = await deadlinesOf(server).within(() => run(server, REGISTER, params))
      if (reply.length !== 5) throw invalidReply()
      const [nowUs, gateways, ...before] = reply as readonly [number, number, number, number, number]
      const [sinceAt, ownBefore, anyBefore] = before.map((us) => us / 1000) as [number, number, number]
      return { gateways, seenAt: nowUs / 1000, sinceAt, ownBefore, anyBefore }
    },

    /**
     * Runs charge.lua for a decision, in one batch with others of the same hash slot in this
     * iteration of the event loop. Rejects if the script fails, or with a DamagedKeyError.
     */
    decide: (quotas: readonly Quota[], isCharge: boolean, own?: OwnCalls, lease?: string) =>
      new Promise<Charge>((resolve, reject) => {
        const onEnd = (outcome: Charge | Error): void =>
          outcome instanceof Error ? reject(outcome) : resolve(outcome)
        enqueue({ isCharge, quotas, own, lease, onEnd })
      }),

    /**
     * Runs merge.lua for the own calls of a gateway. Rejects if they may not be in the log, or with
     * a DamagedKeyError.
     */
    async merge(own: Merge): Promise<void> {
      const { key } = own.quota
      const server = client.server(key)
      const [, outcome] = await change(server, mergeScript, (sending) => mergeOf(own, id, sending))
      if (outcome === -1) throw new DamagedKeyError(key)
      if (outcome !== 1) throw invalidReply()
    },

    /** Ends leases of one key. Rejects if they may not have ended. */
    async endLeases(leases: readonly Place[]): Promise<void> {
      const { key } = leases[0]!.quota
      const server = client.server(key)
      const ids = leases.map(({ id }) => id)
      await within(server, () => explain(commands.zrem(key, ...ids), server).catch(ignoreDamage))
    },

    /** Runs renew.lua for leases of one hash slot, with their lengths in milliseconds. Rejects if they may not be renewed. */
    async renewLeases(leases: readonly Place[], lengths: readonly number[]): Promise<void> {
      const server = client.server(leases[0]!.quota.key)
      const [, outcome] = await change(server, renewScript, (sending) => renewalOf(leases, lengths, sending))
      if (outcome !== 1) throw invalidReply()
    },
  }
}
