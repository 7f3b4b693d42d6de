/** Remembers what `compute` returns for up to `max` texts of up to `maxLength`; bounded, since callers may make them up. When full, it forgets all. */
export function memoize<Value>(
  compute: (text: string) => Value,
  max: number,
  maxLength: number,
): (text: string) => Value {
  const known = new Map<string, Value>()
  return (text) => {
    const before = known.get(text)
    if (before !== undefined) return before
    const value = compute(text)
    if (text.length > maxLength) return value
    if (known.size === max) known.clear()
    known.set(text, value)
    return value
  }
}
