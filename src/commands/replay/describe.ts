import { escaped } from '../../observe/pretty.ts'
import { pluralize, formatList, formatParagraphs, formatRows } from '../format.ts'
import type { Report } from './report.ts'

const MAX_CELL_CHARS = 64

/** Formats a report: the clients, or the client that was asked for, the limits, and the number of replayed lines. */
export function describeReport(report: Report, client = ''): string {
  const { totals, more, lines } = report
  const nothing =
    lines.replayed > 0
      ? `None of the replayed calls is of the client "${cell(client)}".`
      : 'No call of these logs reaches a limit of this configuration. Give access logs written with "log.format: json".'
  return formatParagraphs([
    describeClients(report),
    more > 0 ? `and ${pluralize(more, 'more client')}; --top lists them` : '',
    totals.calls > 0 ? describeTotals(report) : nothing,
    describeLines(report),
    warningsOf(report)
      .map((warning) => `warning: ${warning}`)
      .join('\n'),
  ])
}

function describeClients({ clients, limits }: Report): string {
  const hasNames = clients.some(({ name }) => name !== undefined)
  const hasShadow = limits.some(({ shadow }) => shadow)
  const isShown = (column: string): boolean =>
    (hasNames || column !== 'NAME') && (hasShadow || column !== 'SHADOW')
  const head = ['CLIENT', 'NAME', 'CALLS', 'ADMITTED', 'REFUSED', 'BY', 'SHADOW', 'BUSIEST MINUTE']
  const rows = clients.map(({ client, name, refused, recorded, ...counts }) => [
    cell(client ?? '-'),
    cell(name ?? '-'),
    String(counts.calls),
    String(counts.admitted),
    recorded.refused === refused ? String(refused) : `${recorded.refused} -> ${refused}`,
    byLimit(counts.refusedBy),
    byLimit(counts.shadowOver),
    `${counts.busiestMinute.calls} from ${counts.busiestMinute.from}`,
  ])
  return formatRows(
    head.filter(isShown),
    rows.map((row) => row.filter((_, i) => isShown(head[i]!))),
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

function describeLines({ lines }: Report): string {
  const all = Object.values(lines).reduce((sum, count) => sum + count, 0)
  const parts = [
    [lines.replayed, 'replayed'],
    [lines.unlimited, 'of routes without limits'],
    [lines.unmatched, 'of no route'],
    [lines.refusedBefore, 'refused before any limit'],
    [lines.other, 'not of an access log'],
  ] as const
  const counted = parts.flatMap(([count, what]) => (count > 0 ? `${count} ${what}` : []))
  return `${pluralize(all, 'line')}${counted.length > 0 ? `: ${counted.join(', ')}` : ''}.`
}

function warningsOf({ limits, lines, late, omitted }: Report): readonly string[] {
  const seconds = (late.byMs / 1000).toFixed(1)
  return [
    ...limits.flatMap(({ name, unlogged }) =>
      unlogged === undefined
        ? []
        : `limits.${name}: is left out, since the access log does not name ${unlogged}`,
    ),
    omitted > 0 &&
      `${pluralize(omitted, 'refusal')} without a line of their own, by "log.refusals: sampled": counted at the time of the line that counts them`,
    lines.lacking > 0 &&
      `${pluralize(lines.lacking, 'call')} left out, because their lines lack the client, the address or the whole path`,
    lines.overlong > 0 && `${pluralize(lines.overlong, 'line')} skipped: too long for an access log`,
    late.calls > 0 &&
      `${pluralize(late.calls, 'call')} logged too late to be sorted, by up to ${seconds} seconds: counted as decided that much later; give the log of each instance as a file of its own`,
  ].filter((warning) => warning !== false)
}

/** Escapes and truncates text that callers choose: it must not move the cursor or widen a column without bound. */
function cell(text: string): string {
  const plain = escaped(text)
  return plain.length > MAX_CELL_CHARS ? `${plain.slice(0, MAX_CELL_CHARS - 1)}…` : plain
}

function byLimit(counts: Readonly<Record<string, number>>): string {
  return formatList(Object.entries(counts).map(([name, count]) => `${name} ${count}`))
}
