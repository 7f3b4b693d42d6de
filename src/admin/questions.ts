import type { IncomingMessage } from 'node:http'
import { InvalidQuestion } from '../errors.ts'
import { instantMs } from '../limit/instant.ts'

/** What an operator sets for one client. */
export interface Setting {
  readonly client: string
  /** Limit name → calls; null removes the override. */
  readonly set: Readonly<Record<string, number | null>>
  /** Epoch milliseconds; null for no end. */
  readonly untilAt: number | null
  readonly by?: string
  readonly note?: string
}

/** A request to explain: `request` is `[METHOD] [host]/path`, or has a URL in place of the host and path; `at` is ISO 8601. */
export interface RequestLine {
  readonly request: string
  readonly host?: string
  readonly client?: string
  readonly user?: string
  readonly ip?: string
  readonly at?: string
}

const QUESTION_PARTS = ['request', 'host', 'client', 'user', 'ip', 'at']
/** An override lasts so long unless its end is given. */
const DEFAULT_LIFE_MS = 86_400_000
const MAX_BODY_BYTES = 65_536
const MAX_CHARS = { client: 1024, by: 100, note: 500 }

/** Reads the parameters of `GET /explain`; throws an InvalidQuestion. */
export function parseRequestLine(parameters: URLSearchParams): RequestLine {
  for (const name of parameters.keys()) {
    if (!QUESTION_PARTS.includes(name) || parameters.getAll(name).length > 1)
      throw new InvalidQuestion(`The parameters are ${QUESTION_PARTS.join(', ')}, each once.`)
  }
  return { request: '', ...Object.fromEntries(parameters) }
}

/** Reads the body of `PATCH /limits/:client`; rejects with an InvalidQuestion. */
export async function readSetting(request: IncomingMessage, client: string): Promise<Setting> {
  const [type = ''] = request.headers['content-type']?.split(';') ?? []
  if (type.trim().toLowerCase() !== 'application/json')
    throw new InvalidQuestion('Send the settings as Content-Type: application/json.')
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > MAX_BODY_BYTES) throw new InvalidQuestion(`The body is over ${MAX_BODY_BYTES} bytes.`)
    chunks.push(chunk)
  }
  return settingOf(client, parse(Buffer.concat(chunks).toString()))
}

function parse(text: string): Readonly<Record<string, unknown>> {
  try {
    const body: unknown = JSON.parse(text)
    if (isObject(body)) return body
  } catch {
    // As any other body that is no object.
  }
  throw new InvalidQuestion('The body must be a JSON object such as {"set":{"requests":5000},"until":null}.')
}

function settingOf(client: string, { set, until, by, note, ...others }: Record<string, unknown>): Setting {
  const [unknown] = Object.keys(others)
  if (unknown !== undefined)
    throw new InvalidQuestion(`"${unknown}" is no member; there are set, until, by and note.`)
  if (!isObject(set) || Object.keys(set).length === 0)
    throw new InvalidQuestion('"set" must name a limit, such as {"requests":5000}; null removes an override.')
  for (const [name, limit] of Object.entries(set)) {
    if (limit !== null && !(Number.isSafeInteger(limit) && (limit as number) >= 0))
      throw new InvalidQuestion(
        `"${name}" must be a whole number, 0 or more, or null to remove the override.`,
      )
  }
  assertText('client', client)
  return {
    client,
    set: set as Setting['set'],
    untilAt: untilOf(until),
    ...(by !== undefined && { by: assertText('by', by) }),
    ...(note !== undefined && { note: assertText('note', note) }),
  }
}

function untilOf(until: unknown): number | null {
  if (until === undefined) return Date.now() + DEFAULT_LIFE_MS
  if (until === null) return null
  const at = typeof until === 'string' ? instantMs(until) : Number.NaN
  if (Number.isNaN(at))
    throw new InvalidQuestion('"until" must be an instant such as 2027-01-31T00:00:00Z, or null for no end.')
  if (at <= Date.now()) throw new InvalidQuestion('"until" has passed; give an instant to come.')
  return at
}

function assertText(what: keyof typeof MAX_CHARS, text: unknown): string {
  if (typeof text === 'string' && text !== '' && text.length <= MAX_CHARS[what] && !/\p{Cc}/u.test(text))
    return text
  const name = what === 'client' ? 'The id of the client' : `"${what}"`
  throw new InvalidQuestion(
    `${name} must be a text of 1 to ${MAX_CHARS[what]} characters, without control characters.`,
  )
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
