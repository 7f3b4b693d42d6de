import { expect, it } from 'vitest'
import type { Exchange } from '../../../src/gateway/exchange.ts'
import { activityOf, mergeActivity } from '../../../src/admin/overview/activity.ts'
import { createActivity } from '../../../src/admin/overview/callers.ts'
import { parseCaller } from '../../../src/policy/counted-caller.ts'
import { NO_FACTS } from '../../../src/policy/facts.ts'
import { compileCallers } from '../../../src/policy/name-callers.ts'

const MINUTE_MS = 60_000

interface Limited {
  readonly name?: string
  readonly key?: string
  readonly remaining?: number
  readonly limit?: number
  readonly admitted?: boolean
  readonly shadow?: boolean
  readonly retryAfterMs?: number
  readonly windowMs?: number
}

/** Creates an activity with its own clock. */
function activityAt(startMs = 1_000_000) {
  let now = startMs
  const activity = createActivity()

  /** Counts a finished call of a client, decided by these limits `decidedAgoMs` earlier. */
  function call(
    client: string | undefined,
    limits: readonly Limited[] = [],
    decidedAgoMs = 0,
    status = 200,
    ip = '::1',
  ): void {
    const allowances = limits.map(
      ({
        name = 'requests',
        limit = 10,
        remaining = 9,
        admitted = true,
        shadow = false,
        retryAfterMs = 0,
        windowMs = MINUTE_MS,
      }) => ({
        ...{ name, limit, remaining, admitted, shadow, retryAfterMs },
        ...{ windowMs, resetAt: 0, resetAfterMs: 0 },
      }),
    )
    const refusedBy = allowances.find(({ admitted, shadow }) => !admitted && !shadow)
    const decision = {
      admitted: refusedBy === undefined,
      allowances,
      mode: 'store',
      cached: false,
      refusedBy,
    }
    const quotas = limits.map(({ name = 'requests', key = `sluice:{${client}}:${name}` }) => ({ name, key }))
    const per = [client === undefined ? 'ip' : 'client']
    const route = { match: '/', limits: quotas.map(({ name }) => ({ name, per })) }
    const caller = { ip, ...(client !== undefined && { client }) }
    const exchange = {
      ...{ caller, quotas, route, callers: compileCallers(route.limits)(quotas, caller, NO_FACTS) },
      ...{ endedAt: now, decidedAt: now - decidedAgoMs, decision: limits.length > 0 ? decision : undefined },
    }
    activity.count(exchange as unknown as Exchange, status)
  }
  return {
    activity,
    call,
    values: () => ({ ...activity.calls(now), ...activityOf(activity, now) }),
    pass: (ms: number) => void (now += ms),
  }
}

const total = (counts: readonly number[]) => counts.reduce((sum, count) => sum + count, 0)
const REFUSED = { admitted: false, remaining: 0, retryAfterMs: 5000 }

it('shows the calls and refusals of each past second, per client and in total', () => {
  const { call, values, pass } = activityAt()
  call('a', [{}])
  call('a', [REFUSED], 0, 429)
  call(undefined, [], 0, 503)
  expect(total(values().requests)).toBe(0)
  pass(1000)
  call('a', [{}])
  pass(1000)
  const { requests, refused, failed, callers: clients } = values()
  expect([requests, refused, failed].map((counts) => counts.slice(-3))).toEqual([
    [0, 3, 1],
    [0, 1, 0],
    [0, 1, 0],
  ])
  expect([requests, refused, failed].map(({ length }) => length)).toEqual([300, 300, 300])
  expect(clients).toHaveLength(1)
  expect(clients[0]).toMatchObject({ client: 'a' })
  expect([clients[0]!.calls, clients[0]!.refused].map((counts) => counts.slice(-3))).toEqual([
    [0, 2, 1],
    [0, 1, 0],
  ])
})

it('drops a client after a minute without a call, but not before its refusal has ended', () => {
  const { call, values, pass } = activityAt()
  call('a', [{}])
  call('b', [{ ...REFUSED, retryAfterMs: 2 * MINUTE_MS }])
  pass(60_999)
  expect(values().callers.map(({ client }) => client)).toEqual(['a', 'b'])
  pass(1)
  expect(values().callers.map(({ client }) => client)).toEqual(['b'])
  pass(MINUTE_MS)
  expect(values().callers).toEqual([])
})

it('keeps the busiest of any number of clients, and shows at most a hundred', () => {
  const { call, values, pass } = activityAt()
  for (let i = 0; i < 20_000; i++) {
    call(`once-${i}`, [{}])
    if (i % 40 === 0) call(`busy-${(i / 40) % 5}`, [{ remaining: 3 }])
    if (i % 1000 === 0) pass(1000)
  }
  pass(1000)
  const { callers: clients, requests } = values()
  expect(total(requests)).toBe(20_500)
  expect(clients).toHaveLength(100)
  const busy = clients.slice(0, 5).map(({ client, calls }) => [client, total(calls)] as const)
  expect(new Map(busy)).toEqual(new Map([0, 1, 2, 3, 4].map((i) => [`busy-${i}`, 100])))
})

it('shows a quiet caller immediately if other callers have been idle for a minute', () => {
  const { call, values, pass } = activityAt()
  for (let i = 0; i < 300; i++) for (let k = 0; k < 100; k++) call(`once-${i}`, [{}])
  pass(60_000)
  for (const client of ['a', 'b', 'c']) call(client, [{}])
  pass(1000)
  const { callers: clients, known } = values()
  expect([clients.map(({ client }) => client), known]).toEqual([['a', 'b', 'c'], 3])
})

it('shows a refused caller immediately, and while it is refused, among any number of others', () => {
  const { call, values, pass } = activityAt()
  for (let i = 0; i < 300; i++) for (let k = 0; k < 100; k++) call(`busy-${i}`, [{}])
  call('refused', [{ ...REFUSED, retryAfterMs: 50_000 }])
  for (let i = 0; i < 10_000; i++) call(`other-${i}`, [{}])
  pass(1000)
  const shown = () => values().callers.some(({ client }) => client === 'refused')
  expect([shown(), values().callers.length, values().known]).toEqual([true, 100, 256])
  pass(40_000)
  for (let i = 0; i < 10_000; i++) call(`more-${i}`, [{}])
  expect(shown()).toBe(true)
  pass(10_000)
  call('last', [{}])
  for (let i = 0; i < 256; i++) call(`more-${i}`, [{}])
  expect(shown()).toBe(false)
})

const DAY_MS = 86_400_000

it('shows callers of the last minute before those that are still refused but no longer call', () => {
  const { call, values, pass } = activityAt()
  for (let i = 0; i < 105; i++)
    for (let k = 0; k < 2; k++) call(`made-up-${i}`, [{ ...REFUSED, retryAfterMs: DAY_MS }])
  pass(61_000)
  for (let i = 0; i < 60; i++) call(`new-${i}`, [{}])
  pass(1000)
  const { callers, known } = values()
  expect([callers.length, known]).toEqual([100, 165])
  expect(callers.filter(({ client }) => client!.startsWith('new'))).toHaveLength(60)
})

it('shows the busiest callers next to any number of refused ones', () => {
  const { call, values, pass } = activityAt()
  for (let i = 0; i < 60; i++) for (let k = 0; k < 3; k++) call(`busy-${i}`, [{}])
  for (let i = 0; i < 105; i++) for (let k = 0; k < 2; k++) call(`made-up-${i}`, [REFUSED])
  pass(1000)
  const { callers } = values()
  expect(callers).toHaveLength(100)
  expect(callers.filter(({ client }) => client!.startsWith('busy'))).toHaveLength(50)
})

it.each([0, 60_000])(
  'keeps the calls of the busiest when the table is full of refused callers',
  (pauseMs) => {
    const { call, values, pass } = activityAt()
    for (let i = 0; i < 256; i++) call(`made-up-${i}`, [{ ...REFUSED, retryAfterMs: DAY_MS }])
    pass(pauseMs)
    // After a pause, those that no longer call leave room for more than half.
    const busy = pauseMs === 0 ? 128 : 250
    for (let i = 0; i < busy; i++) for (let k = 0; k < 5; k++) call(`busy-${i}`, [{}])
    pass(1000)
    for (let i = 0; i < 300; i++) call(`once-${i}`, [{}])
    for (let i = 0; i < busy; i++) call(`busy-${i}`, [{}])
    pass(1000)
    const { callers } = values()
    const calls = callers.slice(0, 50).map(({ calls }) => total(calls))
    expect(calls).toEqual(Array.from({ length: 50 }, () => 6))
  },
)

it('shows callers without a client by their address, IPv6 by its /64, if they are limited', () => {
  const { activity, call, values, pass } = activityAt()
  call(undefined, [], 0, 200, '192.0.2.7')
  call(undefined, [{ key: 'sluice:{192.0.2.8}:requests', remaining: 3 }], 0, 200, '192.0.2.8')
  for (const ip of ['2001:db8::1', '2001:db8::2']) call(undefined, [REFUSED], 0, 429, ip)
  call('192.0.2.8', [{}])
  pass(1000)
  const { callers: clients } = values()
  expect(clients).toMatchObject([
    { caller: 'ip:2001:db8:0:0::/64', refusedNow: { limit: 'requests' } },
    { caller: 'ip:192.0.2.8', limits: [{ remaining: 3, isAlone: true }] },
    { caller: 'client:192.0.2.8' },
  ])
  activity.forget(parseCaller('client:192.0.2.8'))
  expect(values().callers.map(({ limits }) => limits.length)).toEqual([1, 1, 0])
})

it('replaces formerly busy clients by those that are busy now, also after days', () => {
  const { call, values, pass } = activityAt()
  for (let i = 0; i < 300; i++) for (let k = 0; k < 100; k++) call(`old-${i}`)
  for (const days of [0, 0.01, 1, 30]) {
    pass(days * 86_400_000 + 20 * MINUTE_MS)
    for (let i = 0; i < 300; i++) call(`new-${i}`)
    for (let k = 0; k < 10; k++) call('busy')
    pass(1000)
    expect(values().callers[0]).toMatchObject({ client: 'busy' })
  }
})

it('shows the latest decision of each limit, also if its call ends first', () => {
  const { call, values, pass } = activityAt()
  pass(5000)
  call('a', [{ remaining: 4 }, { name: 'sync', key: 'sluice:{a}:sync:x', limit: 1, remaining: 0 }])
  call('a', [{ remaining: 5 }], 2000)
  pass(1000)
  expect(values().callers[0]!.limits).toMatchObject([
    { name: 'requests', remaining: 4, limit: 10, windowSeconds: 60, ageMs: 1000, isAlone: true },
    { name: 'sync', remaining: 0, limit: 1, isAlone: false },
  ])
  pass(MINUTE_MS)
  call('a')
  pass(1000)
  expect(values().callers[0]!.limits).toMatchObject([{ remaining: 10 }, { remaining: 1 }])
})

it('takes no call for one in progress a second after its decision, and shows no window of calls at once', () => {
  const { call, values, pass } = activityAt()
  call('a', [{ name: 'exports', limit: 3, remaining: 1, windowMs: 0 }])
  pass(1000)
  const [now] = values().callers[0]!.limits
  expect(now).toMatchObject({ name: 'exports', remaining: 1 })
  expect(now).not.toHaveProperty('windowSeconds')
  pass(1)
  expect(values().callers[0]!.limits).toMatchObject([{ remaining: 3 }])
  // Its call took ten seconds.
  call('a', [{ name: 'exports', limit: 3, remaining: 0, windowMs: 0 }], 10_000)
  expect(values().callers[0]!.limits).toMatchObject([{ remaining: 3 }])
})

it('shows the end of a refusal, until then or until a later call of the same key is admitted', () => {
  const { activity, call, values, pass } = activityAt()
  const refused = () => values().callers[0]?.refusedNow
  const x = { name: 'sync', key: 'sluice:{a}:sync:x' }
  pass(10_000)
  call('a', [{ ...x, ...REFUSED }], 1000)
  expect(refused()).toEqual({ limit: 'sync', until: '1970-01-01T00:00:00.000Z', forMs: 4000 })
  call('a', [{ ...x, key: 'sluice:{a}:sync:y' }])
  call('a', [x], 2000)
  expect(refused()).toMatchObject({ forMs: 4000 })
  call('a', [x])
  expect(refused()).toBeUndefined()
  pass(1000)
  expect(refused()).toBeNull()

  call('a', [REFUSED])
  expect(refused()).toMatchObject({ limit: 'requests', forMs: 5000 })
  pass(5000)
  expect(refused()).toBeNull()
  call('a', [REFUSED])
  activity.forget(parseCaller('b'))
  expect(refused()).toMatchObject({ limit: 'requests' })
  activity.forget(parseCaller('a'))
  expect(values().callers[0]).toMatchObject({ refusedNow: null, limits: [] })
})

it('shows no end for a refusal by a limit of 0', () => {
  const { call, values } = activityAt()
  call('a', [{ ...REFUSED, limit: 0 }])
  expect(values().callers[0]!.refusedNow).toMatchObject({ limit: 'requests', until: null })
})

it('counts the calls that a limit refused, and those that a shadow limit would have refused', () => {
  const { call, values, pass } = activityAt()
  const trial = { name: 'trial', shadow: true, admitted: false, remaining: 0 }
  call('a', [{}, trial])
  call('a', [{}, trial])
  // Refused by another limit, so it was not charged.
  call('a', [REFUSED, trial])
  pass(1000)
  expect(values().callers[0]!.limits).toMatchObject([
    { refused: 1, wouldRefuse: 0 },
    { name: 'trial', shadow: true, refused: 0, wouldRefuse: 2 },
  ])
  pass(MINUTE_MS)
  call('a', [{}])
  pass(1000)
  expect(values().callers[0]!.limits).toMatchObject([{}, { name: 'trial', wouldRefuse: 0 }])
})

it('merges the values of several processes', () => {
  const [one, other] = [activityAt(), activityAt(7_000_000)]
  one.call('a', [{ remaining: 7 }])
  one.pass(500)
  other.call('a', [{ remaining: 6, admitted: false, retryAfterMs: 9000 }])
  other.call('b', [{}])
  for (const { pass } of [one, other]) pass(1000)
  const merged = mergeActivity([one.values(), other.values(), { callers: [], known: 3 }])
  expect(merged.known).toBe(3)
  expect(merged.callers.map(({ client, calls }) => [client, total(calls)])).toEqual([
    ['a', 2],
    ['b', 1],
  ])
  expect(merged.callers[0]).toMatchObject({
    refusedNow: { forMs: 8000 },
    limits: [{ remaining: 6, ageMs: 1000 }],
  })
})
