import type { Report } from '../../../src/commands/replay/replay.ts'
import { configFile } from './logs.ts'

/** Limits that refuse some calls of the day that `proxies.slow.ts` plays. */
export const dayConfig = (): string =>
  configFile(
    `  requests: { per: [ip], limit: 5, window: 1h }
  logins: { per: [ip], limit: 1, window: 1h }`,
    {
      routes: `  - { match: "/api/*", upstream: data, authenticate: none, limits: [requests] }
  - { match: "POST /login", upstream: data, authenticate: none, limits: [logins] }`,
    },
  )

/** Returns the figures of a report that do not depend on the clock of the program that logged. */
export function figuresOf({ totals, limits, clients, lines }: Report) {
  const { replayed, refusedBefore, malformed, unmatched, lacking } = lines
  return {
    totals,
    limits,
    clients: clients.map(({ busiestMinute, ...client }) => ({ ...client, busiest: busiestMinute.calls })),
    lines: { replayed, lacking, unserved: refusedBefore + malformed + unmatched },
  }
}
