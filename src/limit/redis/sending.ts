import type { Window } from '../quota.ts'
import type { ServerClocks } from './server-clocks.ts'

/** A server's clock, and this gateway's, when a script is sent. */
export interface Sending {
  readonly clocks: ServerClocks
  readonly server: string
  /** Milliseconds of the server's clock, and of the local clock. */
  readonly nowMs: number
  readonly localMs: number
  /** The time of the server's clock after which the script does nothing, in microseconds; 0 if it is unknown. */
  readonly deadlineUs: number
}

/** A window as the scripts count it, in microseconds of the server's clock. */
export interface Span {
  /** The first instant of a calendar period, and that of the next; 0 and a later time if the window slides. */
  readonly startUs: number
  readonly endUs: number
  readonly lengthUs: number
  /** The instant of this gateway's clock, in milliseconds, after which its own calls are in the window. */
  readonly since: number
}

/** Returns the window of a script that is sent now. */
export function spanOf({ windowMs, calendar }: Window, { clocks, server, nowMs, localMs }: Sending): Span {
  if (calendar === undefined) {
    const lengthUs = windowMs * 1000
    return { startUs: 0, endUs: Number.MAX_SAFE_INTEGER, lengthUs, since: localMs - windowMs }
  }
  const { startMs, endMs } = calendar.periodAt(nowMs)
  const [startUs, endUs] = [startMs * 1000, endMs * 1000]
  // The earliest that it can be: a call too many is refused, not admitted.
  const since = clocks.localMs(server, startUs, 'earliest') ?? 0
  return { startUs, endUs, lengthUs: endUs - startUs, since }
}
