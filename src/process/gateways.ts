import { randomUUID } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { hostname } from 'node:os'
import type { Config } from '../config/compile.ts'
import { parseSummary, RECENT_SECONDS, type Summary } from '../observe/summary.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { instant } from '../runtime/instant.ts'
import { VERSION } from '../runtime/package.ts'
import type { OperatorApi } from './operations.ts'
import type { Configuration } from './reload.ts'

const EVERY_MS = 1000
const MAX_GATEWAYS = 100

/** The summary of this gateway or another, and the milliseconds since it was written. */
type ShownSummary = Summary & { readonly ageMs: number; readonly self: boolean }

/** Sends the summary of this gateway, with its workers, to the others each second, and keeps theirs. */
export function createGateways(
  configuration: Pick<Configuration, 'config' | 'hash'>,
  operatorApi: () => Pick<OperatorApi, 'vitals' | 'shareSummary'>,
) {
  const id = randomUUID()
  const startedMs = Date.now()
  const self = { host: hostname(), pid: process.pid, startedAt: instant(startedMs) }
  /** The others as Redis last returned them, at an instant of this machine's clock; 0 if it has not. */
  let others: readonly ShownSummary[] = []
  let readMs = 0

  async function ownSummary(): Promise<Summary> {
    const { store, admin } = configuration.config()
    const { requests, refused, failed, outages, withoutRedis } = await operatorApi().vitals()
    const seconds = Math.max(1, Math.min(RECENT_SECONDS, Math.floor((Date.now() - startedMs) / 1000)))
    return {
      ...self,
      version: VERSION,
      configuration: configuration.hash(),
      admin: urlOf(admin),
      calls: requests / seconds,
      refused: refused / seconds,
      failed: failed / seconds,
      mode: outages === 0 || store === 'memory' ? 'store' : store.onOutage,
      withoutRedis,
    }
  }

  async function share(): Promise<void> {
    const received = await operatorApi().shareSummary([id, JSON.stringify(await ownSummary())])
    const shown = received.flatMap(({ summary: text, ageMs }) => {
      const summary = parseSummary(text)
      return summary === undefined ? [] : { ...summary, ageMs, self: false }
    })
    others = shown.toSorted(byProcess).slice(0, MAX_GATEWAYS - 1)
    readMs = Date.now()
  }
  // Without Redis, the others stay as they were read last.
  const stop = SYSTEM_CLOCK.every(EVERY_MS, () => void share().catch(() => {}))

  return {
    self,
    /**
     * Returns this gateway and the others, by host and process, and when Redis last returned the
     * others; null if it has not.
     */
    async read() {
      const sinceMs = Date.now() - readMs
      const mine: ShownSummary = { ...(await ownSummary()), ageMs: 0, self: true }
      const aged = others.map((other) => ({ ...other, ageMs: other.ageMs + sinceMs }))
      return {
        gateways: [...aged, mine].toSorted(byProcess),
        readAt: readMs === 0 ? null : instant(readMs),
      }
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
function urlOf({ host, port, hosts, onLoopback }: Config['admin']): string | null {
  const [name = isIPv6(host) ? `[${host}]` : host] = hosts
  const isKnown = !onLoopback && port !== 0 && !['0.0.0.0', '[::]'].includes(name)
  return isKnown ? `http://${name}:${port}` : null
}
