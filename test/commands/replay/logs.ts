import { PassThrough, Readable } from 'node:stream'
import { loadConfig } from '../../../src/config/load.ts'
import { replay, type ReplayOptions } from '../../../src/commands/replay/replay.ts'
import type { Report } from '../../../src/commands/replay/report.ts'
import { TOKENS } from '../../helpers/gateway.ts'
import { fileOf } from '../run.ts'

/** When the calls of `line` begin. */
export const START = Date.parse('2026-11-20T10:00:00.000Z')

export interface Logged {
  /** When it was decided: milliseconds after START. */
  readonly at: number
  /** How much later its line was written. */
  readonly lastsMs?: number
  /** Further members, or others in place of those of an admitted call. */
  readonly [member: string]: unknown
}

/** A line of the access log, as the gateway writes it. */
export function line({ at, lastsMs = 5, ...members }: Logged): string {
  return JSON.stringify({
    level: 'info',
    time: new Date(START + at + lastsMs).toISOString(),
    requestId: 'b7c9',
    method: 'GET',
    host: 'api.example.com',
    path: '/transactions',
    route: 'GET /transactions',
    upstream: 'data',
    client: 'acme',
    ip: '192.0.2.1',
    decision: 'admitted',
    limit: 'requests',
    remaining: 1,
    mode: 'store',
    source: 'upstream',
    status: 200,
    durationMs: lastsMs + 2,
    decidedAt: START + at,
    upstreamMs: lastsMs,
    ...members,
    msg: 'request',
  })
}

/** The members of a call that was refused by a limit. */
export const REFUSED = { decision: 'refused', source: 'gateway', status: 429, upstreamMs: undefined }

/** A file of these lines, or of these bytes. */
export function logFile(content: readonly string[] | Buffer): string {
  return fileOf(Buffer.isBuffer(content) ? content : content.map((one) => `${one}\n`).join(''), 'log')
}

/** A configuration file with these limits and whatever else; two routes take the Data API. */
export function configFile(limits: string, { routes = ROUTES, more = '' } = {}): string {
  return fileOf(`store: memory
upstreams: { data: { url: http://data.internal:4000 } }
${TOKENS}
limits:
${limits}
routes:
${routes}
${more}
`)
}

const ROUTES = `  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }
  - { match: "/open", upstream: data, authenticate: none }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }`

export const SYNC = '  sync: { per: [client, connection], limit: 1, window: 5s }'

/** What a replay of these lines under these limits reports. */
export async function replayed(
  lines: readonly string[] | Buffer | { readonly logs: readonly string[] },
  config: string,
  options: Partial<ReplayOptions> = {},
): Promise<Report> {
  const logs = 'logs' in lines ? lines.logs : [logFile(lines)]
  const io = { stdin: Readable.from([]), stderr: new PassThrough() }
  return replay({ logs, config: await loadConfig({ file: config }), top: 50, ...options }, io)
}
