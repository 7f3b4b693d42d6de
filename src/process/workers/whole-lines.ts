/**
 * Passes text on up to the last end of a line, and keeps the rest until that ends: what several processes write at a time
 * must not meet within a line.
 */
export function wholeLines(write: (lines: string) => void): (text: string) => void {
  let begun = ''
  return (text) => {
    const end = text.lastIndexOf('\n') + 1
    if (end > 0) {
      write(begun + text.slice(0, end))
      begun = text.slice(end)
    } else begun += text
  }
}
