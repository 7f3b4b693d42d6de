/** How often it is looked whether the last question was answered. */
const LOOK_MS = 3000
/** So many looks in a row that find none make a worker one that hangs. */
const LOOKS = 10

/** For how long a worker is silent before it is taken to hang, in seconds. */
export const SILENT_SECONDS = (LOOK_MS * LOOKS) / 1000

/**
 * Asks again and again, and tells once when the same question stays unanswered; the function that it returns ends it.
 * Looks are counted, not time: while this process itself is stopped, nobody is silent.
 */
export function watchOver(ask: () => Promise<unknown>, onSilent: () => void, everyMs = LOOK_MS): () => void {
  let awaited = false
  let looks = 0
  const timer = setInterval(() => {
    if (awaited) {
      if (++looks < LOOKS) return
      clearInterval(timer)
      onSilent()
      return
    }
    awaited = true
    looks = 0
    const answered = (): void => void (awaited = false)
    ask().then(answered, answered)
  }, everyMs)
  return () => clearInterval(timer)
}
