import { escaped } from '../../observe/unsafe-characters.ts'
import { instant } from '../../runtime/instant.ts'
import { isObject, type JsonObject } from '../../runtime/json.ts'
import { formatWindow, pluralize } from '../format.ts'

/**
 * The fields of a line of the log. Other programs may have written them, so each has a type only if
 * it is checked, and line feeds are escaped: a value must not look like a sentence of its own.
 */
type Read = ReturnType<typeof readFields>

function readFields(line: JsonObject) {
  const text = (name: string): string | undefined => {
    const value = line[name]
    return typeof value === 'string' ? escaped(value) : undefined
  }
  const number = (name: string): number | undefined =>
    Number.isFinite(line[name]) ? (line[name] as number) : undefined
  return {
    text,
    number,
    list: (name: string) =>
      Array.isArray(line[name]) ? line[name].map((item) => escaped(String(item))) : [],
  }
}

/** Returns sentences about a call: who made it, what it got, why, and how long it waited for what. */
export function sentencesOf(line: JsonObject): readonly string[] {
  const fields = readFields(line)
  return [
    describeCall(fields),
    describeAnswer(fields),
    ...describeDecision(fields, line['claimed'] === true),
    ...describeUse(line),
    ...describeError(fields),
    ...describeWaits(fields),
  ]
}

function describeCall({ text, number }: Read): string {
  const target = `${text('host') ?? ''}${text('path') ?? ''}`
  const request = [text('method'), target].filter(Boolean).join(' ')
  const caller = text('caller') ?? text('client') ?? 'a caller without a verified name'
  const route = text('route')
  const trace = text('traceId')
  const lasted = number('durationMs')
  return [
    `${request === '' ? 'A request whose head could not be read' : request}, by ${caller}`,
    ` from ${text('ip') ?? 'an unknown address'}`,
    route === undefined ? ', of no route.' : `, of the route "${route}".`,
    ` It ended at ${text('time') ?? 'an unknown time'}`,
    lasted === undefined ? '' : ` after ${milliseconds(lasted)}`,
    trace === undefined ? '.' : `, in the trace ${trace}.`,
  ].join('')
}

function describeAnswer({ text, number }: Read): string {
  const status = number('status')
  if (status === 499) return 'Its caller disconnected before a response began (499).'
  const upstream = text('upstream')
  const isOfUpstream = text('source') === 'upstream'
  const who = isOfUpstream
    ? `The upstream ${upstream === undefined ? '' : `"${upstream}" `}`
    : 'Sluice itself '
  return `${who}answered it with ${status ?? 'an unknown status'}.`
}

/** Describes what the limits decided, what their header fields said, and what decided. */
function describeDecision(fields: Read, isClaimed: boolean): readonly string[] {
  const { text, list } = fields
  const sentences: string[] = []
  if (isClaimed) sentences.push('Its client is only what the request said, not verified.')
  if (text('decision') === 'refused') sentences.push(...describeRefusal(fields))
  else if (text('decision') === 'admitted') sentences.push(describeAdmission(fields))
  else sentences.push('No limit was checked.')
  const mode = MODES[text('mode') ?? '']
  const [part, of] = [fields.number('part'), fields.number('of')]
  if (mode !== undefined) sentences.push(mode)
  if (part !== undefined && of !== undefined) sentences.push(`Its part was ${part} of ${of}.`)
  const shadows = list('shadowOver')
  if (shadows.length > 0) sentences.push(`Shadow limits that would have refused it: ${shadows.join(', ')}.`)
  return sentences
}

/** Names the mode that decided instead of the store. */
const MODES: Readonly<Record<string, string>> = {
  local: 'Redis did not answer: this gateway counted by itself, with its part of the limit.',
  allow: 'Redis did not answer: onOutage: allow admits every call.',
  deny: 'Redis did not answer: onOutage: deny refuses calls with limits.',
}

function describeRefusal({ text, number }: Read): readonly string[] {
  const [of, remaining = 0, retryAfterSecs] = [number('of'), number('remaining'), number('retryAfterSecs')]
  const limit = `The limit "${text('limit') ?? 'unknown'}"`
  const counted = ` of ${text('caller') ?? text('client') ?? 'its caller'}`
  if (of === 0) return [`${limit}${counted} is 0, which refuses every call: it was blocked.`]
  const allowed = of === undefined ? '' : `: it allows ${of} ${windowOf(number('windowMs'))}`
  const sentences = [`${limit}${counted} refused it${allowed}, and ${remaining} were left.`]
  const decidedAt = number('decidedAt')
  if (of !== undefined)
    sentences.push(`The response said X-RateLimit-Limit: ${of}, X-RateLimit-Remaining: ${remaining}.`)
  if (retryAfterSecs !== undefined) {
    const until = decidedAt === undefined ? '' : `, at ${instant(decidedAt + retryAfterSecs * 1000)}`
    sentences.push(`It said Retry-After: ${retryAfterSecs}: a later call could pass${until}.`)
  }
  const omitted = number('omitted')
  if (omitted !== undefined)
    sentences.push(
      `${pluralize(omitted, 'similar refusal')} before it ${omitted === 1 ? 'has' : 'have'} no line.`,
    )
  return sentences
}

const windowOf = (windowMs: number | undefined): string => {
  if (windowMs === undefined) return 'in its window'
  return windowMs === 0 ? 'at once' : `in ${formatWindow(windowMs)}`
}

function describeAdmission({ text, number }: Read): string {
  const [of, remaining] = [number('of'), number('remaining')]
  if (of === undefined || remaining === undefined) return 'The limits admitted it.'
  return `The limits admitted it: ${remaining} of ${of} of "${text('limit') ?? 'unknown'}" were left after it.`
}

/** Describes what a call reserved of its limits, and turned out to use. */
function describeUse({ reserved, settled, unsettled }: JsonObject): readonly string[] {
  const sentences: string[] = []
  if (reserved !== undefined) sentences.push(`It was charged a reserve at first: ${byLimit(reserved)}.`)
  if (settled !== undefined) sentences.push(`It turned out to use, and is charged: ${byLimit(settled)}.`)
  if (unsettled !== undefined)
    sentences.push(`It stays charged its reserve, as it is not known what it used: ${byLimit(unsettled)}.`)
  return sentences
}

/** Formats one value for all limits, or those by limit. */
function byLimit(value: unknown): string {
  if (!isObject(value)) return escaped(typeof value === 'number' ? pluralize(value, 'point') : String(value))
  return Object.entries(value)
    .map(([name, one]) => escaped(`${name} ${String(one)}`))
    .join(', ')
}

function describeError({ text }: Read): readonly string[] {
  const [code, error, cause] = [text('code'), text('error'), text('cause')]
  const sentences: string[] = []
  if (error !== undefined) sentences.push(`The reason${code === undefined ? '' : `, ${code}`}: ${error}`)
  if (cause !== undefined) sentences.push(`For operators, the log says: ${cause}`)
  return sentences
}

function describeWaits({ text, number }: Read): readonly string[] {
  const [upstreamMs, waitedMs, incomplete] = [number('upstreamMs'), number('waitedMs'), text('incomplete')]
  const sentences: string[] = []
  if (upstreamMs !== undefined)
    sentences.push(`The head of the upstream's response took ${milliseconds(upstreamMs)}.`)
  if (waitedMs !== undefined) sentences.push(`The caller had waited ${milliseconds(waitedMs)} for that.`)
  if (incomplete === 'left') sentences.push('The response is incomplete: its caller disconnected.')
  if (incomplete === 'cut')
    sentences.push('The response is incomplete: the upstream or the gateway cut it off.')
  return sentences
}

const milliseconds = (ms: number): string => `${Math.round(ms * 10) / 10} ms`
