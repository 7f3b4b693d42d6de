import { escaped } from '../../observe/pretty.ts'
import { pluralize, formatList, formatParagraphs, formatRows } from '../format.ts'
import type { Report } from './report.ts'

const MOST_CELL_CHARS = 64

/** A report for people: the clients, or the one that was asked for, the limits, and how much of the logs was replayed. */
export function describeReport(report: Report, client = ''): string {
  const { totals, more } = report
  return formatParagraphs([
    describeClients(report),
    more > 0 ? `and ${pluralize(more, 'more client')}; --top lists them` : '',
    totals.calls > 0 ? describeTotals(report) : describeNothing(report, client),
    describeLines(report),
    warningsOf(report)
      .map((warning) => `warning: ${warning}`)
      .join('\n'),
  ])
}

function describeClients({ clients, limits }: Report): string {
  const hasNames = clients.some(({ name }) => name !== undefined)
  const hasShadow = limits.some(({ shadow }) => shadow)
  const shown = (name: string): boolean => (hasNames || name !== 'NAME') && (hasShadow || name !== 'SHADOW')
  const head = ['CLIENT', 'NAME', 'CALLS', 'ADMITTED', 'REFUSED', 'BY', 'SHADOW', 'BUSIEST MINUTE']
  const rows = clients.map(({ client, name, calls, admitted, refused, recorded, ...one }) => [
    cell(client ?? '-'),
    cell(name ?? '-'),
    String(calls),
    String(admitted),
    recorded.refused === refused ? String(refused) : `${recorded.refused} -> ${refused}`,
    byLimit(one.refusedBy),
    byLimit(one.shadowOver),
    `${one.busiestMinute.calls} from ${one.busiestMinute.from}`,
  ])
  return formatRows(
    head.filter(shown),
    rows.map((row) => row.filter((_, i) => shown(head[i]!))),
  )
}

function describeTotals({ totals, limits, from, to }: Report): string {
  const { calls, clients, admitted, refused, recorded, newlyRefused, newlyAdmitted } = totals
  const undecided =
    recorded.undecided > 0 ? `, and answered ${recorded.undecided} with 503 or 500, undecided` : ''
  return [
    `${pluralize(calls, 'call')} of ${pluralize(clients, 'client')} from ${from} to ${to}: ${admitted} admitted, ${refused} refused.`,
    `The recorded gateway refused ${recorded.refused}${undecided}. Refused now and admitted then: ${newlyRefused}; admitted now and refused then: ${newlyAdmitted}.`,
    ...limits
      .filter(({ refused, recordedRefused }) => refused > 0 || recordedRefused > 0)
      .map(({ name, shadow, refused, clients, recordedRefused }) => {
        const then = recordedRefused > 0 || !shadow ? `, and ${recordedRefused} in the record` : ''
        return `"${name}" refuses ${shadow ? 'in shadow ' : ''}${refused} of ${pluralize(clients, 'client')}${then}.`
      }),
  ].join('\n')
}

function describeNothing({ lines }: Report, client: string): string {
  if (lines.replayed > 0) return `None of the replayed calls is of the client "${cell(client)}".`
  return 'These limits are asked about no call of these logs. An access log is the JSON of "log.format: json".'
}

function describeLines({ lines }: Report): string {
  const all = Object.values(lines).reduce((sum, count) => sum + count, 0)
  const parts = [
    [lines.replayed, 'replayed'],
    [lines.unlimited, 'of routes without limits'],
    [lines.unmatched, 'of no route'],
    [lines.refusedBefore, 'refused before any limit'],
    [lines.other, 'no lines of an access log'],
  ] as const
  const some = parts.filter(([count]) => count > 0).map(([count, words]) => `${count} ${words}`)
  return `${pluralize(all, 'line')}${some.length > 0 ? `: ${some.join(', ')}` : ''}.`
}

function warningsOf({ limits, lines, late, omitted }: Report): readonly string[] {
  const seconds = (late.byMs / 1000).toFixed(1)
  return [
    ...limits.flatMap(({ name, replayed }) =>
      replayed ? [] : `limits.${name}: is left out, since the access log names no users`,
    ),
    omitted > 0 &&
      `${pluralize(omitted, 'refusal')} without a line of their own, by "log.refusals: sampled": counted as if decided with the one whose line counts them`,
    lines.lacking > 0 &&
      `${pluralize(lines.lacking, 'call')} left out, whose lines lack the client, the address or the whole path`,
    lines.overlong > 0 && `${pluralize(lines.overlong, 'line')} passed over, too long for an access log`,
    late.calls > 0 &&
      `${pluralize(late.calls, 'call')} logged too late to be put in order, by up to ${seconds} seconds: counted as if decided that much later; give the log of each instance as a file of its own`,
  ].filter((warning) => warning !== false)
}

/** Escaped and cut: callers choose the words of a log, which must not move a cursor or widen a column without end. */
function cell(text: string): string {
  const plain = escaped(text)
  return plain.length > MOST_CELL_CHARS ? `${plain.slice(0, MOST_CELL_CHARS - 1)}…` : plain
}

function byLimit(counts: Readonly<Record<string, number>>): string {
  return formatList(Object.entries(counts).map(([name, count]) => `${name} ${count}`))
}
