/** Columns as wide as their widest cell, two spaces apart. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, i) => rows.reduce((widest, row) => Math.max(widest, row[i]!.length), 0))
  return rows
    .map((row) =>
      row
        .map((cell, i) => cell.padEnd(widths[i]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

/** A table under its head; nothing where it has no rows. */
export function rows(head: readonly string[], body: readonly (readonly string[])[]): string {
  return body.length > 0 ? table([head, ...body]) : ''
}

/** Words with commas between; a dash for none. */
export function several(words: readonly string[]): string {
  return words.join(', ') || '-'
}
