import type { IncomingMessage, ServerResponse } from 'node:http'
import { AmbiguousCaller, InvalidQuestion, UncountedCaller } from '../errors.ts'
import { isShortened, parseCaller, showCaller, withDigests } from '../policy/counted-caller.ts'
import { instant } from '../runtime/instant.ts'
import { toError } from '../runtime/to-error.ts'
import { type AdminResponse, forbidden, problem } from './access.ts'
import type { Attempt } from './audit.ts'
import { type OperatorApi, PARAMETERS, type RequestLine } from './requests/operator-api.ts'
import { withWholeValues } from './requests/short-forms.ts'
import { lackedLimits, mayChange, type Operator } from './rights.ts'
import { assertText, readSetting } from './setting.ts'

export interface LimitsParts {
  /** Returns the running gateway; throws until it has started. */
  operator(): OperatorApi
  /** Returns the SHA-256 of the file in force; null without a file. */
  hash(): string | null
  /** Returns the parts of callers that are secret. */
  secrets(): ReadonlySet<string>
  /** Called with the reason if the store does not answer. */
  failed(error: unknown): void
}

/** A request that may be served; of a `set`, each limit has a right of its own. */
export interface Asked {
  readonly path: string
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly by: Operator
  /** Gets what the audit needs. */
  readonly attempt: Attempt
}

type Serve = (asked: Asked) => Promise<AdminResponse>

/** Maximum limits that a refusal names. */
const MAX_SHOWN = 5
/** The path before a caller. */
const LIMITS = '/limits/'
const MAY_BE_UNSET =
  ' The change may not be in force; until Redis answers, write it to clients[].limits of the file.'

/**
 * Creates the handlers of `/limits/:caller` (with the caller percent-encoded), `/overrides` and
 * `/explain`. They never reject.
 */
export function createLimits({ operator, hash, secrets, failed }: LimitsParts) {
  const queued = createScanQueue()

  async function readCaller(path: string) {
    const text = decodeURIComponent(path.slice(LIMITS.length))
    assertText('The caller', text, 1024)
    const caller = withDigests(parseCaller(text), secrets())
    if (!isShortened(caller)) return caller
    const found = await operator().findCaller(showCaller(caller))
    if (found === 'ambiguous')
      throw new AmbiguousCaller(`Several callers are shown as "${text}"; give the whole value.`)
    // A part that is given whole must be the same, and not only shown as the same.
    const isMeant = caller.every((part, i) => isShortened([part]) || part.value === found?.[i]?.value)
    if (found !== undefined && isMeant) return found
    throw new UncountedCaller(`"${text}" is shortened, and not known here; give the whole value.`)
  }

  async function show({ path, response }: Asked) {
    const caller = await readCaller(path)
    return ok(await queued(response, (signal) => operator().usage(caller, signal)))
  }

  async function reset({ path, response, by, attempt }: Asked) {
    const caller = await readCaller(path)
    // Also without a result, some counters may be deleted.
    attempt.changes = [{}]
    const result = await queued(response, (signal) => operator().reset(caller, signal))
    attempt.changes = [{ freed: result.freed }]
    return ok({ ...result, by: by.name })
  }

  async function set({ path, request, by, attempt }: Asked) {
    const caller = await readCaller(path)
    const { set, untilAt, note } = await readSetting(request)
    const names = Object.keys(set)
    const lacked = names.filter((name) => !mayChange(by, name))
    if (lacked.length > 0) {
      attempt.changes = lacked.map((limit) => ({ limit }))
      return forbidden(lackedLimits(by, lacked.slice(0, MAX_SHOWN)))
    }
    attempt.changes = names.map((limit) => ({ limit, requested: set[limit] ?? null }))
    const result = await operator().setLimits({ caller, set, untilAt, note, by: by.name })
    const until = untilAt === null ? null : instant(untilAt)
    attempt.changes = result.limits.map(({ name: limit, before, after }) => ({
      ...{ limit, before: before?.limit ?? null, after: after?.limit ?? null },
      // A removed override has no end and no note.
      ...(set[limit] !== null && { until, note }),
    }))
    return ok({ ...result, by: by.name })
  }

  const overrides = async () => ok({ overrides: await operator().overrides() })

  async function explain({ path, request }: Asked) {
    const asked = parseRequestLine(request.url!.slice(path.length))
    const line = await withWholeValues(asked, (shown) => operator().findPart(shown))
    return ok({ ...(await operator().explain(line)), configuration: hash() })
  }

  /** Returns the response to a failure of a request. */
  function responseTo(error: unknown, { response, attempt }: Asked): AdminResponse {
    const refused = refusalOf(error)
    if (refused !== undefined) return refused
    const { name, message } = toError(error)
    if (!response.destroyed) failed(error)
    const change = attempt.operation === 'set' ? MAY_BE_UNSET : ''
    const detail = name === 'DamagedKeyError' ? message : `The counters are unavailable.${change}`
    return problem(503, detail, { 'Retry-After': '1' })
  }

  const safely = (serve: Serve) => (asked: Asked) =>
    serve(asked).catch((error: unknown) => responseTo(error, asked))
  return {
    show: safely(show),
    reset: safely(reset),
    set: safely(set),
    overrides: safely(overrides),
    explain: safely(explain),
  }
}

/**
 * Creates the queue of operators whose requests may scan all of Redis: one runs at a time. Skips an
 * operator who has disconnected.
 */
function createScanQueue() {
  let last: Promise<unknown> = Promise.resolve()
  return async <T extends object>(
    response: ServerResponse,
    act: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> => {
    const operator = new AbortController()
    const { signal } = operator
    response.once('close', () => operator.abort())
    const result = last.then(() => signal.throwIfAborted()).then(() => act(signal))
    last = result.catch(() => {})
    return await result
  }
}

/** Returns the caller of a path as it may be shown; undefined if the path names none. */
export function callerOfPath(path: string, secrets: ReadonlySet<string>): string | undefined {
  if (!path.startsWith(LIMITS)) return undefined
  try {
    return showCaller(withDigests(parseCaller(decodeURIComponent(path.slice(LIMITS.length))), secrets))
  } catch {
    return undefined
  }
}

/** Returns the response to a question that cannot be answered as it is; undefined for another failure. */
function refusalOf(error: unknown): AdminResponse | undefined {
  const { name, message } = toError(error)
  if (name === 'InvalidQuestion') return problem(400, message)
  if (name === 'URIError') return problem(400, 'The caller is not percent-encoded UTF-8.')
  if (name === 'UncountedCaller') return problem(404, message)
  if (name === 'AmbiguousCaller') return problem(409, message)
  return undefined
}

const ok = (body: object): AdminResponse => ({ status: 200, body })

function parseRequestLine(query: string): RequestLine {
  const parameters = new URLSearchParams(query)
  for (const name of parameters.keys())
    if (!(PARAMETERS as readonly string[]).includes(name) || parameters.getAll(name).length > 1)
      throw new InvalidQuestion(`The parameters are ${PARAMETERS.join(', ')}, each once.`)
  return { request: '', ...Object.fromEntries(parameters) }
}
