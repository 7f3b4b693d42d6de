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

/** A value of a limit, and its labels other than `limit`. */
interface ShownValue {
  readonly labels?: Readonly<Record<string, string>>
  readonly value: number
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

  /** Registers a counter with the values of each limit, which `read` returns whenever it is shown. */
  function showCounter(
    name: string,
    help: string,
    labelNames: string[],
    read: (counts: SettlementCounts) => readonly ShownValue[],
  ): void {
    void new Counter({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        this.reset()
        for (const [limit, counts] of byLimit)
          for (const { labels, value } of read(counts)) this.inc({ limit, ...labels }, value)
      },
    })
  }
  showCounter(
    'sluice_limit_reserved_points_total',
    'Points reserved by calls charged by what they use.',
    ['limit'],
    ({ reserved }) => [{ value: reserved }],
  )
  showCounter(
    'sluice_limit_settled_points_total',
    'Points that the calls which are settled have used.',
    ['limit'],
    ({ used }) => [{ value: used }],
  )
  showCounter(
    'sluice_limit_settlements_total',
    'Ends of reserves.',
    ['limit', 'outcome'],
    ({ settledCalls, unsettledCalls }) => [
      { labels: { outcome: 'settled' }, value: settledCalls },
      { labels: { outcome: 'unsettled' }, value: unsettledCalls },
    ],
  )

  return { settlementsOf }
}
