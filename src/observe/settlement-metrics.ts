import type { Metric, Registry } from 'prom-client'

/** What the calls of a limit that are charged by what they use have counted. */
export interface SettlementCounts {
  /** Points that calls reserved. */
  reserved: number
  /** Points that the calls which are settled have used. */
  used: number
  settledCalls: number
  unsettledCalls: number
}

type Value = readonly [labels: Readonly<Record<string, string>>, value: number]

/**
 * Registers the metrics of calls that are charged by what they use. As plain numbers, which are looked up
 * once a call: by hot counters, 0.3 us more (`bench/used.ts`).
 */
export function createSettlementMetrics(registry: Registry) {
  const byLimit = new Map<string, SettlementCounts>()

  /** Returns the counts of the limit with a name, which are shown from then on. */
  function settlementsOf(limit: string): SettlementCounts {
    const known = byLimit.get(limit)
    if (known !== undefined) return known
    const counts = { reserved: 0, used: 0, settledCalls: 0, unsettledCalls: 0 }
    byLimit.set(limit, counts)
    return counts
  }

  function show(
    name: string,
    help: string,
    read: (limit: string, counts: SettlementCounts) => Value[],
  ): void {
    async function get() {
      const all = [...byLimit].flatMap(([limit, counts]) => read(limit, counts))
      const values = all.map(([labels, value]) => ({ labels, value }))
      return { name, help, type: 'counter', aggregator: 'sum', values }
    }
    registry.registerMetric({ name, get } as unknown as Metric)
  }
  show(
    'sluice_limit_reserved_points_total',
    'Points reserved by calls charged by what they use.',
    (limit, { reserved }) => [[{ limit }, reserved]],
  )
  show(
    'sluice_limit_settled_points_total',
    'Points that the calls which are settled have used.',
    (limit, { used }) => [[{ limit }, used]],
  )
  show('sluice_limit_settlements_total', 'Ends of reserves.', (limit, { settledCalls, unsettledCalls }) => [
    [{ limit, outcome: 'settled' }, settledCalls],
    [{ limit, outcome: 'unsettled' }, unsettledCalls],
  ])

  return { settlementsOf }
}
