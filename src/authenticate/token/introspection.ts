import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { Health, type HealthOptions } from '../../health.ts'
import { type CredentialsError, invalidToken, unverifiable } from './challenge.ts'
import { NOT_ACCESS, readClaims, type TokenRules, type VerifiedToken, withClient } from './claims.ts'
import { describeFailure, describeStatus, FetchError } from './fetch-json.ts'
import { readBytes, redactUrl, withTimeout } from './fetch-json.ts'
import { type JsonObject, parseObject } from './jws.ts'

export interface IntrospectionOptions extends Omit<TokenRules, 'type'> {
  readonly url: string
  /** The gateway's credentials (RFC 6749 section 2.3.1). */
  readonly clientId: string
  readonly clientSecret: string
  /** Called once when the endpoint goes down, and once when it is up again. */
  readonly events: Pick<HealthOptions, 'onDown' | 'onUp'> & {
    /** Called for each token that was looked up; `failed`: no answer, or not asked, as the endpoint is down or too many wait. */
    readonly onResult?: (result: IntrospectionResult) => void
  }
  /** Longest that one token waits for its answer. */
  readonly timeoutMs?: number
  /** How long the endpoint is left alone once it is down. */
  readonly cooldownMs?: number
  /** Longest that a token is accepted without asking again, and so that a revoked one may live on. */
  readonly maxAgeMs?: number
}

export type IntrospectionResult = 'active' | 'inactive' | 'failed'

/** Verifies an opaque token. A promise only where the issuer must be asked; it never rejects. */
export type Introspect = (token: string) => CredentialsError | Promise<VerifiedToken | CredentialsError>

/** How long a refused token is refused without asking again. */
const REFUSED_MS = 5000
const MAX_REFUSED = 10_000
const NOT_ACTIVE = invalidToken('The access token is not active.')
const HEADER = { typ: 'at+jwt' }
/** RFC 6749 section 7.1, RFC 9449 section 5, and what some write in their place. */
const ACCESS_TOKEN = /^(?:bearer|dpop|access_token)$/i

const MAX_BYTES = 64 * 1024
/** Most requests at a time, and most tokens that may wait for one. */
const MAX_CONCURRENT = 32
const MAX_WAITING = 1000
/** Failures in a row after which the gateway probes. */
const MAX_FAILURES = 3
/** No caller's token: a failure is the endpoint's. */
const PROBE_TOKEN = 'sluice-asks-whether-tokens-can-be-looked-up'
/** An answer that may be about the token alone, so that it says nothing of other tokens. */
class TokenError extends FetchError {}

/** The token is at fault, not the request (RFC 7009 section 2.2.1, RFC 6750 section 3.1). */
const TOKEN_ERRORS = new Set<unknown>(['unsupported_token_type', 'invalid_token'])

/** Identifies opaque tokens (RFC 7662), in one lookup at a time each; refusals are remembered a moment. An outage is a 503. */
export function createIntrospection(options: IntrospectionOptions) {
  const { maxAgeMs = 30_000, events } = options
  const rules = { ...options, type: 'any' as const }
  const ask = createEndpoint(options)
  const inFlight = new Map<string, Promise<VerifiedToken | CredentialsError>>()
  const refused = new LRUCache<string, { fault: CredentialsError; until: number }>({ max: MAX_REFUSED })

  async function lookUp(token: string, digest: string): Promise<VerifiedToken | CredentialsError> {
    const askedAt = Date.now()
    let answer: JsonObject | undefined
    try {
      answer = await ask(token)
    } catch (cause) {
      events.onResult?.('failed')
      return unverifiable(cause)
    }
    const about = answer?.['active'] === true ? answer : undefined
    events.onResult?.(about === undefined ? 'inactive' : 'active')
    const result = about === undefined ? NOT_ACTIVE : read(about, askedAt)
    if (!('error' in result)) return result
    const fault = withClient(result, about?.[options.clientClaim])
    refused.set(digest, { fault, until: askedAt + REFUSED_MS })
    return fault
  }

  function read(answer: JsonObject, askedAt: number): VerifiedToken | CredentialsError {
    const { token_type: type } = answer
    if (type !== undefined && !(typeof type === 'string' && ACCESS_TOKEN.test(type))) return NOT_ACCESS
    // RFC 7662 section 2.2: both are optional, and the issuer is known.
    const claims: JsonObject = { iss: options.issuer, exp: Number.MAX_VALUE, ...answer }
    const identity = readClaims(HEADER, claims, rules)
    if ('error' in identity) return identity
    if (type?.toLowerCase() === 'dpop' && !identity.confirmation?.jkt) {
      return invalidToken('The access token is bound to its client in a way that cannot be checked here.')
    }
    return { identity, until: Math.min(askedAt + maxAgeMs, (claims['exp'] as number) * 1000) }
  }

  const introspect: Introspect = (token) => {
    const digest = hash('sha256', token, 'base64url')
    const known = refused.get(digest)
    if (known !== undefined && known.until > Date.now()) return known.fault
    const lookup = inFlight.get(digest) ?? lookUp(token, digest).finally(() => inFlight.delete(digest))
    inFlight.set(digest, lookup)
    return lookup
  }
  /** `isUp` returns false while the endpoint is down. */
  return Object.assign(introspect, { isUp: ask.isUp })
}

/**
 * Asks an introspection endpoint (RFC 7662 section 2), in bounded time and number. No redirect is followed.
 *
 * An endpoint that is down is left alone, so that callers do not wait for it: it is asked once a cool-down. Callers may make up
 * tokens that upset a good endpoint. So that these do not lock out others, failures in a row only make the gateway send a
 * token of its own, and only a failure of that one counts as an outage.
 */
function createEndpoint(options: IntrospectionOptions) {
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
    if (status === 200) throw new FetchError('answered what is no introspection response')
    if (status === 400 || status === 422) throw new TokenError(describeStatus(response))
    if (status !== 401 && status !== 403) throw new FetchError(describeStatus(response))
    throw new FetchError(`answered ${status}: it does not take the gateway's clientId and clientSecret`)
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
      const error = new Error(`${redactUrl(url)} ${describeFailure(cause)}`, { cause })
      if (!(cause instanceof TokenError)) health.failed(error)
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
  async function ask(token: string): Promise<JsonObject | undefined> {
    if (!health.up) {
      if (!health.due()) throw new Error(`${redactUrl(url)} fails and is left alone`)
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
  return Object.assign(ask, { isUp: () => health.up })
}

/** Client authentication by RFC 6749 section 2.3.1: both halves form-encoded. */
function basic(id: string, secret: string): string {
  const [user, password] = [id, secret].map((text) => new URLSearchParams({ '': text }).toString().slice(1))
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
}
