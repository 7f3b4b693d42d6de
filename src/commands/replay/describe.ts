import { escaped } from '../../observe/pretty.ts'
import { rows } from '../table.ts'
import type { ClientReport, Counts, Report } from './report.ts'

const MOST_CELL_CHARS = 64

/** A report for people: the clients, or the one that was asked about, the limits, and how much of the logs it tells of. */
export function describeReport(report: Report, client?: string): string {
  const { clients, limits, totals, more } = report
  const hasNames = clients.some(({ name }) => name !== undefined)
  const hasShadow = limits.some(({ shadow }) => shadow)
  const cells = (client: string, name: string, counts: Counts, ...rest: readonly string[]) => [
    client,
    ...(hasNames ? [name] : []),
    String(counts.calls),
    String(counts.admitted),
    changed(counts.recorded.refused, counts.refused),
    ...rest,
  ]
  const table = rows(
    [
      'CLIENT',
      ...(hasNames ? ['NAME'] : []),
      'CALLS',
      'ADMITTED',
      'REFUSED',
      'BY',
      ...(hasShadow ? ['SHADOW'] : []),
      'BUSIEST MINUTE',
    ],
    clients.map((one) => {
      const shadow = hasShadow ? [byName(one.shadowOver)] : []
      return cells(nameOf(one), cell(one.name ?? '-'), one, byName(one.refusedBy), ...shadow, busiest(one))
    }),
  )
  return [
    table,
    more > 0 ? `and ${counted(more, 'more client')}; --top lists them` : '',
    totals.calls > 0 ? totalsOf(report) : nothingIn(report, client),
    linesOf(report),
    warningsOf(report).join('\n'),
  ]
    .filter(Boolean)
    .join('\n\n')
}

function totalsOf({ totals, limits, from, to }: Report): string {
  const { calls, clients, admitted, refused, recorded, newlyRefused, newlyAdmitted } = totals
  const undecided =
    recorded.undecided > 0 ? `, and answered ${recorded.undecided} with 503 or 500, undecided` : ''
  const told = limits
    .filter(({ refused, recordedRefused }) => refused > 0 || recordedRefused > 0)
    .map(({ name, shadow, refused, clients, recordedRefused }) => {
      const then = recordedRefused > 0 || !shadow ? `, and ${recordedRefused} in the record` : ''
      return `"${name}" refuses ${shadow ? 'in shadow ' : ''}${refused} of ${counted(clients, 'client')}${then}.`
    })
  return [
    `${counted(calls, 'call')} of ${counted(clients, 'client')} from ${from} to ${to}: ${admitted} admitted, ${refused} refused.`,
    `The recorded gateway refused ${recorded.refused}${undecided}. Refused now and admitted then: ${newlyRefused}; admitted now and refused then: ${newlyAdmitted}.`,
    ...told,
  ].join('\n')
}

function nothingIn({ lines }: Report, client = ''): string {
  if (lines.replayed > 0) return `None of the replayed calls is of the client "${cell(client)}".`
  const { refusedBefore, unmatched, unlimited, lacking } = lines
  if (refusedBefore + unmatched + unlimited + lacking > 0)
    return 'These limits are asked about none of the calls in these logs.'
  return 'These logs hold no line of an access log: the JSON that the gateway writes with "log.format: json".'
}

function linesOf({ lines }: Report): string {
  const all = Object.values(lines).reduce((sum, count) => sum + count, 0)
  const parts = [
    [lines.replayed, 'replayed'],
    [lines.unlimited, 'of routes without limits'],
    [lines.unmatched, 'of no route'],
    [lines.refusedBefore, 'refused before any limit'],
    [lines.other, 'no lines of an access log'],
  ] as const
  const told = parts.filter(([count]) => count > 0).map(([count, words]) => `${count} ${words}`)
  return `${counted(all, 'line')}${told.length > 0 ? `: ${told.join(', ')}` : ''}.`
}

function warningsOf({ limits, lines, late }: Report): readonly string[] {
  const warnings = limits
    .filter(({ replayed }) => !replayed)
    .map(
      ({ name }) => `limits.${name}: is counted per user, whom the access log does not name; it is left out`,
    )
  if (lines.lacking > 0) {
    warnings.push(
      `${counted(lines.lacking, 'call')} left out, whose lines lack what a limit is counted by: the client, the address, or the whole path`,
    )
  }
  if (lines.overlong > 0) {
    warnings.push(`${counted(lines.overlong, 'line')} passed over, too long for an access log`)
  }
  if (late.calls > 0) {
    const seconds = (late.byMs / 1000).toFixed(1)
    warnings.push(
      `${counted(late.calls, 'call')} logged too late to be put in order, by up to ${seconds} seconds: told as if decided that much later; give the log of each instance as a file of its own`,
    )
  }
  return warnings.map((warning) => `warning: ${warning}`)
}

function nameOf({ client }: ClientReport): string {
  return client === null ? '-' : cell(client)
}

/** Whoever made the log chose some words: none of them moves a cursor or makes a column as wide as it likes. */
function cell(text: string): string {
  const plain = escaped(text)
  return plain.length > MOST_CELL_CHARS ? `${plain.slice(0, MOST_CELL_CHARS - 1)}…` : plain
}

function busiest({ busiestMinute: { calls, from } }: ClientReport): string {
  return `${calls} from ${from}`
}

function byName(counts: Readonly<Record<string, number>>): string {
  return (
    Object.entries(counts)
      .map(([name, count]) => `${name} ${count}`)
      .join(', ') || '-'
  )
}

function changed(before: number, after: number): string {
  return before === after ? String(after) : `${before} -> ${after}`
}

/** A number and its noun, such as `2 calls`. */
function counted(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}
