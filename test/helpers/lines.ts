/**
 * Returns a function that returns the complete lines of a growing text that are JSON. It parses each line once:
 * tests look for a line every few milliseconds, among thousands.
 */
export function linesOf(text: () => string): () => Record<string, unknown>[] {
  let parsedChars = 0
  const parsed: Record<string, unknown>[] = []
  return () => {
    const now = text()
    const end = now.lastIndexOf('\n') + 1
    for (const line of now.slice(parsedChars, end).split('\n'))
      if (line.startsWith('{') && line.endsWith('}')) parsed.push(JSON.parse(line))
    parsedChars = end
    return [...parsed]
  }
}
