/** Difference of two clocks from which on it is a fault, in milliseconds. */
const MAX_DIFFERENCE_MS = 2000

interface ClockEvents {
  readonly onWarning?: ((warning: string) => void) | undefined
  /** Called when the clock of a server is right again. */
  readonly onClockRight?: ((server: string) => void) | undefined
}

/** A time that the clock of a server showed between two instants of this machine's clock, in epoch milliseconds. */
interface Shown {
  readonly sentAt: number
  readonly shownAt: number
  readonly readAt: number
}

/**
 * Creates the function that compares the clocks of servers with this machine's. It warns once of a
 * difference: calendar periods and the instants in responses are those of Redis.
 */
export function createClockCheck({ onWarning, onClockRight }: ClockEvents) {
  /** The servers whose clocks differ. */
  const wrong = new Set<string>()

  return (server: string, { sentAt, shownAt, readAt }: Shown): void => {
    const aheadMs = Math.max(0, shownAt - readAt)
    const behindMs = Math.max(0, sentAt - shownAt)
    const isWrong = aheadMs + behindMs > MAX_DIFFERENCE_MS
    if (isWrong === wrong.has(server)) return
    if (!isWrong) {
      wrong.delete(server)
      onClockRight?.(server)
      return
    }
    wrong.add(server)
    const seconds = Math.round((aheadMs + behindMs) / 1000)
    const which = server === 'redis' ? 'Redis' : server
    onWarning?.(
      `The clock of ${which} is ${seconds} s ${aheadMs > 0 ? 'ahead of' : 'behind'} that of this machine; ` +
        'correct the wrong one: calendar periods and X-RateLimit-Reset are by the clock of Redis.',
    )
  }
}
