import { setTimeout as sleep } from 'node:timers/promises'
import { escaped } from '../../observe/pretty.ts'
import type { Overview } from '../../process/overview.ts'
import { type Admin, ask } from '../ask-admin.ts'
import { formatRows } from '../format.ts'
import { type Args, type Io, print } from '../io.ts'

type Client = Overview['activity']['clients'][number]

const EVERY_MS = 1000
/** Seconds over which a rate is taken. */
const RATE_SECONDS = 10

const OPEN_SCREEN = '\u001B[?1049h\u001B[?25l'
const CLOSE_SCREEN = '\u001B[?25h\u001B[?1049l'

/** Shows the clients of a running gateway, those first that have used most of their limits: on a terminal each second, else once. */
export async function top(admin: Admin, args: Args, io: Io): Promise<void> {
  const ended = new AbortController()
  const read = (): Promise<Overview> => ask(admin, '/overview', { signal: ended.signal })
  const overview = await read()
  const { stdout } = io
  if (args['json'] === true || args['once'] === true || stdout.isTTY !== true) {
    print(io, args, { at: overview.at, clients: overview.activity.clients.map(rowOf) }, () =>
      describe(overview),
    )
    return
  }
  const end = (): void => ended.abort()
  io.once('SIGINT', end).once('SIGTERM', end)
  stdout.write(OPEN_SCREEN)
  try {
    await refresh(admin.url, overview, read, io, ended.signal)
  } finally {
    stdout.write(CLOSE_SCREEN)
  }
}

/** Draws the clients each second, until `signal` is aborted. One that does not answer is asked again. */
async function refresh(
  url: string,
  first: Overview,
  read: () => Promise<Overview>,
  { stdout }: Io,
  signal: AbortSignal,
): Promise<void> {
  let overview = first
  let lost = ''
  while (!signal.aborted) {
    // A terminal that does not know its size says 0.
    const columns = stdout.columns || 80
    const rows = stdout.rows || 24
    const head = `Sluice at ${url}, ${overview.at}${lost}. Ctrl-C ends.`
    const lines = [head, '', ...describe(overview).split('\n')].slice(0, rows - 1)
    // Each line replaces what stood there, so that nothing flickers.
    stdout.write(
      `\u001B[H${lines.map((line) => `${escaped(line).slice(0, columns)}\u001B[K\n`).join('')}\u001B[J`,
    )
    await sleep(EVERY_MS, undefined, { signal }).catch(() => {})
    if (signal.aborted) return
    try {
      overview = await read()
      lost = ''
    } catch (error) {
      lost = ` (${(error as Error).message})`
    }
  }
}

function rowOf({ kind, client, calls, refused, limits, most, refusedNow }: Client) {
  return {
    kind,
    client,
    callsPerSecond: rateOf(calls),
    refusedPerSecond: rateOf(refused),
    limit: most?.name ?? null,
    used: most === null ? null : most.limit - most.remaining,
    remaining: most?.remaining ?? null,
    refusedBy: refusedNow?.limit ?? null,
    refusedUntil: refusedNow?.until ?? null,
    /** In the last minute. */
    refusals: limits.flatMap(({ name, refused }) => (refused > 0 ? [{ limit: name, calls: refused }] : [])),
  }
}

function describe({ activity }: Overview): string {
  const { clients, known, mostKnown } = activity
  if (clients.length === 0) return 'Nobody has called in the last minute.'
  const all = known < mostKnown ? known : `${known} or more`
  const table = formatRows(
    ['CALLER', 'REFUSED UNTIL', 'CALLS/S', 'REFUSED/S', 'LIMIT', 'USED', 'REMAINING', 'REFUSED LAST MINUTE'],
    clients
      .map(rowOf)
      .map((row) => [
        row.kind === 'client' ? row.client : `address ${row.client}`,
        row.refusedBy === null ? '-' : `${row.refusedUntil ?? 'blocked'} by ${row.refusedBy}`,
        row.callsPerSecond.toFixed(1),
        row.refusedPerSecond.toFixed(1),
        ...[row.limit, row.used, row.remaining].map((value) => String(value ?? '-')),
        row.refusals.map(({ limit, calls }) => `${calls} by ${limit}`).join(', ') || '-',
      ]),
  )
  return clients.length === known ? table : `${table}\n${clients.length} of ${all}`
}

function rateOf(perSecond: readonly number[]): number {
  const last = perSecond.slice(-RATE_SECONDS)
  return last.reduce((sum, calls) => sum + calls, 0) / Math.max(1, last.length)
}
