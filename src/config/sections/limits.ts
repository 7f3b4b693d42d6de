import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { byName } from '../../runtime/grouping.ts'
import { type Limit, MIN_LEASE_MS } from '../../policy/limit.ts'
import { formsOf, wordOf } from '../../policy/words.ts'
import { HOP_BY_HOP } from '../../downstream/request-fields.ts'
import { issueAt, issueAtKey, mustBe, oneOf } from '../yaml/issue.ts'
import { calls, conditions, keyParts, together, value } from './limit-values.ts'
import { WINDOW, window, windowOrCalendar } from './limit-values.ts'
import { isSetByGateway } from '../../downstream/own-fields.ts'
import { headerFields } from './texts.ts'
import { atKey, bool, choice, crossField, exclusive, int, list, named } from './values.ts'
import { section, text, writtenInstant } from './values.ts'

const change = section(
  { announcedAt: writtenInstant, fromAt: writtenInstant, limit: calls },
  function* ({ announcedAt, fromAt }) {
    if (announcedAt > fromAt) yield issueAt(['announced'], 'is after "from"; announce a change before that')
  },
)

const changes = list(change, 0, 'a list of announced changes').superRefine(
  crossField(function* (changes) {
    for (const [i, { fromAt }] of changes.slice(1).entries())
      if (fromAt <= changes[i]!.fromAt)
        yield issueAt([i + 1, 'from'], 'must be later than that of the change before it; write them in order')
  }),
)

const body = z.union(
  [z.string(), z.record(z.string(), z.unknown()), z.array(z.unknown())],
  mustBe('a text; or a mapping or a list, sent as JSON'),
)

const refusal = section(
  {
    status: int(400, 599).prefault(429),
    headers: headerFields.default({}),
    body: body.optional(),
  },
  function* ({ headers, body }) {
    for (const name of Object.keys(headers)) {
      const lower = name.toLowerCase()
      const isOfBody = lower === 'content-type' && body === undefined
      if (isOfBody || isSetByGateway(lower) || HOP_BY_HOP.has(lower))
        yield issueAtKey(['headers', name], 'is set by the gateway itself; remove it')
    }
  },
).transform(({ status, headers, body }) => {
  if (body === undefined) return { status, headers }
  const isText = typeof body === 'string'
  const text = isText ? body : JSON.stringify(body)
  const contentType = isText ? 'text/plain; charset=utf-8' : 'application/json'
  const hasType = Object.keys(headers).some((name) => name.toLowerCase() === 'content-type')
  return { status, headers, body: text, ...(!hasType && { contentType }) }
})

/**
 * Settings of limits of calls at once; `compile` replaces the length of leases by the timeout of
 * each route.
 */
const AT_ONCE = { windowMs: MIN_LEASE_MS, isConcurrent: true }

const LACKABLE = oneOf(formsOf(({ mayLack }) => mayLack))

const limit = section(
  {
    per: keyParts,
    missing: choice(['refuse', 'skip']).optional(),
    when: conditions.exactOptional(),
    unless: conditions.exactOptional(),
    limit: value.optional(),
    window: windowOrCalendar.optional(),
    concurrent: int(1, 10_000).optional(),
    counts: text('the name of a limit').exactOptional(),
    together: together.exactOptional(),
    count: choice(['all', 'success']).exactOptional(),
    changes: changes.default([]),
    onOutage: choice(['local', 'allow', 'deny']).exactOptional(),
    refusal: refusal.exactOptional(),
    shadow: bool.prefault(false),
  },
  function* (settings) {
    const { per, missing, limit, window, counts, together, count, changes } = settings
    if (missing !== undefined && !per.some((part) => wordOf(part).mayLack))
      yield atKey('missing', `applies only if "per" has ${LACKABLE}; remove it`)
    if (settings.concurrent !== undefined) {
      yield* exclusive(settings, ['concurrent', 'limit', 'window', 'counts', 'together', 'count'])
      return
    }
    if (limit === undefined)
      yield issueAt(['limit'], 'is missing; write a whole number, 0 or more, or "concurrent"')
    if (window === undefined) yield issueAt(['window'], `is missing; write ${WINDOW}`)
    if (limit === undefined || window === undefined) return
    if ('claim' in limit && changes.length > 0)
      yield atKey('changes', 'cannot be combined with a limit by claim; remove one')
    const isSliding = !('calendar' in window)
    if (counts !== undefined) yield* exclusive(settings, ['counts', 'together', 'count', 'onOutage'])
    else if (typeof together === 'number' && isSliding && together > window.windowMs)
      yield issueAt(['together'], 'is longer than "window"; write at most the same')
    if (count === 'success' && together !== undefined)
      yield atKey('count', 'cannot be combined with "together", whose calls may have been free; remove one')
  },
).transform(({ limit, window, concurrent, count, missing, ...rest }): Omit<Limit, 'name'> => ({
  ...rest,
  ...(concurrent === undefined ? { ...limit!, ...window! } : { limit: concurrent, ...AT_ONCE }),
  ...(count === 'success' && { countsSuccess: true }),
  ...(missing === 'skip' && { skipsMissing: true }),
}))

/** True for two limits that count the same calls in the same windows. */
const countAlike = (a: Limit, b: Limit): boolean =>
  isDeepStrictEqual([a.per, a.windowMs, a.calendar], [b.per, b.windowMs, b.calendar])

export const limitsSection = named(limit, 'a mapping of names to limits').superRefine(
  crossField(function* (limits) {
    const named = byName(limits)
    for (const share of limits) {
      const counter = share.counts === undefined ? undefined : named.get(share.counts)
      if (counter === undefined) continue
      const { name, limit, claim, together } = counter
      const hasNone = counter.counts !== undefined || counter.isConcurrent || counter.shadow
      if (hasNone || !countAlike(counter, share))
        yield issueAt(
          [share.name, 'counts'],
          'must be live, with its own counter and the same "per" and "window"; write one',
        )
      else if (!claim && !share.claim && share.limit > limit)
        yield issueAt(
          [share.name, 'limit'],
          `is above that of "${name}", which it counts; write at most ${limit}`,
        )
      if (share.shadow && together !== undefined)
        yield issueAt([share.name, 'shadow'], `cannot be combined with "together" of "${name}"; remove it`)
    }
  }),
)

const ownLimit = section({
  limit: calls,
  windowMs: window.exactOptional(),
  untilAt: writtenInstant.exactOptional(),
})

export const ownLimits = z
  .record(z.string(), ownLimit, mustBe('a mapping of limits to their values for this client'))
  .default({})
