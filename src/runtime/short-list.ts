/** The empty list that `added` begins with. Never changed. */
export const NONE: never[] = []

/**
 * Adds a value to a list, which is `NONE` at first; returns the list. Most lists of a request, or of a
 * place among routes, have no value or one, for which an array that grows has room for 17.
 */
export function added<Value>(values: Value[], value: Value): Value[] {
  if (values.length === 0) return [value]
  values.push(value)
  return values
}
