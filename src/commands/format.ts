import { DURATION_UNITS } from '../config/sections/values.ts'
import { escaped } from '../observe/unsafe-characters.ts'
import { formatCalendar } from '../policy/calendar.ts'
import type { Limit } from '../policy/limit.ts'

/** Formats a window as the configuration writes it, such as `90s`; calls at once have none. */
export function formatWindow(windowMs: number | undefined, calendar?: Limit['calendar']): string {
  if (windowMs === undefined) return 'at once'
  if (calendar !== undefined) return formatCalendar(calendar)
  const fits = ([, ms]: [string, number]) => windowMs >= ms && windowMs % ms === 0
  const [unit, ms] = Object.entries(DURATION_UNITS).findLast(fits)!
  return `${windowMs / ms}${unit}`
}

export const pluralize = (number: number, noun: string): string =>
  `${number} ${noun}${number === 1 ? '' : 's'}`

export const formatList = (words: readonly string[]): string => words.join(', ') || '-'

const MAX_CELL_CHARS = 60

/** Escapes and truncates text that callers choose: it must not move the cursor or widen a column without bound. */
export function cell(text: string): string {
  const plain = escaped(text)
  return plain.length > MAX_CELL_CHARS ? `${plain.slice(0, MAX_CELL_CHARS - 1)}…` : plain
}

type Row = readonly (string | number | null | undefined)[]

/**
 * Pads each column to its widest cell, with two spaces between columns. Shows null and undefined as
 * `-`, no row for false, and line feeds as escapes: a cell must not look like a row.
 */
export function formatTable(table: readonly (Row | false)[]): string {
  const rows = table.flatMap((row) => (row ? [row.map((cell) => escaped(String(cell ?? '-')))] : []))
  const widths = rows[0]!.map((_, i) => rows.reduce((max, row) => Math.max(max, row[i]!.length), 0))
  const lineOf = (row: readonly string[]) => row.map((cell, i) => cell.padEnd(widths[i]!)).join('  ')
  return rows.map((row) => lineOf(row).trimEnd()).join('\n')
}

export const formatRows = (head: Row, body: readonly Row[]): string =>
  body.length > 0 ? formatTable([head, ...body]) : ''

export const formatParagraphs = (paragraphs: readonly string[]): string =>
  paragraphs.filter(Boolean).join('\n\n')
