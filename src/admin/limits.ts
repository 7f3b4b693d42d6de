import type { IncomingMessage, ServerResponse } from 'node:http'
import { AmbiguousCaller, InvalidQuestion, UncountedCaller } from '../errors.ts'
import { isShortened, parseCaller, showCaller } from '../policy/counted-caller.ts'
import { instantMs } from '../runtime/instant.ts'
import { isObject, parseObject } from '../runtime/json.ts'
import { type AdminResponse, problem } from './access.ts'
import { type OperatorApi, PARAMETERS, type RequestLine, type Setting } from './operator-api.ts'

export interface LimitsParts {
  /** Returns the running gateway; throws until it has started. */
  operator(): OperatorApi
  /** Returns the SHA-256 of the file in force; null without a file. */
  hash(): string | null
  /** Called with the reason if the store does not answer. */
  failed(error: unknown): void
}

const DEFAULT_LIFE_MS = 86_400_000
const MAX_BODY_BYTES = 65_536
const MAY_BE_UNSET =
  ' The change may not be in force; until Redis answers, write it to clients[].limits of the file.'

/**
 * Creates the handler of `/limits/:caller` (with the caller percent-encoded), `/overrides` and
 * `/explain`; it never rejects.
 */
export function createLimits({ operator, hash, failed }: LimitsParts) {
  let last: Promise<unknown> = Promise.resolve()

  async function readCaller(encoded: string) {
    const text = decodeURIComponent(encoded)
    assertText('The caller', text, 1024)
    const caller = parseCaller(text)
    if (!isShortened(caller)) return caller
    const found = await operator().findCaller(showCaller(caller))
    if (found === 'ambiguous')
      throw new AmbiguousCaller(`Several callers are shown as "${text}"; give the whole value.`)
    // A part that is given whole must be the same, and not only shown as the same.
    const isMeant = caller.every((part, i) => isShortened([part]) || part.value === found?.[i]?.value)
    if (found !== undefined && isMeant) return found
    throw new UncountedCaller(`"${text}" is shortened, and not known here; give the whole value.`)
  }

  /** Serves one operator at a time, because each may scan all of Redis. Skips an operator who has disconnected. */
  async function queued(response: ServerResponse, act: (signal: AbortSignal) => Promise<object>) {
    const operator = new AbortController()
    const { signal } = operator
    response.once('close', () => operator.abort())
    const result = last.then(() => signal.throwIfAborted()).then(() => act(signal))
    last = result.catch(() => {})
    return ok(await result)
  }

  async function dispatch(request: IncomingMessage, response: ServerResponse, path: string) {
    const { method, url = '' } = request
    const isRead = method === 'GET' || method === 'HEAD'
    const [, encoded] = /^\/limits\/([^/]+)$/.exec(path) ?? []
    if (encoded !== undefined) {
      const caller = await readCaller(encoded)
      const { usage, reset, setLimits } = operator()
      if (isRead) return await queued(response, (signal) => usage(caller, signal))
      if (method === 'DELETE') return await queued(response, (signal) => reset(caller, signal))
      if (method === 'PATCH') return ok(await setLimits({ caller, ...(await readSetting(request)) }))
      return problem(405, 'Only GET, HEAD, DELETE and PATCH.', { Allow: 'GET, HEAD, DELETE, PATCH' })
    }
    if (path.startsWith('/limits'))
      return problem(404, 'Ask for /limits/CALLER: a client id, percent-encoded, or ip:192.0.2.7.')
    if (!isRead) return problem(405, 'Only GET and HEAD.', { Allow: 'GET, HEAD' })
    if (path === '/overrides') return ok({ overrides: await operator().overrides() })
    const explained = await operator().explain(parseRequestLine(url.slice(path.length)))
    return ok({ ...explained, configuration: hash() })
  }

  return async (request: IncomingMessage, response: ServerResponse, path: string) => {
    try {
      return await dispatch(request, response, path)
    } catch (error) {
      const { name, message } = error as Error
      if (name === 'InvalidQuestion') return problem(400, message)
      if (name === 'URIError') return problem(400, 'The caller is not percent-encoded UTF-8.')
      if (name === 'UncountedCaller') return problem(404, message)
      if (name === 'AmbiguousCaller') return problem(409, message)
      if (!response.destroyed) failed(error)
      const change = request.method === 'PATCH' ? MAY_BE_UNSET : ''
      const detail = name === 'DamagedKeyError' ? message : `The counters are unavailable.${change}`
      return problem(503, detail, { 'Retry-After': '1' })
    }
  }
}

const ok = (body: object): AdminResponse => ({ status: 200, body })

function parseRequestLine(query: string): RequestLine {
  const parameters = new URLSearchParams(query)
  for (const name of parameters.keys())
    if (!(PARAMETERS as readonly string[]).includes(name) || parameters.getAll(name).length > 1)
      throw new InvalidQuestion(`The parameters are ${PARAMETERS.join(', ')}, each once.`)
  return { request: '', ...Object.fromEntries(parameters) }
}

/** Reads a `Setting` without its caller. */
async function readSetting(request: IncomingMessage): Promise<Omit<Setting, 'caller'>> {
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
  return { set: parseSet(set), untilAt: parseUntil(until), by, note }
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

function assertText(what: string, text: unknown, max: number): asserts text is string | undefined {
  if (text === undefined) return
  if (typeof text === 'string' && text !== '' && text.length <= max && !/\p{Cc}/u.test(text)) return
  throw new InvalidQuestion(`${what} must have 1 to ${max} characters, without control characters.`)
}
