import { UNITS_BYTES, UNITS_MS } from '../config/sections/values.ts'

/** Milliseconds as the configuration writes them, such as `90s`. */
export function formatDuration(ms: number): string {
  return inUnits(ms, UNITS_MS)
}

/** Bytes as the configuration writes them, such as `16kB`. */
export function formatSize(bytes: number): string {
  return inUnits(bytes, UNITS_BYTES)
}

/** In the largest unit that leaves a whole number. */
function inUnits(value: number, units: Readonly<Record<string, number>>): string {
  const fits = ([, one]: [string, number], i: number): boolean =>
    i === 0 || (value >= one && value % one === 0)
  const [name, one] = Object.entries(units).findLast(fits)!
  return `${value / one}${name}`
}

/** A number and its noun, such as `2 calls`. */
export function pluralize(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}

/** Words with commas between; a dash for an empty list. */
export function formatList(words: readonly string[]): string {
  return words.join(', ') || '-'
}

/** Columns as wide as their widest cell, two spaces apart. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, i) => rows.reduce((widest, row) => Math.max(widest, row[i]!.length), 0))
  const lineOf = (row: readonly string[]) => row.map((cell, i) => cell.padEnd(widths[i]!)).join('  ')
  return rows.map((row) => lineOf(row).trimEnd()).join('\n')
}

/** A table under its head; the empty text without rows. */
export function formatRows(head: readonly string[], body: readonly (readonly string[])[]): string {
  return body.length > 0 ? formatTable([head, ...body]) : ''
}

/** Paragraphs with an empty line between; leaves empty ones out. */
export function formatParagraphs(paragraphs: readonly string[]): string {
  return paragraphs.filter(Boolean).join('\n\n')
}
