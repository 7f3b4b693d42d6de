import type { ListedOverride } from '../../limit/overrides.ts'
import type { ClientUsage } from '../../limit/usage.ts'
import { ask, findAdmin } from '../ask-admin.ts'
import { pluralize, formatDuration, formatParagraphs, formatTable } from '../format.ts'
import { type Args, idOf, type Io, print, UsageError, positionals } from '../io.ts'
import { setLimits } from './set.ts'
import { top } from './top.ts'

/** Asks a running gateway what its limits count, changes that, or lists the overrides. */
export async function run(args: Args, io: Io): Promise<void> {
  const [action] = positionals(args)
  const client = idOf(args, 'client')
  const admin = await findAdmin(args, io)
  if (action === 'top') return await top(admin, args, io)
  if (action === 'overrides') {
    print(io, args, await ask<Overrides>(admin, '/overrides'), describeOverrides)
    return
  }
  if (client === undefined) throw new UsageError('Which client? Give its id.')
  const path = `/limits/${encodeURIComponent(client)}`
  if (action === 'set') await setLimits(admin, client, args, io)
  else if (action === 'show') print(io, args, await ask<ClientUsage>(admin, path, SCAN), describeUsage)
  else {
    const freed = await ask<{ freed: number }>(admin, path, { ...SCAN, method: 'DELETE' })
    print(io, args, freed, () => `Freed ${pluralize(freed.freed, 'key')} of the client "${client}".`)
  }
}

/** To scan a large Redis takes the gateway some seconds. */
const SCAN = { timeoutMs: 60_000 }

interface Overrides {
  readonly overrides: readonly ListedOverride[]
}

function describeOverrides({ overrides }: Overrides): string {
  if (overrides.length === 0) return 'There are no overrides.'
  return formatTable([
    ['CLIENT', 'LIMIT', 'CALLS', 'UNTIL', 'SET', 'BY', 'NOTE'],
    ...overrides.map(({ client, name, limit, until, set, by, note, applies }) => [
      client,
      name,
      String(limit),
      applies ? (until ?? 'for good') : 'without effect: no such limit',
      set,
      by ?? '-',
      note ?? '-',
    ]),
  ])
}

function describeUsage({ client, limits, own, overrides, truncated }: ClientUsage): string {
  const set = [
    ...overrides.map(
      ({ name, limit, until, set, by, note, applies }) =>
        `An override${applies ? '' : ', without effect,'} gives the client "${name}" of ${limit} ${until === null ? 'for good' : `until ${until}`}, set at ${set}${by === null ? '' : ` by ${by}`}${note === null ? '.' : `: ${note}`}`,
    ),
    ...own.map(
      ({ name, limit, until }) =>
        `The file gives the client its own "${name}" of ${limit}${until === null ? '' : ` until ${until}`}.`,
    ),
  ].join('\n')
  if (limits.length === 0) return formatParagraphs([`Nothing is counted of the client "${client}".`, set])
  const table = formatTable([
    ['KEY', 'LIMIT', 'CALLS', 'USED', 'REMAINING', 'WINDOW', 'RESET', 'UNTIL', 'KIND'],
    ...limits.map(({ key, name, limit, used, remaining, windowSeconds, reset, until, override, shadow }) => [
      key,
      name,
      String(limit),
      String(used),
      String(remaining),
      formatDuration(windowSeconds * 1000),
      used > 0 || limit === 0 ? reset : '-',
      until ?? '-',
      `${shadow ? 'shadow' : 'live'}${override ? ', override' : ''}`,
    ]),
  ])
  const changes = limits.flatMap(({ name, changes }) =>
    changes.map(({ from, limit }) => `From ${from} on, "${name}" allows ${limit}.`),
  )
  const rest = truncated ? [`These are the first ${limits.length} keys; there are more.`] : []
  return formatParagraphs([table, [...new Set(changes), ...rest].join('\n'), set])
}
