import type { CalendarName } from '../../src/policy/calendar.ts'
import type { OutageMode } from '../../src/limit/quota.ts'
import { createRandom, type Random } from './random.ts'
import { settledHistory } from './settled-history.ts'
import { isWide, wideHistory, type WideProfile, WIDE_PROFILES } from './wide-history.ts'

/** A limit in force from an instant on. */
export interface Rule {
  readonly limit: number
  readonly windowMs: number
  /**
   * The window is a calendar period, in which successes are counted or all calls; or the limit counts accesses; or calls in progress,
   * whose leases last a window.
   */
  readonly kind?: 'calendar' | 'success' | 'access' | 'atOnce'
  /** A real calendar, in place of one whose periods all last the window. */
  readonly calendar?: CalendarName
  /** Default `local`. */
  readonly onOutage?: OutageMode
  readonly shadow?: boolean
  /** The limit has no counter of its own, but bounds that of this one. */
  readonly counts?: LimitName
}

/** An event of a history; its random choices are derived from its number, so that the rest repeats when others are removed. */
export type Action = { readonly number: number; readonly atMs: number; readonly ms: number } & (
  | {
      readonly kind: 'caller'
      readonly client: string
      /** A caller of one gateway, or of any. */
      readonly gateway: number | 'any'
      readonly manner: 'hammer' | 'wait' | 'crowd'
      readonly withProof: boolean
      /** Points that each of its calls takes; default 1. */
      readonly cost?: number
    }
  /** Messages between a gateway and Redis take longer now and then, up to `delayMs` each way. */
  | { readonly kind: 'slow'; readonly gateway: number; readonly delayMs: number }
  /** Nothing passes between a gateway and Redis. */
  | { readonly kind: 'hang'; readonly gateway: number }
  /** The connections of a gateway break; requests under way arrive, or are lost. */
  | { readonly kind: 'cut'; readonly gateway: number; readonly losesRequests: boolean }
  /** The next answer about calls to a gateway within `ms` is lost, with its connection. */
  | { readonly kind: 'lose'; readonly gateway: number }
  | { readonly kind: 'stall' | 'full' | 'readonly' | 'flush'; readonly half: 0 | 1 }
  /** Redis is down for `ms`, and returns with its data or without. */
  | { readonly kind: 'restart'; readonly half: 0 | 1; readonly keepsData: boolean }
  /** A replica that is `lagMs` behind takes over after `ms`. */
  | { readonly kind: 'failover'; readonly half: 0 | 1; readonly lagMs: number }
  /** Redis's clock is set. */
  | { readonly kind: 'clock'; readonly half: 0 | 1; readonly byMs: number }
  /** The process of a gateway does not run: for `MAX_SUSPENDED_MS` at most, unless it is long. */
  | { readonly kind: 'suspend'; readonly gateway: number; readonly isLong?: boolean }
  /** A gateway ends, with or without its leave, and starts again after `ms`. */
  | { readonly kind: 'replace'; readonly gateway: number; readonly isGraceful: boolean }
  /** A limit changes: in the file, at an announced date, or by an override, which ends after `ms` if that is not 0. */
  | {
      readonly kind: 'change'
      readonly by: 'file' | 'date' | 'override'
      readonly name: LimitName
      readonly rule: Rule
    }
)

/** A client's own limit, which replaces the number of calls, and the window if it has one. */
export interface OwnLimit {
  readonly client: string
  readonly name: LimitName
  readonly limit: number
  readonly windowMs?: number
}

export type LimitName = 'requests' | 'sync'

export interface History {
  readonly seed: number
  readonly gateways: number
  readonly isCluster: boolean
  /** Milliseconds by which the clocks of Redis are ahead of those of the gateways. */
  readonly aheadMs: number
  readonly ms: number
  /** Milliseconds by which the history begins later than others, to be near a boundary of a calendar. */
  readonly shiftMs?: number
  /** Microseconds that Redis takes for each number of a script's arguments; default 0. */
  readonly scriptUs?: number
  /** Instants at which the upstream fails: all calls that count as successes and are under way are settled to nothing. */
  readonly failsAtMs?: readonly number[]
  /** Calls are settled when they end: to at most their reserve, or to any number. Those of accesses, and calls at once, are not. */
  readonly settles?: 'less' | 'any'
  /** Clients' own limits. */
  readonly own?: readonly OwnLimit[]
  readonly limits: Readonly<Record<LimitName, Rule>>
  readonly actions: readonly Action[]
}

/** The faults after which Redis has its data, on the same clock. */
const MOST = [
  'slow',
  'hang',
  'cut',
  'stall',
  'full',
  'readonly',
  'flush',
  'restart',
  'failover',
  'suspend',
  'change',
] as const

/** The faults of a kind of history. docs/outages.md has a row for each. */
export const PROFILES = {
  /** Redis keeps its data, and there is one gateway. */
  single: MOST,
  several: MOST,
  /** Redis loses data. */
  losing: ['restart', 'failover', 'hang', 'slow', 'cut'],
  /** The clock of Redis is set. */
  clocks: ['clock', 'hang', 'stall', 'cut'],
  /** Gateways start and end. */
  replaced: ['replace', 'hang', 'stall', 'slow'],
  /** Calendar periods, accesses, and calls that are settled to nothing. */
  regulated: MOST.filter((kind) => kind !== 'change'),
  ...WIDE_PROFILES,
} as const
export type Profile = keyof typeof PROFILES

/** Creates the history of a seed. */
export function createHistory(profile: Profile, seed: number): History {
  const history = isWide(profile) ? wideHistory(profile, seed) : plainHistory(profile, seed)
  return seed < FIRST_SETTLED ? history : settledHistory(profile, history)
}

/** From this seed on, the calls of all histories are settled. */
export const FIRST_SETTLED = 10_000_000

function plainHistory(profile: Exclude<Profile, WideProfile>, seed: number): History {
  const random = createRandom(seed)
  const gateways =
    profile === 'single' ? 1 : profile === 'several' ? random.integer(2, 4) : random.integer(1, 3)
  const limits: History['limits'] =
    profile === 'regulated'
      ? {
          requests: { ...ruleOf(random), kind: random.pick(['calendar', 'success'] as const) },
          sync: { ...ruleOf(random, random.integer(1, 4)), kind: 'access' },
        }
      : { requests: ruleOf(random), sync: { limit: 1, windowMs: random.pick([1000, 2000, 5000]) } }
  const ms = random.pick([20_000, 40_000, 60_000])
  const actions: Action[] = []
  const add = (draft: object): void => {
    // Each gateway knows the number of gateways within two seconds of their start.
    const last = actions.at(-1)
    // Faults come together as often as not.
    const isNext = last !== undefined && last.kind !== 'caller' && random.chance(0.4)
    const atMs = isNext ? last.atMs + random.between(0, 600) : random.between(gateways > 1 ? 2500 : 0, ms)
    actions.push({ ms: 0, atMs, ...draft, number: actions.length } as Action)
  }
  const clients = random.integer(1, 4)
  for (let i = random.integer(2, 8); i > 0; i--) {
    const manner = random.pick(['hammer', 'wait', 'wait', 'wait', 'crowd'] as const)
    const atMs = random.chance(0.6) ? random.between(0, 3000) : random.between(0, ms)
    const gateway = random.chance(0.5) ? random.integer(0, gateways - 1) : 'any'
    const client = `c${random.integer(1, clients)}`
    const length = manner === 'wait' ? ms : random.between(500, ms / (manner === 'hammer' ? 8 : 2))
    add({ kind: 'caller', atMs, ms: length, client, gateway, manner, withProof: random.chance(0.4) })
  }
  for (let i = random.integer(1, 7); i > 0; i--) {
    const kind = random.pick<string>(PROFILES[profile])
    const gateway = random.integer(0, gateways - 1)
    const half = random.integer(0, 1)
    const short = random.chance(0.5) ? random.between(20, 300) : random.between(200, 6000)
    const keeps = {
      keepsData: profile !== 'losing',
      lagMs: profile === 'losing' ? random.between(0, 3000) : 0,
    }
    if (kind === 'change') {
      const name = random.pick(['requests', 'sync'] as const)
      const rule = ruleOf(random, name === 'sync' ? 3 : undefined)
      const by = random.pick(['file', 'date', 'override'] as const)
      add({ kind, name, by, rule: by === 'file' ? rule : { ...rule, windowMs: limits[name].windowMs } })
    } else {
      add({
        ...{ kind, ms: short, gateway, half, delayMs: random.between(20, 250), ...keeps },
        ...{
          byMs: random.between(-15_000, 15_000),
          losesRequests: random.chance(0.5),
          isGraceful: random.chance(0.5),
        },
      })
    }
  }
  actions.sort((a, b) => a.atMs - b.atMs)
  const aheadMs = profile === 'regulated' ? 333 : 0
  return { seed, gateways, isCluster: random.chance(0.25), aheadMs, ms, limits, actions }
}

function ruleOf(random: Random, limit = random.pick([1, 2, 3, 5, 10, 20])): Rule {
  return { limit, windowMs: random.pick([500, 1000, 2000, 5000, 10_000]) }
}
