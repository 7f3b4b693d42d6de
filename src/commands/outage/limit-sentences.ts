import { durationText } from '../../gateway/exceeded.ts'
import type { OutageBounds, Sharing } from '../../limit/fallback/part.ts'
import type { OutageMode } from '../../limit/quota.ts'
import { formatCalendar } from '../../policy/calendar.ts'
import type { Limit } from '../../policy/limit.ts'
import { mayBeLeftOut } from '../../policy/without-store.ts'
import { formatList, pluralize } from '../format.ts'

export interface LimitSentences {
  readonly title: string
  readonly says: Readonly<Record<OutageMode, readonly string[]>>
}

/** A limit of a configuration in an outage. */
interface Described {
  readonly limit: Limit
  /** The number in force. */
  readonly calls: number
  /** The highest cost of a call. */
  readonly cost: number
  readonly mode: OutageMode
  readonly bounds: OutageBounds
  readonly sharing: Sharing
  /** The clients with a limit of their own. */
  readonly others: number
}

/** Time for which a silent gateway is counted, in milliseconds. */
const COUNTED_MS = 120_000

/** The callers that a limit counts, by its `per` if that is one part. */
const WHO: Readonly<Record<string, string>> = { client: 'A client', user: 'A user', ip: 'An address' }

/** Describes a limit without Redis under each mode. */
export function describeLimit(described: Described): LimitSentences {
  const { limit, calls, mode } = described
  const { name, per, shadow } = limit
  const whom = per.length === 0 ? 'for all callers together' : `per ${per.join(', ')}`
  const title = `${name}: ${countOf(limit, calls)} ${spanOf(limit)}, ${whom}; onOutage: ${mode}`
  if (shadow) {
    const never = ['It is a shadow: it never refuses.']
    return { title, says: { local: never, allow: never, deny: never } }
  }
  const denied = mayBeLeftOut(limit) ? 'Every call to which it applies' : 'Every call'
  return {
    title,
    says: {
      local: [...localSentences(described), ...furtherSentences(described)],
      allow: [
        'It refuses no call and counts none, not even of callers that are blocked by a limit of 0; other limits may refuse.',
      ],
      deny: [`${denied} gets a 503 with Retry-After, until Redis answers.`],
    },
  }
}

function localSentences(described: Described): readonly string[] {
  const { limit, calls, bounds, sharing } = described
  const { gateways } = sharing
  if (calls === 0) return ['No call passes.']
  if (limit.isConcurrent) return atOnceSentences(described)
  if (gateways === 1 && bounds.ofOne === calls)
    return [
      `${whoOf(limit)} gets ${countOf(limit, calls)} ${spanOf(limit)}, also in the outage.`,
      `The gateway knows at least the last 10,000 keys; for another key, it admits up to ${calls} more.`,
      startSentence(described),
    ]
  const { ofAll } = bounds
  return [
    oneSentence(described),
    `${allOf(gateways)} at most ${ofAll} ${spanOf(limit)}; ${calls + ofAll} in the ${periodOf(limit)} in which the outage begins or ends: ${calls} by Redis, and ${ofAll} without it.`,
    ...oneByOneSentences(described),
    startSentence(described),
  ]
}

function atOnceSentences(described: Described): readonly string[] {
  const { calls, bounds, sharing } = described
  const inAll = calls + (sharing.gateways - 1) * bounds.ofOne
  return [
    oneSentence(described),
    `${allOf(sharing.gateways)} at most ${inAll} at once: ${calls} that were in progress before, and new ones.`,
    startSentence(described),
  ]
}

/** Describes an outage that reaches the gateways so slowly that the first are no longer counted. */
function oneByOneSentences({ limit, calls, bounds, sharing }: Described): readonly string[] {
  const isCounted = sharing.instances === undefined && sharing.gateways > 1
  if (!isCounted || limit.windowMs <= COUNTED_MS) return []
  const { oneByOne } = bounds
  return [
    `If they lose Redis one by one, each more than two minutes after the previous one, ${oneByOne} without Redis, ${calls + oneByOne} in all.`,
  ]
}

/** Describes what only some limits have. */
function furtherSentences({ limit, calls, cost, others }: Described): readonly string[] {
  const { claim, counts, together } = limit
  const sentences: string[] = []
  if (cost > 1) sentences.push(`A call takes up to ${cost} points, and each gateway admits at least one.`)
  if (together !== undefined)
    sentences.push('A gateway that does not know an access that began at another one counts it again.')
  if (counts !== undefined)
    sentences.push(`It is a share of "${counts}", whose own bounds hold for all its calls.`)
  if (claim !== undefined)
    sentences.push(`${calls} is the default: another number of a token is divided in the same way.`)
  if (others > 0)
    sentences.push(`${pluralize(others, 'client')} with an own number: it is divided in the same way.`)
  return sentences
}

const allOf = (gateways: number): string =>
  gateways === 1 ? 'The gateway admits' : `All ${gateways} gateways together admit`

/** Describes what one gateway admits. */
function oneSentence({ limit, calls, bounds: { ofOne } }: Described): string {
  const all = `of ${countOf(limit, calls)} ${spanOf(limit)}`
  if (limit.per.length === 0) return `Each gateway admits ${ofOne} ${all}.`
  return `${whoOf(limit)} whose calls stay at one gateway gets ${ofOne} ${all}.`
}

const startSentence = ({ bounds: { ofStarted } }: Described): string =>
  `Each gateway that starts in the outage admits up to ${ofStarted} more.`

/** Returns the caller that a limit counts, at the beginning of a sentence. */
function whoOf({ per }: Limit): string {
  if (per.length === 0) return 'Everybody'
  const who = per.length === 1 ? WHO[per[0]!] : undefined
  return who ?? `A caller (${formatList(per)})`
}

function countOf({ together, inPoints }: Limit, calls: number): string {
  if (together === 'token') return pluralize(calls, 'token')
  if (together !== undefined) return calls === 1 ? '1 access' : `${calls} accesses`
  return pluralize(calls, inPoints ? 'point' : 'call')
}

const periodOf = ({ calendar }: Limit): string => (calendar === undefined ? 'window' : 'period')

function spanOf({ isConcurrent, calendar, windowMs }: Limit): string {
  if (isConcurrent) return 'at once'
  return calendar === undefined ? `in ${durationText(windowMs)}` : `in a calendar ${formatCalendar(calendar)}`
}
