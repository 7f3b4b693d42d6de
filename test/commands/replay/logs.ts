import { PassThrough, Readable } from 'node:stream'
import { loadConfig } from '../../../src/config/load.ts'
import { replay, type Report } from '../../../src/commands/replay/replay.ts'
import { TOKENS, textOf } from '../../helpers/gateway.ts'
import { fileOf } from '../run.ts'

/** Start of the calls of `line`. */
export const START = Date.parse('2026-11-20T10:00:00.000Z')

export interface Logged {
  /** Time of the decision: milliseconds after START. */
  readonly at: number
  /** Milliseconds from the decision to the line. */
  readonly lastsMs?: number
  /** Further members, which override those of an admitted call. */
  readonly [member: string]: unknown
}

/** Returns a line of the access log as the gateway writes it. */
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

/** Members of a call that a limit refused. */
export const REFUSED = { decision: 'refused', source: 'gateway', status: 429, upstreamMs: undefined }

/** Writes a file with these lines or bytes. */
export function logFile(content: readonly string[] | Buffer): string {
  return fileOf(Buffer.isBuffer(content) ? content : content.map((line) => `${line}\n`).join(''), 'log')
}

/** Writes a configuration file with these limits and `more`; by default, two routes serve the Data API. */
export function configFile(limits: string, { routes = ROUTES, more = '' } = {}): string {
  return fileOf(`store: memory
upstreams: { data: { url: http://data.internal:4000 } }
${textOf({ tokens: TOKENS })}
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

/** Returns the report of a replay of these lines under these limits. */
export async function replayed(
  lines: readonly string[] | Buffer | { readonly logs: readonly string[] },
  config: string,
): Promise<Report> {
  const logs = 'logs' in lines ? lines.logs : [logFile(lines)]
  const io = { stdin: Readable.from([]), stderr: new PassThrough() }
  return replay(await loadConfig({ file: config }), logs, { top: '50' }, io)
}
