import { type CalendarName, UNITS_MS } from '../../src/policy/calendar.ts'
import type { Action, History, LimitName, OwnLimit, Rule } from './history.ts'
import { createRandom, type Random } from './random.ts'
import { START_MS } from './time.ts'

/** Faults of each kind: after some Redis has its data, on the same clock. */
const FAULTS = [
  'slow',
  'hang',
  'cut',
  'stall',
  'full',
  'readonly',
  'flush',
  'suspend',
  'failover',
  'lose',
] as const
const ALL = [...FAULTS, 'restart', 'clock', 'replace'] as const

/** Histories in which every kind of limit meets every fault, each with its faults. */
export const WIDE_PROFILES = {
  /** Limits of all kinds and of 0, 1 and 20 calls, real calendars, and every fault. */
  kinds: ALL,
  /** Calendar periods, accesses, and calls that are settled to nothing; Redis keeps its data and its clock. */
  kept: FAULTS,
  /** Windows of a minute, and silences of half a minute, at one gateway after the other. */
  long: ['hang', 'cut', 'slow', 'failover', 'lose'],
  /** Limits of more than 1000 calls, whose calls share slots. */
  large: ['hang', 'cut', 'stall', 'slow', 'lose'],
  /** Own limits of clients, overrides that end, shadow limits, and outages that admit or refuse everything. */
  ruled: [...FAULTS, 'change', 'change'],
  /** Callers whose calls take several points. */
  points: [...ALL, 'change', 'lose'],
  /** A limit that bounds the counter of another by a lower number. */
  shares: [...FAULTS, 'change'],
  /** Limits of calls at once, whose leases last some seconds, and every fault. */
  atOnce: [...ALL, 'change', 'suspend', 'suspend', 'replace', 'replace', 'hang', 'hang'],
} as const
export type WideProfile = keyof typeof WIDE_PROFILES
export const isWide = (profile: string): profile is WideProfile => Object.hasOwn(WIDE_PROFILES, profile)

const MINUTE_MS = 60_000
const CLIENTS = ['c1', 'c2', 'c3'] as const
const NAMES = ['requests', 'sync'] as const

/** Real calendars, each with an instant at which one of its periods ends. The clocks of four change then, or within the hour. */
const CALENDARS: readonly (CalendarName & { readonly boundary: string })[] = [
  { unit: 'minute', timezone: 'UTC', boundary: '2025-06-15T16:00:00Z' },
  { unit: 'hour', timezone: 'UTC', boundary: '2025-06-15T16:00:00Z' },
  { unit: 'hour', timezone: 'Australia/Sydney', boundary: '2026-04-04T16:00:00Z' },
  { unit: 'hour', timezone: 'Australia/Lord_Howe', boundary: '2026-04-04T15:00:00Z' },
  { unit: 'hour', timezone: 'Australia/Lord_Howe', boundary: '2026-10-03T15:30:00Z' },
  { unit: 'day', timezone: 'Africa/Cairo', boundary: '2026-10-29T21:00:00Z' },
  // Saturday ends an hour early, at 24:00, where Sunday begins with 1:00.
  { unit: 'week', timezone: 'America/Santiago', firstDay: 'sunday', boundary: '2026-09-06T04:00:00Z' },
  { unit: 'week', timezone: 'Asia/Kathmandu', firstDay: 'monday', boundary: '2026-03-01T18:15:00Z' },
  { unit: 'month', timezone: 'America/Sao_Paulo', boundary: '2028-03-01T03:00:00Z' },
  { unit: 'quarter', timezone: 'Australia/Sydney', boundary: '2026-09-30T14:00:00Z' },
  { unit: 'year', timezone: 'Pacific/Kiritimati', boundary: '2028-12-31T10:00:00Z' },
]

/** Creates the history of a seed. */
export function wideHistory(profile: WideProfile, seed: number): History {
  const random = createRandom(seed * 5 + Object.keys(WIDE_PROFILES).indexOf(profile))
  const gateways = random.pick([1, 1, 2, 3])
  const ms = profile === 'long' ? random.pick([90_000, 150_000]) : random.pick([20_000, 40_000])
  const calendar =
    profile !== 'long' && profile !== 'large' && random.chance(0.3) ? random.pick(CALENDARS) : undefined
  const rule = (name: LimitName): Rule => ruleOf(random, profile, name, calendar)
  const requests = rule('requests')
  const limits = { requests, sync: profile === 'shares' ? shareOf(random, requests) : rule('sync') }
  const drafts: object[] = []
  // Calls at once contend only as long as they are in progress.
  const clients = profile === 'atOnce' ? CLIENTS.slice(0, 2) : CLIENTS
  const longestMs = Math.min(profile === 'atOnce' ? 10_000 : 5000, ms / 4)
  for (let i = random.integer(2, profile === 'large' ? 3 : 6); i > 0; i--) {
    const [early, late] = [random.between(0, 3000), random.between(0, ms)]
    const manner = random.pick(['hammer', 'wait', profile === 'kept' ? 'crowd' : 'wait', 'crowd'] as const)
    drafts.push({
      ...{ kind: 'caller', client: random.pick(clients), manner, withProof: random.chance(0.2) },
      atMs: random.chance(0.6) ? early : late,
      ms: manner === 'wait' ? ms : random.between(500, longestMs),
      gateway: random.chance(0.5) ? random.integer(0, gateways - 1) : 'any',
      ...(profile === 'points' && { cost: random.pick([1, 1, 2, 3, 5, 8]) }),
      ...(profile === 'shares' && random.chance(0.3) && { cost: random.pick([1, 2, 3]) }),
    })
  }
  let last: Fault | undefined
  for (let i = random.integer(0, profile === 'atOnce' ? 6 : 5); i > 0; i--) {
    last = faultOf(random, profile, gateways, limits, ms, last)
    drafts.push(last)
    // Clients call again as soon as a fault is over.
    if (profile === 'atOnce' && random.chance(0.5))
      drafts.push({
        ...{ kind: 'caller', client: random.pick(clients), manner: 'crowd', withProof: false, ms: 500 },
        atMs: last.atMs + last.ms + random.between(0, 500),
        gateway: random.integer(0, gateways - 1),
      })
  }
  if (profile === 'long' && random.chance(0.5)) drafts.push(...rollingOutage(random, gateways, ms))
  const actions = drafts.map((draft, number) => ({ ...draft, number }) as Action)
  return {
    ...{ seed, gateways, ms, limits, actions: actions.toSorted((a, b) => a.atMs - b.atMs) },
    ...{ isCluster: random.chance(0.25), aheadMs: random.pick([0, 333]) },
    // A crowd of a large limit would take longer than the timeout.
    ...(random.chance(0.3) && profile !== 'large' && { scriptUs: 1 }),
    ...(calendar && {
      shiftMs: Date.parse(calendar.boundary) - START_MS - Math.floor(random.between(0, ms)),
    }),
    // An upstream fails when Redis does, as if the network did.
    failsAtMs: actions
      .filter(({ kind }) => kind !== 'caller')
      .map(({ atMs }) => atMs + random.between(-50, 400)),
    ...(profile === 'ruled' && { own: ownLimits(random, limits) }),
    ...(profile === 'shares' && random.chance(0.3) && { own: [ownShare(random, limits)] }),
  }
}

function ruleOf(
  random: Random,
  profile: WideProfile,
  name: LimitName,
  calendar: (typeof CALENDARS)[number] | undefined,
): Rule {
  // After a fault has passed, calls of a long window still count.
  const isKept = profile === 'kept'
  const limit = random.pick(isKept ? [2, 5, 10, 20] : [0, 1, 1, 2, 3, 5, 10, 20, 20])
  const windowMs = random.pick(isKept ? [5000, 10_000, 20_000] : [1000, 2000, 5000, 10_000])
  if (profile === 'large')
    return name === 'requests'
      ? { limit: random.integer(1001, 3000), windowMs: random.pick([2000, 5000, 20_000]) }
      : { limit, windowMs }
  if (profile === 'atOnce' && (name === 'sync' || random.chance(0.25)))
    return {
      ...{
        kind: 'atOnce',
        limit: random.pick([1, 1, 2, 3, 5, 10]),
        windowMs: random.pick([2000, 3000, 5000]),
      },
      ...(name === 'sync' && random.chance(0.15) && { shadow: true }),
    }
  // How many of these four to choose from: access, success, calendar, and then sliding windows.
  const kinds = { kinds: 4, kept: 3, long: 8, ruled: 8, points: 8, shares: 6, atOnce: 8 }[profile]
  const any = (['access', 'success', 'calendar'] as const)[random.integer(0, kinds - 1)]
  // The judge counts accesses, and not their points.
  const hasPoints = profile === 'points' || profile === 'shares'
  const kind = hasPoints && any === 'access' ? undefined : any
  const isCounted = name === 'requests' || kind !== 'success'
  const base = {
    ...{ limit, windowMs: profile === 'long' && random.chance(0.8) ? MINUTE_MS : windowMs },
    ...(kind !== undefined && { kind: isCounted ? kind : 'calendar' }),
    ...(profile === 'ruled' && random.chance(0.6) && { onOutage: random.pick(['allow', 'deny'] as const) }),
    ...(profile === 'ruled' && name === 'sync' && random.chance(0.3) && { shadow: true }),
  }
  if (calendar === undefined || kind === undefined || kind === 'access') return base
  return { ...base, calendar, windowMs: UNITS_MS[calendar.unit] }
}

/** Returns a share of a limit, live or as a shadow. */
const shareOf = (random: Random, rule: Rule): Rule => ({
  ...rule,
  ...{ counts: 'requests', limit: random.integer(0, rule.limit), shadow: random.chance(0.2) },
})

const ownShare = (random: Random, { requests }: History['limits']): OwnLimit => ({
  ...{ client: random.pick(CLIENTS), name: 'sync', limit: random.integer(0, requests.limit) },
})

type Fault = Pick<Action, 'atMs' | 'ms'>

function faultOf(
  random: Random,
  profile: WideProfile,
  gateways: number,
  limits: History['limits'],
  endMs: number,
  last: Fault | undefined,
): Fault {
  const kind = random.pick<string>(WIDE_PROFILES[profile])
  // Each gateway knows the number of gateways within two seconds of their start.
  const freshMs = random.between(gateways > 1 ? 2500 : 0, endMs)
  // As often as not, the next begins when a gateway recovers from the last.
  const atMs =
    last !== undefined && random.chance(0.4) ? last.atMs + last.ms + random.between(-100, 600) : freshMs
  if (kind === 'change') {
    const name = profile === 'shares' ? 'sync' : random.pick(NAMES)
    const { windowMs, kind } = limits[name]
    const by =
      kind === undefined || kind === 'atOnce'
        ? random.pick(['file', 'override', 'override'] as const)
        : 'override'
    const ms = by === 'override' && random.chance(0.7) ? random.between(500, 8000) : 0
    const most = profile === 'shares' ? limits.requests.limit : Infinity
    const rule = { ...limits[name], limit: Math.min(most, random.pick([0, 1, 2, 5, 10, 20])), windowMs }
    return Object.assign({ atMs, ms }, { kind: 'change', name, by, rule })
  }
  const longest = profile === 'long' && random.chance(0.5) ? 30_000 : 6000
  const losesData = (profile === 'kinds' || profile === 'atOnce') && random.chance(0.3)
  const ms = random.chance(0.5) ? random.between(20, 300) : random.between(200, longest)
  return {
    ...{ kind, gateway: random.integer(0, gateways - 1), half: random.integer(0, 1) },
    ...{
      delayMs: random.between(20, 250),
      losesRequests: random.chance(0.5),
      isGraceful: random.chance(0.5),
      ...(profile === 'atOnce' && kind === 'suspend' && { isLong: true }),
    },
    ...{ keepsData: !losesData, lagMs: losesData ? random.between(0, 3000) : 0 },
    ...{ byMs: random.between(-15_000, 15_000), atMs, ms },
  }
}

/** Returns silences that begin at one gateway after the other, and end together. */
function rollingOutage(random: Random, gateways: number, endMs: number): readonly object[] {
  const fromMs = random.between(2500, endMs / 3)
  const apartMs = random.between(8000, 14_000)
  const untilMs = fromMs + gateways * apartMs
  return Array.from({ length: gateways }, (_, gateway) => {
    const atMs = fromMs + gateway * apartMs
    return { kind: 'hang', gateway, atMs, ms: untilMs - atMs }
  })
}

function ownLimits(random: Random, limits: History['limits']): readonly OwnLimit[] {
  return NAMES.filter(() => random.chance(0.5)).map((name) => {
    const { kind, windowMs } = limits[name]
    const hasWindow = kind === undefined && random.chance(0.5)
    return {
      ...{ client: random.pick(CLIENTS), name, limit: random.pick([0, 1, 4, 12]) },
      ...(hasWindow && { windowMs: windowMs * 2 }),
    }
  })
}
