import { z } from 'zod'
import { fetchedUrl, issuer, keysLocation } from './addresses.ts'
import { checking, choice, duration, list, section, text, textThat } from './values.ts'
import type { Mistake } from '../yaml/problem.ts'
import { must } from '../yaml/wording.ts'

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
  clientId: text('the id of the gateway at the issuer').describe('Whom the gateway authenticates as there.'),
  clientSecret: text('the secret of that client').describe(
    'With which secret; may be file:/path to read it from.',
  ),
  timeout: duration('1ms', '1m').prefault('3s').describe('Longest wait for an answer.'),
  maxAge: duration('0s', '1h').prefault('30s').describe('How long an answer counts, and a revoked token.'),
})
  .transform(({ timeout, maxAge, ...rest }) => ({ ...rest, timeoutMs: timeout, maxAgeMs: maxAge }))
  .describe('How opaque tokens are looked up (RFC 7662); without it none are taken.')

const KEYS = 'issuer, audience, jwks, clientClaim, algorithms, leeway, realm, type, introspection'

const issuerOfTokens = section({
  issuer: issuer().describe('Who signs the tokens; compared exactly with their `iss`.'),
  audience: z
    .union(
      [text('the audience'), list(text('an audience'), 1, 'a list of audiences')],
      must('the audience of the tokens or a list of some, such as https://api.example.com'),
    )
    .transform((audience) => (typeof audience === 'string' ? [audience] : audience))
    .describe('For whom the tokens are; one of theirs must be one of these.'),
  jwks: keysLocation()
    .optional()
    .describe('A URL, or a file relative to this one; unless set, by discovery.'),
  clientClaim: text('the name of a claim').default('client_id').describe('The claim that names the client.'),
  algorithms: list(choice(ALGORITHMS), 1, 'a list of algorithms')
    .default(['PS256', 'ES256', 'EdDSA', 'RS256'])
    .describe('The signature algorithms that are accepted.'),
  leeway: duration('0s', '10m').prefault('5s').describe('How far clocks may differ, on exp, nbf and iat.'),
  realm: textThat((realm) => /^[ !#-[\]-~]+$/.test(realm), 'plain ASCII without quotes and backslashes')
    .optional()
    .describe('The realm in WWW-Authenticate; the issuer’s host, unless set.'),
  type: choice(['any', 'strict']).default('any').describe('strict takes at+jwt tokens alone (RFC 9068).'),
  introspection: introspection.optional(),
})
  .transform(({ leeway, realm, ...rest }) => ({
    ...rest,
    leewayMs: leeway,
    realm: realm ?? new URL(rest.issuer).host,
  }))
  .describe('Whose tokens are taken.')

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
    [issuerOfTokens, list(issuerOfTokens, 1, 'a list of issuers').superRefine(checking(apart))],
    must(`a mapping with keys of ${KEYS}, or a list of such mappings`),
  )
  .describe('How a caller proves who it is where a route says bearer; a list for several issuers.')

/** One issuer as the file says it, with the place of its keys not yet resolved. */
export type IssuerSettings = z.output<typeof issuerOfTokens>
