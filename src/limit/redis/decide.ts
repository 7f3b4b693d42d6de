import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { toError } from '../../runtime/to-error.ts'
import type { Quota } from '../quota.ts'
import type { Charge, OwnCalls } from '../store.ts'
import { type Batch, createBatches, slotKeyOf } from './batches.ts'
import type { RedisClient } from './client.ts'
import { questionOf } from './question.ts'
import { chargesOf } from './reply.ts'
import { invalidReply, type RemainingMs, type Runner, scriptOf } from './runner.ts'
import { CHARGE_SCRIPT } from './scripts.ts'
import type { RedisStoreOptions } from './store-options.ts'

const isAdmitted = (outcome: Charge | Error): boolean => 'admitted' in outcome && outcome.admitted

/**
 * Creates the function that runs charge.lua for a decision of the gateway `id`, in one batch with
 * others of the same hash slot in this iteration of the event loop. It rejects if the script fails,
 * or with a DamagedKeyError.
 */
export function createDecide(client: RedisClient, runner: Runner, options: RedisStoreOptions, id: string) {
  const { edit, clock = SYSTEM_CLOCK } = options
  const chargeScript = scriptOf(CHARGE_SCRIPT, edit)
  const batches = createBatches(client.slot, (batch) => void decideBatch(batch), clock)

  async function askFor(batch: Batch, server: string, remainingMs: RemainingMs) {
    const { question, reply } = await runner.callInTime(server, remainingMs, chargeScript, (sending) =>
      questionOf(batch, id, sending),
    )
    if (reply.length !== question.size) throw invalidReply()
    return chargesOf(question, reply, runner.clocks.localMs(server, reply[0], 'latest'))
  }

  /** Asks for the outcomes of a batch within the timeout, reports the reply, and ends each decision. */
  async function decideBatch(batch: Batch): Promise<void> {
    const server = client.server(slotKeyOf(batch[0]))
    const deadlines = runner.deadlinesOf(server)
    try {
      const outcomes = await deadlines.within((remainingMs) => askFor(batch, server, remainingMs))
      // A Redis that cannot write still refuses: only a charge shows that it can.
      if (batch.some(({ isCharge }, i) => isCharge && isAdmitted(outcomes[i]!))) runner.report(server)
      for (let i = 0; i < batch.length; i++) batch[i]!.onEnd(outcomes[i]!)
    } catch (thrown) {
      const error = toError(thrown)
      // The fallback decides all that have no answer, in their order: none of them must be decided
      // by an answer under way.
      deadlines.failAll(error)
      // After that: the listener probes the server.
      runner.report(server, error)
      for (const { onEnd } of batch) onEnd(error)
    }
  }

  return (quotas: readonly Quota[], isCharge: boolean, own?: OwnCalls, lease?: string): Promise<Charge> =>
    new Promise((resolve, reject) => {
      const onEnd = (outcome: Charge | Error): void =>
        outcome instanceof Error ? reject(outcome) : resolve(outcome)
      batches.add({ isCharge, quotas, own, lease, onEnd })
    })
}
