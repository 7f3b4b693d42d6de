/** Columns as wide as their widest cell, two spaces apart. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)))
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
