/**
 * Returns the points that one of `gateways` may admit of those that are left: an equal part, or
 * more if that is less than `least` points or than one call. Negative if the points are.
 */
export const perGateway = (left: number, gateways: number, cost = 1, least = 0): number =>
  Math.min(left, Math.max(cost, least, Math.floor(left / gateways)))

/** Returns `store.part` of a limit, in whole points. */
export const leastPart = (limit: number, percent: number): number => Math.floor((limit * percent) / 100)

/** The gateways that share a limit, and how they divide it without the store. */
export interface Sharing {
  readonly gateways: number
  /** `store.instances`; undefined if the gateways are counted in the store. */
  readonly instances?: number | undefined
  /** `store.part`; default 0. */
  readonly percent?: number | undefined
}

/** The points that gateways may admit by themselves in a window, as docs/outages.md promises. */
export interface OutageBounds {
  readonly ofOne: number
  readonly ofAll: number
  /** Calls that all admit, if each loses the store more than two minutes after the previous one, and so counts one gateway less. */
  readonly oneByOne: number
  /** Calls that a gateway admits which starts without the store, and so counts no other gateway. */
  readonly ofStarted: number
}

/** Returns the bounds of a limit whose calls take at most `cost` points. */
export function boundsOf(
  limit: number,
  cost: number,
  { gateways, instances, percent = 0 }: Sharing,
): OutageBounds {
  const least = leastPart(limit, percent)
  const partAmong = (counted: number): number => perGateway(limit, instances ?? counted, cost, least)
  let oneByOne = 0
  for (let counted = 1; counted <= gateways; counted++) oneByOne += partAmong(counted)
  return {
    ofOne: partAmong(gateways),
    ofAll: gateways * partAmong(gateways),
    oneByOne,
    ofStarted: partAmong(1),
  }
}
