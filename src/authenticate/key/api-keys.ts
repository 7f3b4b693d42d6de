import { Refusal, type RefusalDetails } from '../../errors.ts'
import { hashOfKey, isKeyText, isMistyped } from './key-text.ts'

/** A key as it is kept: the client that has it, and the SHA-256 of the key in hex. */
export interface ApiKey {
  readonly client: string
  readonly sha256: string
  /** The plan of the client. */
  readonly plan?: string | undefined
  /** Epoch milliseconds at which it ends; undefined if it does not end. */
  readonly untilAt?: number | undefined
}

/** The client that a key identifies. */
export interface KeyIdentity {
  readonly client: string
}

/** The ways of authentication of a route that accept a key. */
export type KeyAuthentication = 'key' | 'bearer or key'

/** Authenticates callers by API keys. */
export type ApiKeys = ReturnType<typeof createApiKeys>

interface Found extends KeyIdentity {
  readonly untilAt: number
  readonly identity: KeyIdentity
}

/** RFC 9110 section 11.6.1: a scheme without parameters. */
const CHALLENGE = 'ApiKey'

/**
 * Creates the authentication by keys in the header field `field`. `tokenChallenges` are those of a
 * caller without a token, for routes that accept both. Keys are only compared by their hashes, so that
 * the time of a refusal does not depend on how much of a key is right.
 */
export function createApiKeys(
  field: string,
  keys: Iterable<ApiKey>,
  tokenChallenges: string | readonly string[] = [],
) {
  const name = field.toLowerCase()
  const byHash = new Map<string, Found>()
  for (const { client, sha256, untilAt = Infinity } of keys)
    byHash.set(sha256, { client, untilAt, identity: { client } })
  const refusals = {
    key: refusalsFor(field, [CHALLENGE]),
    'bearer or key': refusalsFor(field, [...[tokenChallenges].flat(), CHALLENGE]),
  }

  function find(key: string, { invalid, mistyped, unknown, expired }: Refusals): KeyIdentity | Refusal {
    if (!isKeyText(key)) return invalid
    if (isMistyped(key)) return mistyped
    const found = byHash.get(hashOfKey(key))
    if (found === undefined) return unknown
    return found.untilAt > Date.now() ? found.identity : expired(found.client)
  }

  return {
    /** The field that has the key, in lower case. */
    field: name,
    /**
     * Identifies the caller by all values of the field. Returns a 401, a 400 for several credentials;
     * undefined if the caller has only a token, and the route accepts tokens.
     */
    identify(
      rawHeaders: readonly string[],
      authorization: readonly string[],
      how: KeyAuthentication,
    ): KeyIdentity | Refusal | undefined {
      const refused = refusals[how]
      let key = ''
      let count = 0
      for (let i = 0; i < rawHeaders.length; i += 2) {
        const header = rawHeaders[i]!
        if (header.length !== name.length || header.toLowerCase() !== name) continue
        key = rawHeaders[i + 1]!
        count++
      }
      const hasToken = how === 'bearer or key' && authorization.length > 0
      if (count > 1) return refused.several
      if (hasToken) return count === 0 ? undefined : refused.both
      return key === '' ? refused.missing : find(key, refused)
    },
    /** Adds the challenge for a key to the refusal of a token on a route that accepts both. */
    offer(refusal: Refusal): Refusal {
      if (refusal.status !== 401) return refusal
      // The field has no token, but credentials of another scheme.
      if (refusal.oauthError === undefined) return refusals['bearer or key'].missing
      const own = refusal.headers['WWW-Authenticate'] ?? []
      const headers = { ...refusal.headers, 'WWW-Authenticate': [own, CHALLENGE].flat() }
      const { code, message, oauthError, cause, client } = refusal
      return new Refusal(code, message, { oauthError, cause, client, headers })
    },
  }
}

const malformed = (message: string) => new Refusal('BadRequest', message, { oauthError: 'invalid_request' })

type Refusals = ReturnType<typeof refusalsFor>

/** Returns the refusals of routes with these challenges: the same objects for all callers. */
function refusalsFor(field: string, challenges: readonly string[]) {
  const headers = { 'WWW-Authenticate': [...challenges] }
  const asKey = `an API key as "${field}: KEY"`
  const asDpop = challenges.some((one) => one.startsWith('DPoP ')) ? ' or as DPoP with a proof' : ''
  const asToken =
    challenges.length > 1 ? `, or an access token as "Authorization: Bearer TOKEN"${asDpop}` : ''
  const unauthorized = (message: string, details?: RefusalDetails) =>
    new Refusal('Unauthorized', message, { ...details, headers })
  const wrong = (cause: string) => unauthorized('The API key is not valid.', { cause })
  return {
    missing: unauthorized(`Send ${asKey}${asToken}, not in the query.`),
    invalid: wrong('accepted: 1 to 256 printable ASCII characters without blanks'),
    mistyped: wrong('the checksum of the key is wrong: it was cut or mistyped'),
    unknown: wrong('no key with this SHA-256 is in the file'),
    expired: (client: string) =>
      unauthorized('The API key has expired.', { cause: 'its "until" has passed', client }),
    several: malformed(`Send one ${field} field, with one API key.`),
    both: malformed('Send an API key or an access token, not both.'),
  }
}
