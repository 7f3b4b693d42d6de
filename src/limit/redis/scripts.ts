import { readFileSync } from 'node:fs'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { toError } from '../../runtime/to-error.ts'
import { gatewaysKey, seenKey, sinceKey } from '../key.ts'
import type { Place, Quota } from '../quota.ts'
import { type Charge, DamagedKeyError, type Merge, type OnReply, type OwnCalls } from '../store.ts'
import { type Batch, createBatches } from './batches.ts'
import { mergeOf, renewalOf } from './changes.ts'
import type { RedisConnection, RedisStoreOptions } from './connection.ts'
import { type Question, questionOf } from './question.ts'
import { chargesOf } from './reply.ts'
import { createRunner, type ScriptParams, type RemainingMs, scriptOf } from './runner.ts'

const read = (file: string): string => readFileSync(new URL(file, import.meta.url), 'utf8')
const LAYOUT = read('layout.lua')
export const CHARGE_SCRIPT = LAYOUT + read('charge-one.lua') + read('charge.lua')
export const MERGE_SCRIPT = LAYOUT + read('merge.lua')
export const RENEW_SCRIPT = LAYOUT + read('renew.lua')
export const REGISTER_SCRIPT = read('register.lua')

const REGISTER = scriptOf(REGISTER_SCRIPT)
/**
 * A silent gateway may count by itself: those that lose Redis within two minutes after it still
 * know of it, and leave it its part. Several windows of most limits.
 */
export const GATEWAY_LIFE_MS = 120_000

const invalidReply = () => new Error('Redis returned an invalid reply to a script.')

const isAdmitted = (outcome: Charge | Error): boolean => 'admitted' in outcome && outcome.admitted

/** Ignores that a key of another type is damaged, which the next decision reports. */
function ignoreDamage(error: Error): void {
  if (!error.message.startsWith('WRONGTYPE')) throw error
}

/** Creates the functions that run the scripts for the gateway `id`, each within the timeout. */
export function createScripts(connection: RedisConnection, options: RedisStoreOptions, id: string) {
  const { client, check, explain } = connection
  const { edit = (script) => script, clock = SYSTEM_CLOCK } = options
  const { commands } = client
  const chargeScript = scriptOf(edit(CHARGE_SCRIPT))
  const mergeScript = scriptOf(edit(MERGE_SCRIPT))
  const renewScript = scriptOf(edit(RENEW_SCRIPT))
  const { clocks, deadlinesOf, callOnce, callInTime } = createRunner(connection, options)
  const batches = createBatches(client.slot, (batch) => void decideBatch(batch), clock)
  /** The listener to the outcomes of script calls; undefined until a fallback follows them. */
  let onReply: OnReply | undefined

  async function askFor(batch: Batch, server: string, remainingMs: RemainingMs) {
    let question: Question | undefined
    const reply = await callInTime(server, remainingMs, chargeScript, (sending) => {
      question = questionOf(batch, id, sending)
      return question.params
    })
    if (reply.length !== question!.size) throw invalidReply()
    return chargesOf(question!, reply, clocks.localMs(server, reply[0]!, 'latest'))
  }

  /** Asks for the outcomes of a batch within the timeout, reports the reply, and ends each decision. */
  async function decideBatch(batch: Batch): Promise<void> {
    const server = client.server(batch[0]!.quotas[0]!.key)
    const deadlines = deadlinesOf(server)
    try {
      const outcomes = await deadlines.within((remainingMs) => askFor(batch, server, remainingMs))
      // A Redis that cannot write still refuses: only a charge shows that it can.
      if (batch.some(({ isCharge }, i) => isCharge && isAdmitted(outcomes[i]!))) onReply?.(server)
      for (let i = 0; i < batch.length; i++) batch[i]!.onEnd(outcomes[i]!)
    } catch (thrown) {
      const error = toError(thrown)
      // The fallback decides all that have no answer, in their order: none of them must be decided
      // by an answer under way.
      deadlines.failAll(error)
      // After that: the listener probes the server.
      onReply?.(server, error)
      for (const { onEnd } of batch) onEnd(error)
    }
  }

  /** Makes a request of the background within the timeout, and reports its failure. */
  async function inBackground<T>(server: string, request: (remainingMs: RemainingMs) => Promise<T>) {
    try {
      return await deadlinesOf(server).within(request)
    } catch (error) {
      onReply?.(server, toError(error))
      throw error
    }
  }

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
      const params: ScriptParams = [keys.length, ...keys, id, GATEWAY_LIFE_MS]
      const reply = await deadlinesOf(server).within(() => callOnce(server, REGISTER, params))
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
        batches.add({ isCharge, quotas, own, lease, onEnd })
      }),

    /**
     * Runs merge.lua for the own calls of a gateway. Rejects if they may not be in the log, or with
     * a DamagedKeyError.
     */
    async merge(own: Merge): Promise<void> {
      const { key } = own.quota
      const server = client.server(key)
      const [, outcome] = await inBackground(server, (remainingMs) =>
        callInTime(server, remainingMs, mergeScript, (sending) => mergeOf(own, id, sending)),
      )
      if (outcome === -1) throw new DamagedKeyError(key)
      if (outcome !== 1) throw invalidReply()
    },

    /** Ends leases of one key. Rejects if they may not have ended. */
    async endLeases(leases: readonly Place[]): Promise<void> {
      const { key } = leases[0]!.quota
      const server = client.server(key)
      const ids = leases.map(({ id }) => id)
      await inBackground(server, () => explain(commands.zrem(key, ...ids), server).catch(ignoreDamage))
    },

    /** Runs renew.lua for leases of one hash slot, with their lengths in milliseconds. Rejects if they may not be renewed. */
    async renewLeases(leases: readonly Place[], lengths: readonly number[]): Promise<void> {
      const server = client.server(leases[0]!.quota.key)
      const [, outcome] = await inBackground(server, (remainingMs) =>
        callInTime(server, remainingMs, renewScript, (sending) => renewalOf(leases, lengths, sending)),
      )
      if (outcome !== 1) throw invalidReply()
    },
  }
}
