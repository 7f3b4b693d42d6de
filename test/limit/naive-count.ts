import type { Quota } from '../../src/limit/quota.ts'

/** The right answers of a store for one quota; ranges are [min, max]. Spans are microseconds. */
export interface Expected {
  readonly room: readonly boolean[]
  readonly remaining: readonly [number, number]
  readonly growsAfterUs: readonly [number, number]
}

/** A limit, or the access before it. */
type Counted = Pick<Quota, 'key' | 'limit' | 'windowMs' | 'calendar' | 'shadow' | 'cost' | 'isConcurrent'> & {
  readonly isAccess?: boolean
}

/** The instants of a key's calls, each as often as the call costs: those that a store must count, those that it may count, and the spans whose calls it may have joined. */
interface Log {
  readonly sure: readonly number[]
  readonly likely: readonly number[]
  readonly spansUs: ReadonlySet<number>
}

/**
 * The specification of a store: a naive log with one number for each point that an admitted call of a key takes, filtered for every decision. For
 * limits of up to 1000 calls there is one right answer. Above, a store may count a call for a thousandth of each of its windows too long:
 * the judge gets the store's answer, and returns the ranges that it must lie in.
 */
export class NaiveCount {
  readonly #logs = new Map<string, Log>()
  /** The calls in progress of each limit of calls at once. */
  readonly #inProgress = new Map<string, number>()

  /** Judges one decision; `rooms` are the store's answers if each quota has room. */
  decide(
    quotas: readonly Quota[],
    nowUs: number,
    charging: boolean,
    rooms: readonly boolean[],
  ): { readonly admitted: boolean; readonly verdicts: readonly Expected[] } {
    const counted = quotas.flatMap(({ access, ...quota }, i) => [
      ...(access === undefined
        ? []
        : [{ ...access, limit: 1, cost: 1, shadow: false, isConcurrent: false, isAccess: true, i }]),
      { ...quota, isAccess: false, i },
    ])
    /** True if the access before the next quota is under way. */
    let isUnderWay = false
    const views = counted.map((quota) => {
      const period = periodUs(quota, nowUs)
      const windowUs = period === undefined ? quota.windowMs * 1000 : period[1] - period[0]
      const spanUs = quota.limit > 1000 ? Math.ceil(windowUs / 1000) : 0
      const log = this.#logOf(quota, windowUs, nowUs, charging)
      const spansUs = new Set([...log.spansUs, spanUs])
      let now: Log =
        period === undefined
          ? inWindow(log, windowUs, spansUs, nowUs)
          : {
              sure: since(log.sure, period[0]),
              likely: since(log.likely, period[0]),
              spansUs: new Set<number>(),
            }
      const isFree = isUnderWay && now.sure.length > 0 && quota.limit > 0
      const { cost = 1 } = quota
      if (quota.isConcurrent)
        now = { sure: this.#calls(quota, nowUs), likely: this.#calls(quota, nowUs), spansUs }
      const likelyRooms = [now.sure, now.likely].map(({ length }) => isFree || length + cost <= quota.limit)
      const hasRoom = quota.isAccess ? now.sure.length === 0 : rooms[quota.i]!
      isUnderWay = quota.isAccess && !hasRoom
      return {
        quota,
        windowUs,
        period,
        now,
        room: [...new Set(likelyRooms)],
        hasRoom,
        wanted: hasRoom ? 1 : cost,
        pays: hasRoom && !isFree,
      }
    })
    const admitted = views.every(({ quota, hasRoom }) => hasRoom || quota.shadow || quota.isAccess)
    const verdicts = views.map(({ quota, windowUs, period, now, room, wanted, pays }, i) => {
      let log = now
      if (charging && admitted && (quota.isAccess ? views[i + 1]!.pays : pays)) {
        const at = Math.max(nowUs, now.sure.at(-1) ?? 0)
        const points = Array.from({ length: quota.cost ?? 1 }, () => at)
        log = { ...now, sure: [...now.sure, ...points], likely: [...now.likely, ...points] }
        if (quota.isConcurrent) this.#inProgress.set(quota.key, log.sure.length)
        else this.#logs.set(quota.key, log)
      }
      const { limit } = quota
      const remaining = [limit - log.likely.length, limit - log.sure.length].map((calls) =>
        Math.max(0, calls),
      )
      return {
        room,
        remaining: remaining as [number, number],
        growsAfterUs: quota.isConcurrent
          ? ([1_000_000, 1_000_000] as const)
          : period === undefined
            ? growsAfter(log, limit - wanted + 1, windowUs, nowUs)
            : ([period[1] - nowUs, period[1] - nowUs] as const),
      }
    })
    return { admitted, verdicts: verdicts.filter((_, i) => !counted[i]!.isAccess) }
  }

  /** Ends a call in the limits of calls at once that had room for it. */
  release(quotas: readonly Quota[]): void {
    for (const { key, isConcurrent } of quotas)
      if (isConcurrent) this.#inProgress.set(key, this.#inProgress.get(key)! - 1)
  }

  #calls({ key }: Counted, nowUs: number): readonly number[] {
    return Array.from({ length: this.#inProgress.get(key) ?? 0 }, () => nowUs)
  }

  /** Returns the log of a key; if the clock went back by more than a window, its calls are taken as made now. */
  #logOf({ key }: Counted, windowUs: number, nowUs: number, charging: boolean): Log {
    let log = this.#logs.get(key) ?? { sure: [], likely: [], spansUs: new Set() }
    if (log.sure.length > 0 && log.sure.at(-1)! - nowUs > windowUs) {
      log = { ...log, sure: log.sure.map(() => nowUs), likely: log.likely.map(() => nowUs) }
      if (charging) this.#logs.set(key, log)
    }
    return log
  }

  /** True if calls share slots, and a call's slot may be another: the clock was set back, or the window was changed. */
  isUnsure({ key, windowMs }: Quota, chargedUs: number): boolean {
    const log = this.#logs.get(key)
    const spansUs = [...(log?.spansUs ?? [])].filter((spanUs) => spanUs > 0)
    if (log === undefined || spansUs.length === 0) return false
    return !log.sure.includes(chargedUs) || spansUs.some((spanUs) => spanUs !== windowMs)
  }

  /** Gives the call of an instant more points, or fewer; it may have an instant that is a thousandth of the window later. */
  settle(quota: Quota, chargedUs: number, points: number): void {
    const log = this.#logs.get(quota.key)
    if (log === undefined) return
    const period = periodUs(quota, chargedUs)
    const lateUs = period === undefined ? quota.windowMs : period[1] - chargedUs - 1
    const settled = (instants: readonly number[]): readonly number[] => {
      const first = instants.findIndex((at) => at >= chargedUs)
      const at = instants[first]
      if (at === undefined || at > chargedUs + lateUs) return instants
      const same = instants.filter((other) => other === at).length
      const others = [instants.slice(0, first), instants.slice(first + same)] as const
      return [...others[0], ...Array.from({ length: Math.max(0, same + points) }, () => at), ...others[1]]
    }
    this.#logs.set(quota.key, { ...log, sure: settled(log.sure), likely: settled(log.likely) })
  }
}

const since = (instants: readonly number[], startUs: number) => instants.filter((at) => at >= startUs)

function periodUs(
  { calendar }: Counted,
  nowUs: number,
): readonly [startUs: number, endUs: number] | undefined {
  const period = calendar?.periodAt(Math.floor(nowUs / 1000))
  return period && [period.startMs * 1000, period.endMs * 1000]
}

const sumOf = (numbers: ReadonlySet<number>): number => [...numbers].reduce((sum, number) => sum + number, 0)

function inWindow({ sure, likely }: Log, windowUs: number, spansUs: ReadonlySet<number>, nowUs: number): Log {
  return {
    sure: sure.filter((at) => at > nowUs - windowUs),
    likely: likely.filter((at) => at > nowUs - windowUs - sumOf(spansUs)),
    spansUs,
  }
}

function growsAfter(
  { sure, likely, spansUs }: Log,
  limit: number,
  windowUs: number,
  nowUs: number,
): [number, number] {
  if (limit <= 0) return [windowUs, windowUs]
  const after = (log: readonly number[]) =>
    log.length === 0 ? 0 : log[Math.max(0, log.length - limit)]! + windowUs - nowUs
  const [sureUs, likelyUs] = [after(sure), after(likely)]
  return [
    Math.max(0, Math.min(sureUs, likelyUs)),
    likely.length === 0 ? 0 : Math.max(sureUs, likelyUs) + sumOf(spansUs),
  ]
}
