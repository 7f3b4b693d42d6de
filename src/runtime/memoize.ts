/**
 * Caches the results of `compute` for up to `max` texts of at most `maxLength`, which callers may
 * choose. Drops all of them when full.
 */
export const memoize = <Value>(compute: (text: string) => Value, max: number, maxLength: number) =>
  memoizeTogether(max, maxLength)(compute)

/**
 * Returns the function that does so for several functions: `max` is the number of results of all of
 * them, which are dropped together.
 */
export function memoizeTogether(max: number, maxLength: number) {
  const filled = new Set<Map<string, unknown>>()
  let size = 0
  function dropAll(): void {
    for (const results of filled) results.clear()
    filled.clear()
    size = 0
  }
  return <Value>(compute: (text: string) => Value) => {
    const results = new Map<string, Value>()
    return (text: string): Value => {
      const cached = results.get(text)
      if (cached !== undefined) return cached
      const value = compute(text)
      if (text.length > maxLength) return value
      if (size === max) dropAll()
      filled.add(results)
      results.set(text, value)
      size++
      return value
    }
  }
}
