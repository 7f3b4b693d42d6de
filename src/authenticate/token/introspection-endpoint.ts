import { Health, type HealthOptions } from '../../health.ts'
import { describeFailure, describeStatus, Problem, readBytes, shownUrl, withTimeout } from './fetch-json.ts'
import { type JsonObject, parseObject } from './jws.ts'

export interface EndpointOptions {
  readonly url: string
  /** The gateway's credentials (RFC 6749 section 2.3.1). */
  readonly clientId: string
  readonly clientSecret: string
  /** Called once when the endpoint goes down, and once when it is up again. */
  readonly events: Pick<HealthOptions, 'onDown' | 'onUp'>
  /** Longest that one token waits for its answer. */
  readonly timeoutMs?: number
  /** How long the endpoint is left alone once it is down. */
  readonly cooldownMs?: number
}

const MAX_BYTES = 64 * 1024
/** Most requests at a time, and most tokens that may wait for one. */
const MAX_CONCURRENT = 32
const MAX_WAITING = 1000
/** Failures in a row after which the gateway probes. */
const MAX_FAILURES = 3
/** The probe: a token that no caller chose, so that a failure is the endpoint's own. */
const PROBE_TOKEN = 'sluice-asks-whether-tokens-can-be-looked-up'
/** An answer that may be about the token alone, so that it says nothing of other tokens. */
class TokenProblem extends Problem {}

/** The token is at fault, not the request (RFC 7009 section 2.2.1, RFC 6750 section 3.1). */
const TOKEN_ERRORS = new Set<unknown>(['unsupported_token_type', 'invalid_token'])

/**
 * Asks an introspection endpoint (RFC 7662 section 2), in bounded time and number. No redirect is followed.
 *
 * An endpoint that is down is left alone, so that callers do not wait for it: it is asked once a cool-down. Callers may make up
 * tokens that upset a good endpoint. So that these do not lock out others, failures in a row only make the gateway send a
 * token of its own, and only a failure of that one counts as an outage.
 */
export function createEndpoint(options: EndpointOptions) {
  const { url, events, timeoutMs = 3000, cooldownMs = 1000 } = options
  const headers = {
    accept: 'application/json',
    authorization: basic(options.clientId, options.clientSecret),
    'content-type': 'application/x-www-form-urlencoded',
  }
  const health = new Health({ failures: Infinity, backoffMs: cooldownMs, ...events })
  let probing = false
  let sending = 0
  const waiting: (() => void)[] = []

  async function post(token: string, signal: AbortSignal): Promise<JsonObject | undefined> {
    const body = new URLSearchParams({ token, token_type_hint: 'access_token' }).toString()
    const response = await fetch(url, { method: 'POST', headers, body, signal, redirect: 'manual' })
    const answer = parseObject(await readBytes(response.body, MAX_BYTES))
    const { status } = response
    if (status === 200 && typeof answer?.['active'] === 'boolean') return answer
    if (status === 400 && TOKEN_ERRORS.has(answer?.['error'])) return undefined
    if (status === 200) throw new Problem('answered what is no introspection response')
    if (status === 400 || status === 422) throw new TokenProblem(describeStatus(response))
    if (status !== 401 && status !== 403) throw new Problem(describeStatus(response))
    throw new Problem(`answered ${status}: it does not take the gateway's clientId and clientSecret`)
  }

  /** Waits until it may send: first come, first served. All have the same time, so none waits beyond its own. */
  async function acquire(): Promise<void> {
    if (sending < MAX_CONCURRENT) sending++
    else if (waiting.length < MAX_WAITING) await new Promise<void>((resolve) => waiting.push(resolve))
    else throw new Error(`${MAX_WAITING} wait already`)
  }

  async function send(token: string, signal: AbortSignal): Promise<JsonObject | undefined> {
    try {
      const answer = await post(token, signal)
      health.succeeded()
      return answer
    } catch (cause) {
      const error = new Error(`${shownUrl(url)} ${describeFailure(cause)}`, { cause })
      if (!(cause instanceof TokenProblem)) health.failed(error)
      throw error
    }
  }

  async function probe(): Promise<void> {
    if (probing) return
    probing = true
    try {
      await withTimeout(timeoutMs, (signal) => send(PROBE_TOKEN, signal))
    } catch (error) {
      // Of a single failure in a row, a caller's token was answered meanwhile.
      if (health.failures > 1) health.trip(error as Error)
    } finally {
      probing = false
    }
  }

  /** Returns the answer; undefined where the endpoint takes no such tokens. Rejects where there is no answer. */
  return async function ask(token: string): Promise<JsonObject | undefined> {
    if (!health.up) {
      if (!health.due()) throw new Error(`${shownUrl(url)} fails and is left alone`)
      void probe()
    }
    return withTimeout(timeoutMs, async (signal) => {
      await acquire()
      try {
        signal.throwIfAborted()
        return await send(token, signal)
      } catch (error) {
        if (health.up && health.failures >= MAX_FAILURES) void probe()
        throw error
      } finally {
        const next = waiting.shift()
        if (next === undefined) sending--
        // After the timers that are due: what is out of time is not sent.
        else setImmediate(next)
      }
    })
  }
}

/** Client authentication by RFC 6749 section 2.3.1: both halves form-encoded. */
function basic(id: string, secret: string): string {
  const [user, password] = [id, secret].map((text) => new URLSearchParams({ '': text }).toString().slice(1))
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
}
