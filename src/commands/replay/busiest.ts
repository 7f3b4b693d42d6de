import { sweeper } from '../../limit/memory/store.ts'

/** The most calls within one minute, wherever it starts. */
export interface Busiest {
  calls: number
  /** When the first of them came; epoch milliseconds. */
  fromMs: number
}

/** Told of each call of each client, in order of time; keeps what it finds in the `Busiest` that it is given. */
export type NoteCall = (client: string | undefined, nowMs: number, busiest: Busiest) => void

/** The calls of a client's last minute: from `first` on, in order. */
interface Recent {
  readonly times: number[]
  first: number
  newest: number
}

export const MINUTE_MS = 60_000
const SWEPT_WITH_CALL = 2
const FORGOTTEN_AT_ONCE = 1024

/** Finds the busiest minute of each client exactly; of clients that were idle for a minute it holds nothing. */
export function createBusiest(): NoteCall {
  const recents = new Map<string | undefined, Recent>()
  const sweep = sweeper(recents, ({ newest }) => newest + MINUTE_MS)

  return (client, nowMs, busiest) => {
    sweep(SWEPT_WITH_CALL, nowMs)
    let recent = recents.get(client)
    if (recent === undefined) recents.set(client, (recent = { times: [nowMs], first: 0, newest: nowMs }))
    else add(recent, nowMs)
    const { times, first } = recent
    const calls = times.length - first
    if (calls > busiest.calls) {
      busiest.calls = calls
      busiest.fromMs = times[first]!
    }
  }
}

function add(recent: Recent, nowMs: number): void {
  const { times } = recent
  while (recent.first < times.length && times[recent.first]! <= nowMs - MINUTE_MS) recent.first++
  if (recent.first >= FORGOTTEN_AT_ONCE && recent.first * 2 >= times.length) {
    times.splice(0, recent.first)
    recent.first = 0
  }
  times.push(nowMs)
  recent.newest = nowMs
}
