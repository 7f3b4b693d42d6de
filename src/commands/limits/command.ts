import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ListedOverride } from '../../policy/overrides.ts'
import { escaped } from '../../observe/unsafe-characters.ts'
import { isNamedPart } from '../../policy/counted-caller.ts'
import type { CallerReport, Changed, ResetResult } from '../../admin/requests/operator-api.ts'
import type { Overview } from '../../admin/overview/overview.ts'
import { type Admin, ask, findAdmin } from '../admin-client.ts'
import { cell, formatList, formatParagraphs, formatRows, formatWindow, pluralize } from '../format.ts'
import { type Args, positionals, UsageError } from '../args.ts'
import { interruption, type Io, print } from '../io.ts'
import { setLimits } from './set.ts'

type Overrides = { readonly overrides: readonly ListedOverride[] }

/** Scanning a large Redis takes the gateway some seconds. */
const SCAN = { timeoutMs: 60_000 }
const TOP_INTERVAL_MS = 1000
const WHICH_CALLER = 'Which caller? Give a client id, or a caller such as ip:192.0.2.7.'
const WHICH_PARTS = 'Further words must be parts such as user:SUB; quote an id with blanks.'
const CLEAR = '\u001B[2J\u001B[H'

/** Shows, sets or resets the limits of a caller at a running gateway, lists the overrides, or watches all callers. */
export async function run(args: Args, io: Io): Promise<void> {
  const [action, ...words] = positionals(args)
  const admin = await findAdmin(args, io)
  if (action === 'top') return await top(admin, args, io)
  if (action === 'overrides')
    return print(io, args, await ask<Overrides>(admin, '/overrides'), describeOverrides)
  if (!words[0]) throw new UsageError(WHICH_CALLER)
  if (action === 'set') return await setLimits(admin, words, args, io)
  if (!words.slice(1).every(isNamedPart)) throw new UsageError(WHICH_PARTS)
  const path = `/limits/${encodeURIComponent(words.join(' '))}`
  if (action === 'show') return print(io, args, await ask<CallerReport>(admin, path, SCAN), describeUsage)
  const result = await ask<Changed<ResetResult>>(admin, path, { ...SCAN, method: 'DELETE' })
  print(io, args, result, ({ caller, freed, keepsPlaces, by }) => {
    const note = keepsPlaces ? ' Calls in progress keep their places.' : ''
    return `Freed ${pluralize(freed, 'key')} of ${caller}.${note} Recorded as "${by}".`
  })
}

function describeOverrides({ overrides }: Overrides): string {
  const rows = overrides.map(({ caller, name, limit, until, set, by, note, applies }) => {
    const end = applies ? (until ?? 'no end') : 'without effect: no such limit'
    return [cell(caller), name, limit, end, set, by, note]
  })
  const head = ['CALLER', 'LIMIT', 'CALLS', 'UNTIL', 'SET', 'BY', 'NOTE']
  return formatRows(head, rows) || 'There are no overrides.'
}

function describeUsage({ caller, plan, limits, overrides, notes }: CallerReport): string {
  const rows = limits.map((row) => {
    const { key, name, limit, used, remaining, until, part } = row
    const resetAt = row.windowSeconds && (used > 0 || limit === 0) ? row.reset : null
    const kind = `${row.shadow ? 'shadow' : 'live'}${row.override ? ', override' : ''}`
    const since = row.oldest ? `, the oldest since ${row.oldest}` : ''
    const window = formatWindow(row.windowSeconds && row.windowSeconds * 1000, row.calendar) + since
    const calls = part === null ? limit : `${limit}, here ${part}`
    return [key, name, calls, used, remaining, window, resetAt, until, kind]
  })
  const head = ['KEY', 'LIMIT', 'CALLS', 'USED', 'REMAINING', 'WINDOW', 'RESET', 'UNTIL', 'KIND']
  const shownOverrides = overrides.length > 0 ? describeOverrides({ overrides }) : ''
  const ofPlan = plan === null ? '' : `The plan of ${caller} is ${plan}.`
  return formatParagraphs([formatRows(head, rows), ofPlan, notes.join('\n'), shownOverrides])
}

/** Prints the callers that use most of their limits: each second on a terminal, else once. */
async function top(admin: Admin, args: Args, io: Io): Promise<void> {
  const { stdout } = io
  let overview: Overview = await ask(admin, '/overview')
  if (args['json'] === true || args['once'] === true || stdout.isTTY !== true) {
    const shown = { at: overview.at, callers: overview.activity.callers }
    return print(io, args, shown, () => describeTop(overview))
  }
  const signal = interruption(io)
  const ended = once(signal, 'abort')
  let problem = ''
  while (!signal.aborted) {
    const head = `Sluice at ${admin.url}, ${overview.at}${problem}. Ctrl-C ends.`
    // A terminal of unknown size reports 0.
    const lines = [head, '', ...describeTop(overview).split('\n')].slice(0, (stdout.rows || 24) - 1)
    const cut = lines.map((line) => escaped(line).slice(0, stdout.columns || 80))
    stdout.write(`${CLEAR}${cut.join('\n')}\n`)
    const next = sleep(TOP_INTERVAL_MS)
      .then(async () => (overview = await ask<Overview>(admin, '/overview')))
      .then(() => (problem = ''))
      .catch((error: Error) => (problem = ` (${error.message})`))
    await Promise.race([ended, next])
  }
}

function describeTop({ activity: { callers, known, mostKnown } }: Overview): string {
  const rows = callers.map(({ caller, route, limits, most, refusedNow, ...rates }) => {
    const until = refusedNow && `${refusedNow.until ?? 'blocked'} by ${refusedNow.limit}`
    const refusals = limits.flatMap(({ name, refused }) => (refused ? `${refused} by ${name}` : []))
    const perSecond = [rates.callsPerSecond.toFixed(1), rates.refusedPerSecond.toFixed(1)]
    const limit = [most?.name, most?.used, most?.remaining]
    return [cell(caller), until, ...perSecond, ...limit, formatList(refusals), route]
  })
  const head = ['CALLER', 'REFUSED UNTIL', 'CALLS/S', 'REFUSED/S', 'LIMIT', 'USED', 'REMAINING']
  const table = formatRows([...head, 'REFUSED LAST MINUTE', 'ROUTE'], rows)
  if (callers.length === known) return table || 'There were no calls in the last minute.'
  return `${table}\n${callers.length} of ${known < mostKnown ? known : `${known} or more`}`
}
