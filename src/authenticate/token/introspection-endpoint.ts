import { describeFailure, readBytes, shownUrl } from './fetch-json.ts'
import { type JsonObject, parseObject } from './jws.ts'
import { createSlots } from './semaphore.ts'

export interface EndpointOptions {
  readonly url: string
  /** What the gateway authenticates with (RFC 6749 section 2.3.1). */
  readonly clientId: string
  readonly clientSecret: string
  readonly events: EndpointEvents
  /** Longest that one token waits for its answer. */
  readonly timeoutMs?: number
  /** Most tokens asked for at a time, and most that may wait for that. */
  readonly maxConcurrent?: number
  readonly maxWaiting?: number
  /** How long the endpoint is left alone once it fails. */
  readonly cooldownMs?: number
}

export interface EndpointEvents {
  /** Told once an outage, and at most once a minute, with what went wrong. */
  failed(reason: string): void
  /** Told when the endpoint answers again after `failed`. */
  recovered(): void
}

/** What the endpoint says of a token; undefined where it takes no such tokens. Rejects where it could not be asked. */
export type Ask = (token: string) => Promise<JsonObject | undefined>

const MAX_BYTES = 64 * 1024
/** Failures in a row after which it is asked whether the endpoint fails, or the tokens. */
const PATIENCE = 3
/** No caller chose it, and it is nobody's: what it brings about is the endpoint's own doing. */
const OWN_TOKEN = 'sluice-asks-whether-tokens-can-be-looked-up'
const TELL_EVERY_MS = 60_000
/** What is wrong is the token, not the question (RFC 7009 section 2.2.1, RFC 6750 section 3.1). */
const OF_THE_TOKEN = new Set<unknown>(['unsupported_token_type', 'invalid_token'])

/** An answer that is none; `lasting` where other tokens would fare no better. */
class Fault extends Error {
  readonly lasting: boolean
  constructor(message: string, lasting = true) {
    super(message)
    this.lasting = lasting
  }
}

/**
 * Asks an introspection endpoint (RFC 7662 section 2), in bounded time and number. No redirect is followed.
 *
 * An endpoint that fails is left alone, so that callers need not wait for it: it is asked once a cool-down. Tokens are the
 * callers' to make up, and some may upset a good endpoint; lest that deny others, failures in a row only make the gateway ask
 * with a token of its own, and nothing but the answer to that one leaves the endpoint alone.
 */
export function createEndpoint(options: EndpointOptions): Ask {
  const { url, events, timeoutMs = 3000, maxConcurrent = 32, maxWaiting = 1000, cooldownMs = 1000 } = options
  const slots = createSlots(maxConcurrent, maxWaiting)
  const headers = {
    accept: 'application/json',
    authorization: basic(options.clientId, options.clientSecret),
    'content-type': 'application/x-www-form-urlencoded',
  }
  let failures = 0
  let probing = false
  let leftAlone = false
  let notBefore = -Infinity
  let told = false
  let toldAt = -Infinity

  async function post(token: string, signal: AbortSignal): Promise<JsonObject | undefined> {
    const body = new URLSearchParams({ token, token_type_hint: 'access_token' }).toString()
    const response = await fetch(url, { method: 'POST', headers, body, signal, redirect: 'manual' })
    const answer = parseObject(await readBytes(response.body, MAX_BYTES))
    const { status } = response
    if (status === 200 && typeof answer?.['active'] === 'boolean') return answer
    if (status === 400 && OF_THE_TOKEN.has(answer?.['error'])) return undefined
    if (status === 200) throw new Fault('answered what is no introspection response')
    if (status === 401 || status === 403) {
      throw new Fault(`answered ${status}: it does not take the gateway's clientId and clientSecret`)
    }
    if (status >= 300 && status < 400)
      throw new Fault(`answered ${status} with a redirect, which is not followed`)
    throw new Fault(`answered ${status}`, status >= 500 || status === 429)
  }

  function answered(): void {
    failures = 0
    leftAlone = false
    if (told) events.recovered()
    told = false
  }

  async function probe(): Promise<void> {
    if (probing) return
    probing = true
    try {
      await post(OWN_TOKEN, AbortSignal.timeout(timeoutMs))
      answered()
    } catch (error) {
      if (!isLasting(error)) failures = 0
      // None, too, where somebody's token was answered meanwhile.
      leftAlone = failures > 0
      notBefore = performance.now() + cooldownMs
    } finally {
      probing = false
    }
  }

  function failed(error: unknown): Error {
    const reason = `${shownUrl(url)} ${error instanceof Fault ? error.message : describeFailure(error)}`
    if (isLasting(error) && ++failures >= PATIENCE && !leftAlone) void probe()
    if (!told && performance.now() - toldAt >= TELL_EVERY_MS) {
      told = true
      toldAt = performance.now()
      events.failed(reason)
    }
    return new Error(reason, { cause: error })
  }

  return async function ask(token) {
    if (leftAlone) {
      const now = performance.now()
      if (now < notBefore) throw new Error(`${shownUrl(url)} fails and is left alone`)
      notBefore = now + cooldownMs
      void probe()
    }
    const controller = new AbortController()
    const late = setTimeout(() => controller.abort(new DOMException('too late', 'TimeoutError')), timeoutMs)
    try {
      await slots.take(controller.signal)
      try {
        const answer = await post(token, controller.signal)
        answered()
        return answer
      } catch (error) {
        throw failed(error)
      } finally {
        slots.give()
      }
    } finally {
      clearTimeout(late)
    }
  }
}

/** Would other tokens fare no better? */
const isLasting = (error: unknown): boolean => !(error instanceof Fault) || error.lasting

/** Client authentication by RFC 6749 section 2.3.1. */
function basic(id: string, secret: string): string {
  return `Basic ${Buffer.from(`${formEncode(id)}:${formEncode(secret)}`).toString('base64')}`
}

function formEncode(text: string): string {
  return new URLSearchParams({ '': text }).toString().slice(1)
}
