import type { Registry } from 'prom-client'
import { Counter } from './prom-client.ts'

/** Numbers of the calls of a limit that are charged by what they use. */
export interface SettlementCounts {
  /** Points that calls reserved. */
  reserved: number
  /** Points that the calls which are settled have used. */
  used: number
  settledCalls: number
  unsettledCalls: number
}

/**
 * Registers the metrics of calls that are charged by what they use. A call looks up the numbers of
 * its limit once; a hot counter would look up its labels for each of them.
 */
export function createSettlementMetrics(registry: Registry) {
  const byLimit = new Map<string, SettlementCounts>()

  /** Returns the numbers of the limit with a name, which are shown from then on. */
  function settlementsOf(limit: string): SettlementCounts {
    const known = byLimit.get(limit)
    if (known !== undefined) return known
    const counts = { reserved: 0, used: 0, settledCalls: 0, unsettledCalls: 0 }
    byLimit.set(limit, counts)
    return counts
  }

  const registers = [registry]
  const reserved = new Counter({
    name: 'sluice_limit_reserved_points_total',
    help: 'Points reserved by calls charged by what they use.',
    labelNames: ['limit'],
    registers,
    collect() {
      reserved.reset()
      for (const [limit, counts] of byLimit) reserved.inc({ limit }, counts.reserved)
    },
  })
  const used = new Counter({
    name: 'sluice_limit_settled_points_total',
    help: 'Points that the calls which are settled have used.',
    labelNames: ['limit'],
    registers,
    collect() {
      used.reset()
      for (const [limit, counts] of byLimit) used.inc({ limit }, counts.used)
    },
  })
  const ends = new Counter({
    name: 'sluice_limit_settlements_total',
    help: 'Ends of reserves.',
    labelNames: ['limit', 'outcome'],
    registers,
    collect() {
      ends.reset()
      for (const [limit, counts] of byLimit) {
        ends.inc({ limit, outcome: 'settled' }, counts.settledCalls)
        ends.inc({ limit, outcome: 'unsettled' }, counts.unsettledCalls)
      }
    },
  })

  return { settlementsOf }
}
