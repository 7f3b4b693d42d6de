import { toError } from '../../runtime/to-error.ts'
import { settledKey } from '../key.ts'
import type { Place } from '../quota.ts'
import { DamagedKeyError, type Merge, type Settlements } from '../store.ts'
import { mergeOf, renewalOf, settlementOf } from './changes.ts'
import type { RedisConnection } from './connection.ts'
import { hashTag } from './hash-slot.ts'
import {
  invalidReply,
  type RemainingMs,
  type Runner,
  type Script,
  scriptOf,
  type ScriptParams,
} from './runner.ts'
import { MERGE_SCRIPT, RENEW_SCRIPT, SETTLE_SCRIPT } from './scripts.ts'
import type { Sending } from './sending.ts'
import type { RedisStoreOptions } from './store-options.ts'

/** Ignores that a key of another type is damaged, which the next decision reports. */
function ignoreDamage(error: Error): void {
  if (!error.message.startsWith('WRONGTYPE')) throw error
}

/** Creates the changes that no request waits for, of the gateway `id`, each within the timeout. */
export function createBackground(
  { client, explain }: RedisConnection,
  runner: Runner,
  { edit, prefix }: RedisStoreOptions,
  id: string,
) {
  const mergeScript = scriptOf(MERGE_SCRIPT, edit)
  const settleScript = scriptOf(SETTLE_SCRIPT, edit)
  const renewScript = scriptOf(RENEW_SCRIPT, edit)

  /** Returns the mark of settlements in the slot of a key. Without a cluster, a gateway has only one. */
  function markIn(key: string): string {
    const only = settledKey(prefix, '', id)
    return client.slot(only) === client.slot(key) ? only : settledKey(prefix, hashTag(key), id)
  }

  /** Makes a request within the timeout, and reports its failure. */
  async function inBackground<T>(server: string, request: (remainingMs: RemainingMs) => Promise<T>) {
    try {
      return await runner.deadlinesOf(server).within(request)
    } catch (error) {
      runner.report(server, toError(error))
      throw error
    }
  }

  /** Runs a script within the timeout; returns what it replies after the clock. */
  async function change(server: string, script: Script, paramsOf: (sending: Sending) => ScriptParams) {
    const { reply } = await inBackground(server, (remainingMs) =>
      runner.callInTime(server, remainingMs, script, (sending) => ({ params: paramsOf(sending) })),
    )
    return reply[1]
  }

  return {
    /**
     * Runs merge.lua for the own calls of a gateway. Rejects if they may not be in the log, or with
     * a DamagedKeyError.
     */
    async merge(own: Merge): Promise<void> {
      const { key } = own.quota
      const outcome = await change(client.server(key), mergeScript, (sending) => mergeOf(own, id, sending))
      if (outcome === -1) throw new DamagedKeyError(key)
      if (outcome !== 1) throw invalidReply()
    },

    /** Runs settle.lua for calls of one hash slot. Rejects if they may not be settled. */
    async settle(settlements: Settlements): Promise<void> {
      const { key } = settlements.all[0]!.quota
      const mark = markIn(key)
      const outcome = await change(client.server(key), settleScript, (sending) =>
        settlementOf(settlements, mark, sending),
      )
      if (outcome !== 1) throw invalidReply()
    },

    /** Ends leases of one key. Rejects if they may not have ended. */
    async endLeases(leases: readonly Place[]): Promise<void> {
      const { key } = leases[0]!.quota
      const server = client.server(key)
      const ids = leases.map(({ id }) => id)
      await inBackground(server, () => explain(client.commands.zrem(key, ...ids), server).catch(ignoreDamage))
    },

    /** Runs renew.lua for leases of one hash slot, with their lengths in milliseconds. Rejects if they may not be renewed. */
    async renewLeases(leases: readonly Place[], lengths: readonly number[]): Promise<void> {
      const server = client.server(leases[0]!.quota.key)
      const outcome = await change(server, renewScript, (sending) => renewalOf(leases, lengths, sending))
      if (outcome !== 1) throw invalidReply()
    },
  }
}
