import { setTimeout as sleep } from 'node:timers/promises'
import { escaped } from '../../observe/pretty.ts'
import type { Overview } from '../../process/overview.ts'
import { adminUrl } from '../admin-url.ts'
import { formatRows } from '../format.ts'
import { type Given, type Io, load, print, textOf, UsageError } from '../io.ts'

type Client = Overview['activity']['clients'][number]

const EVERY_MS = 1000
const TIMEOUT_MS = 5000
/** Seconds over which a rate is taken. */
const RATE_SECONDS = 10

const OPEN_SCREEN = '\u001B[?1049h\u001B[?25l'
const CLOSE_SCREEN = '\u001B[?25h\u001B[?1049l'

interface Place {
  /** Such as `http://127.0.0.1:9090`. */
  readonly url: string
  readonly token: string | undefined
}

/** Shows the clients of a running gateway, those first that have used most of their limits: on a terminal each second, else once. */
export async function run(given: Given, io: Io): Promise<void> {
  const place = await placeOf(given, io)
  const ended = new AbortController()
  const overview = await ask(place, ended.signal)
  const { stdout } = io
  if (given['json'] === true || given['once'] === true || stdout.isTTY !== true) {
    print(io, given, { at: overview.at, clients: overview.activity.clients.map(rowOf) }, () =>
      describe(overview),
    )
    return
  }
  const end = (): void => ended.abort()
  io.once('SIGINT', end).once('SIGTERM', end)
  stdout.write(OPEN_SCREEN)
  try {
    await refresh(place, overview, io, ended.signal)
  } finally {
    stdout.write(CLOSE_SCREEN)
  }
}

/** Draws the clients each second, until `signal` is aborted. One that does not answer is asked again. */
async function refresh(place: Place, first: Overview, { stdout }: Io, signal: AbortSignal): Promise<void> {
  let overview = first
  let lost = ''
  while (!signal.aborted) {
    // A terminal that does not know its size says 0.
    const columns = stdout.columns || 80
    const rows = stdout.rows || 24
    const head = `Sluice at ${place.url}, ${overview.at}${lost}. Ctrl-C ends.`
    const lines = [head, '', ...describe(overview).split('\n')].slice(0, rows - 1)
    // Each line replaces what stood there, so that nothing flickers.
    stdout.write(
      `\u001B[H${lines.map((line) => `${escaped(line).slice(0, columns)}\u001B[K\n`).join('')}\u001B[J`,
    )
    await sleep(EVERY_MS, undefined, { signal }).catch(() => {})
    if (signal.aborted) return
    try {
      overview = await ask(place, signal)
      lost = ''
    } catch (error) {
      lost = ` (${(error as Error).message})`
    }
  }
}

async function placeOf(given: Given, io: Io): Promise<Place> {
  const token = io.env['SLUICE_ADMIN_TOKEN'] || undefined
  const text = textOf(given, 'admin')
  if (text !== undefined) {
    const url = URL.canParse(text) ? new URL(text) : undefined
    if (url === undefined || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '') {
      throw new UsageError(
        '--admin must be a URL such as http://127.0.0.1:9090; the token is read from SLUICE_ADMIN_TOKEN.',
      )
    }
    return { url: url.origin, token }
  }
  if (textOf(given, 'config') === undefined && !io.env['SLUICE_CONFIG']) {
    throw new UsageError('Which gateway? Give --config FILE, or --admin URL.')
  }
  const { admin } = (await load(given, io)).config
  if (admin.port === 0)
    throw new Error('admin.port is 0, which takes a free one: give its address by --admin.')
  return { url: adminUrl(admin.host, admin.port), token: token ?? admin.token }
}

/** Asks the admin listener, until `signal` is aborted; rejects with words for the operator. */
async function ask({ url, token }: Place, signal: AbortSignal): Promise<Overview> {
  const headers = {
    Accept: 'application/json',
    ...(token !== undefined && { Authorization: `Bearer ${token}` }),
  }
  const response = await fetch(`${url}/overview`, {
    headers,
    redirect: 'error',
    signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
  }).catch((error: Error) => {
    if (error.name === 'TimeoutError') throw new Error(`${url} gave no answer within ${TIMEOUT_MS / 1000} s.`)
    const { code } = (error.cause ?? {}) as NodeJS.ErrnoException
    if (code === 'ECONNREFUSED') {
      throw new Error(`Nothing listens at ${url}. Start the gateway, or give its admin listener by --admin.`)
    }
    throw new Error(`The gateway cannot be asked at ${url}: ${code ?? error.message}.`, { cause: error })
  })
  if (response.status === 401) {
    throw new Error(
      token === undefined
        ? `The gateway at ${url} asks for its admin.token: set SLUICE_ADMIN_TOKEN.`
        : `The gateway at ${url} refuses the token: set SLUICE_ADMIN_TOKEN to its admin.token.`,
    )
  }
  const body = (await response.json().catch(() => undefined)) as (Overview & { detail?: string }) | undefined
  if (response.status === 200 && body?.activity !== undefined) return body
  const reason = body?.detail ?? `it answers ${response.status}, as no admin listener of this version does.`
  throw new Error(`The gateway at ${url} shows nothing: ${reason}`)
}

function rowOf({ client, calls, refused, most, refusedNow }: Client) {
  return {
    client,
    callsPerSecond: rateOf(calls),
    refusedPerSecond: rateOf(refused),
    limit: most?.name ?? null,
    used: most === null ? null : most.limit - most.remaining,
    remaining: most?.remaining ?? null,
    refusedBy: refusedNow?.limit ?? null,
    refusedUntil: refusedNow?.until ?? null,
  }
}

function describe({ activity }: Overview): string {
  if (activity.clients.length === 0) return 'No client has called in the last minute.'
  return formatRows(
    ['CLIENT', 'CALLS/S', 'REFUSED/S', 'LIMIT', 'USED', 'REMAINING', 'REFUSED UNTIL'],
    activity.clients
      .map(rowOf)
      .map((row) => [
        row.client,
        row.callsPerSecond.toFixed(1),
        row.refusedPerSecond.toFixed(1),
        ...[row.limit, row.used, row.remaining].map((value) => String(value ?? '-')),
        row.refusedBy === null ? '-' : `${row.refusedUntil ?? 'no end'} by ${row.refusedBy}`,
      ]),
  )
}

function rateOf(perSecond: readonly number[]): number {
  const last = perSecond.slice(-RATE_SECONDS)
  return last.reduce((sum, calls) => sum + calls, 0) / Math.max(1, last.length)
}
