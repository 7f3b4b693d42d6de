/**
 * Caches the results of `compute` for up to `max` texts of at most `maxLength`, which callers may
 * choose. Drops all of them when full.
 */
export function memoize<Value>(compute: (text: string) => Value, max: number, maxLength: number) {
  const results = new Map<string, Value>()
  return (text: string): Value => {
    const cached = results.get(text)
    if (cached !== undefined) return cached
    const value = compute(text)
    if (text.length > maxLength) return value
    if (results.size === max) results.clear()
    results.set(text, value)
    return value
  }
}
