/** Passes calls on, but for those that come within so many milliseconds of the last one passed on. */
export function atMostEvery<Values extends readonly unknown[]>(
  everyMs: number,
  pass: (...values: Values) => void,
): (...values: Values) => void {
  let nextAt = 0
  return (...values) => {
    const now = performance.now()
    if (now < nextAt) return
    nextAt = now + everyMs
    pass(...values)
  }
}
