import { randomUUID } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { hostname } from 'node:os'
import type { Config } from '../../config/config.ts'
import type { Status } from '../../observe/status.ts'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { instant } from '../../runtime/instant.ts'
import { sum } from '../../runtime/merge.ts'
import { VERSION } from '../../runtime/package.ts'
import { RECENT_SECONDS } from './activity.ts'
import type { ConfigurationInForce, OverviewSource } from './source.ts'
import { parseSummary, type Summary } from './summary.ts'

const EVERY_MS = 1000
/** Time for which the gateways count as shown after each reading of them. */
const SHOWN_MS = 10_000
const MAX_GATEWAYS = 100

/** The summary of this gateway or another. */
export interface ShownSummary extends Summary {
  readonly self: boolean
  /** Milliseconds since it was written. */
  readonly ageMs: number
}

/**
 * Sends the summary of this gateway, with its workers, to the others each second while some gateway
 * shows them, and keeps theirs while this one does.
 */
export function createGateways(configuration: ConfigurationInForce, source: () => OverviewSource) {
  const id = randomUUID()
  const startedMs = Date.now()
  const self = { host: hostname(), pid: process.pid, startedAt: instant(startedMs) }
  /** The others as Redis last returned them, at an instant of this machine's clock; 0 if it has not. */
  let others: readonly ShownSummary[] = []
  let readMs = 0
  let shownAt = -Infinity
  const isShown = (): boolean => SYSTEM_CLOCK.now() - shownAt <= SHOWN_MS

  function ownSummary({ calls, store }: Status): Summary {
    const seconds = Math.max(1, Math.min(RECENT_SECONDS, (Date.now() - startedMs) / 1000))
    const rateOf = (counts: readonly number[]) => sum(counts.slice(-RECENT_SECONDS)) / seconds
    return {
      ...self,
      version: VERSION,
      configuration: configuration.hash(),
      admin: urlOf(configuration.config().admin),
      calls: rateOf(calls.requests),
      refused: rateOf(calls.refused),
      failed: rateOf(calls.failed),
      outage: store.outage?.text ?? null,
      withoutRedis: store.withoutRedis,
    }
  }

  async function share(): Promise<void> {
    const isKept = isShown()
    if (!isKept) {
      others = []
      readMs = 0
    }
    const summary = JSON.stringify(ownSummary(await source().status()))
    const received = await source().shareSummary({ id, summary, isShown: isKept })
    if (!isKept) return
    const summaries = received.flatMap(({ summary: text, ageMs }) => {
      const parsed = parseSummary(text)
      return parsed === undefined ? [] : { ...parsed, ageMs, self: false }
    })
    others = summaries.toSorted(byProcess).slice(0, MAX_GATEWAYS - 1)
    readMs = Date.now()
  }
  // Without Redis, the others stay as they were read last.
  const tryToShare = (): void => void share().catch(() => {})
  const stop = SYSTEM_CLOCK.every(EVERY_MS, tryToShare)

  return {
    /**
     * Returns this gateway, whose status is given, and the others, by host and process, and when
     * Redis last returned the others; null if it has not since they are shown.
     */
    read(status: Status) {
      const wasShown = isShown()
      shownAt = SYSTEM_CLOCK.now()
      if (!wasShown) tryToShare()
      const sinceMs = Date.now() - readMs
      const mine = { ...ownSummary(status), ageMs: 0, self: true }
      const aged = others.map((other) => ({ ...other, ageMs: other.ageMs + sinceMs }))
      const gatewaysReadAt = readMs === 0 ? null : instant(readMs)
      return { gateways: [...aged, mine].toSorted(byProcess), gatewaysReadAt }
    },
    close: stop,
  }
}

const byProcess = (a: Summary, b: Summary): number =>
  a.host.localeCompare(b.host) || a.pid - b.pid || a.startedAt.localeCompare(b.startedAt)

/**
 * Returns the URL of the admin listener for other machines, by its first name or else its address;
 * null if neither is known.
 */
function urlOf({ host, port, hosts, onLoopback, tls }: Config['admin']): string | null {
  const [name = isIPv6(host) ? `[${host}]` : host] = hosts
  const isKnown = !onLoopback && port !== 0 && !['0.0.0.0', '[::]'].includes(name)
  return isKnown ? `${tls === undefined ? 'http' : 'https'}://${name}:${port}` : null
}
