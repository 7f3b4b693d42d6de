import { z } from 'zod'
import { fetchedUrl, issuer, keysLocation } from './addresses.ts'
import { checkWhole, choice, duration, list, section, text, textWhere } from './values.ts'
import type { Mistake } from '../yaml/problem.ts'
import { mustBe } from '../yaml/wording.ts'

/** The asymmetric algorithms of JOSE: who verifies with them cannot sign with them. */
export const ALGORITHMS = [
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'EdDSA',
  'Ed25519',
  'RS256',
  'RS384',
  'RS512',
] as const

const introspection = section({
  url: fetchedUrl('the URL of the introspection endpoint').describe('The issuer’s introspection endpoint.'),
  clientId: text('the id of the gateway at the issuer').describe('The gateway’s client id at the issuer.'),
  clientSecret: text('the secret of that client').describe(
    'The client secret for that id; file:/path reads it from a file.',
  ),
  timeout: duration('1ms', '1m').prefault('3s').describe('Longest wait for an answer; then 503.'),
  maxAge: duration('0s', '1h')
    .prefault('30s')
    .describe('How long an answer is cached, and so how long a revoked token may still be accepted.'),
})
  .transform(({ timeout, maxAge, ...rest }) => ({ ...rest, timeoutMs: timeout, maxAgeMs: maxAge }))
  .describe('Introspection of opaque tokens (RFC 7662), at one issuer at most; without it they are refused.')

const KEYS = 'issuer, audience, jwks, clientClaim, algorithms, leeway, realm, type, introspection'

const issuerOfTokens = section({
  issuer: issuer().describe('The issuer of the tokens, exactly as in their iss claim.'),
  audience: z
    .union(
      [text('the audience'), list(text('an audience'), 1, 'a list of audiences')],
      mustBe('the audience of the tokens or a list of some, such as https://api.example.com'),
    )
    .transform((audience) => (typeof audience === 'string' ? [audience] : audience))
    .describe('The audience of the tokens, or a list; the aud claim must contain one of them.'),
  jwks: keysLocation()
    .optional()
    .describe('The issuer’s keys: a URL or a file relative to this one; by default found by its discovery.'),
  clientClaim: text('the name of a claim').default('client_id').describe('The claim with the client’s id.'),
  algorithms: list(choice(ALGORITHMS), 1, 'a list of algorithms')
    .default(['PS256', 'ES256', 'EdDSA', 'RS256'])
    .describe('The signature algorithms that are accepted in JWTs.'),
  leeway: duration('0s', '10m').prefault('5s').describe('Allowed clock difference, for exp, nbf and iat.'),
  realm: textWhere((realm) => /^[ !#-[\]-~]+$/.test(realm), 'plain ASCII without quotes and backslashes')
    .optional()
    .describe('The realm in WWW-Authenticate; by default the issuer’s host.'),
  type: choice(['any', 'strict']).default('any').describe('strict accepts only at+jwt tokens (RFC 9068).'),
  introspection: introspection.optional(),
})
  .transform(({ leeway, realm, ...rest }) => ({
    ...rest,
    leewayMs: leeway,
    realm: realm ?? new URL(rest.issuer).host,
  }))
  .describe('An issuer whose access tokens are accepted.')

/** Issuers stand once, and one alone has an introspection endpoint. */
function* apart(issuers: readonly IssuerSettings[]): Generator<Mistake> {
  const asked = issuers.findIndex(({ introspection }) => introspection !== undefined)
  for (const [i, { issuer, introspection }] of issuers.entries()) {
    const first = issuers.findIndex((other) => other.issuer === issuer)
    if (first < i) {
      const message = `stands twice, first in tokens[${first}]; make one of the two`
      yield { path: [i, 'issuer'], message }
    }
    if (introspection !== undefined && asked < i) {
      const message = `stands in tokens[${asked}] too, and opaque tokens do not name their issuer; take one of the two out`
      yield { path: [i, 'introspection'], message, key: true }
    }
  }
}

/** Whose tokens are taken: those of one issuer, or of several. */
export const tokens = z
  .union(
    [issuerOfTokens, list(issuerOfTokens, 1, 'a list of issuers').superRefine(checkWhole(apart))],
    mustBe(`a mapping with keys of ${KEYS}, or a list of such mappings`),
  )
  .describe('How callers authenticate on routes with authenticate: bearer; a list for several issuers.')

/** One issuer as the file says it, with the place of its keys not yet resolved. */
export type IssuerSettings = z.output<typeof issuerOfTokens>
