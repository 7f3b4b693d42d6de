import type { IncomingMessage } from 'node:http'
import { InvalidQuestion } from '../errors.ts'
import { instantMs } from '../runtime/instant.ts'
import { isName, isObject, parseObject } from '../runtime/json.ts'
import type { Setting } from './requests/operator-api.ts'

const DEFAULT_LIFE_MS = 86_400_000
const MAX_BODY_BYTES = 65_536

/** Reads a `Setting` without its caller and operator: the request's own `by` is only a remark. */
export async function readSetting(request: IncomingMessage): Promise<Omit<Setting, 'caller' | 'by'>> {
  if (!/^application\/json\s*(?:;|$)/i.test(request.headers['content-type'] ?? ''))
    throw new InvalidQuestion('Send the settings as Content-Type: application/json.')
  const settings = parseObject(await readBody(request))
  if (settings === undefined)
    throw new InvalidQuestion('Send a JSON object such as {"set":{"requests":5000},"until":null}.')
  const { set, until, by, note, ...others } = settings
  const [unknown] = Object.keys(others)
  if (unknown !== undefined)
    throw new InvalidQuestion(`"${unknown}" is not a member; use set, until, by and note.`)
  assertText('"by"', by, 100)
  assertText('"note"', note, 500)
  return { set: parseSet(set), untilAt: parseUntil(until), note: noteWith(note, by) }
}

/** Adds to a note the name that the request itself gives, which is not verified. */
function noteWith(note: string | undefined, by: string | undefined): string | undefined {
  if (by === undefined) return note
  return note === undefined ? `sent as ${by}` : `${note} (sent as ${by})`
}

/** Reads a body into one buffer: to join it at each chunk would take the square of the number of chunks. */
async function readBody(request: IncomingMessage): Promise<Buffer> {
  const body = Buffer.alloc(MAX_BODY_BYTES)
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    if (bytes + chunk.length > MAX_BODY_BYTES)
      throw new InvalidQuestion(`The body is over ${MAX_BODY_BYTES / 1024} KiB.`)
    bytes += chunk.copy(body, bytes)
  }
  return body.subarray(0, bytes)
}

/** Parses limit name → calls; null removes the override. */
function parseSet(set: unknown) {
  if (!isObject(set) || Object.keys(set).length === 0)
    throw new InvalidQuestion('"set" must name a limit: {"requests":5000}; null removes overrides.')
  for (const [name, limit] of Object.entries(set))
    if (limit !== null && !(Number.isSafeInteger(limit) && (limit as number) >= 0))
      throw new InvalidQuestion(`"${name}" must be a whole number, 0 or more, or null.`)
  return set as Readonly<Record<string, number | null>>
}

/** Parses an instant to epoch milliseconds; null for no end. */
function parseUntil(until: unknown): number | null {
  if (until === undefined) return Date.now() + DEFAULT_LIFE_MS
  if (until === null) return null
  const at = instantMs(typeof until === 'string' ? until : '')
  if (Number.isNaN(at))
    throw new InvalidQuestion('"until" must be an instant such as 2027-01-31T00:00:00Z, or null.')
  if (at <= Date.now()) throw new InvalidQuestion('"until" has passed; give an instant to come.')
  return at
}

/** Refuses lone surrogates too: Lua's cjson cannot read the override that has one (Redis would return an error). */
export function assertText(what: string, text: unknown, max: number): asserts text is string | undefined {
  if (text === undefined) return
  if (isName(text) && text.length <= max) return
  throw new InvalidQuestion(`${what} must have 1 to ${max} characters, without control characters.`)
}
