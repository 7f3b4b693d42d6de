import { z } from 'zod'
import { isClientId } from '../../authenticate/token/claims.ts'
import { privateMember } from '../../authenticate/token/key-set.ts'
import { type Issue, mustBe, mustBeMapping } from '../yaml/issue.ts'
import { ownLimits } from './limits.ts'
import { fetchedUrl, issuer, keysLocation } from './texts.ts'
import {
  atKey,
  choice,
  crossField,
  duration,
  exclusive,
  list,
  section,
  size,
  stringThat,
  text,
} from './values.ts'

const PSS = ['PS256', 'PS384', 'PS512'] as const
const PKCS1 = ['RS256', 'RS384', 'RS512'] as const
/** The asymmetric algorithms of JOSE, with which a verifier cannot sign. */
export const ALGORITHMS = [...PSS, 'ES256', 'ES384', 'EdDSA', 'Ed25519', ...PKCS1] as const

const introspection = section({
  url: fetchedUrl('the URL of the introspection endpoint').describe('The issuer’s introspection endpoint.'),
  clientId: text('the id of the gateway at the issuer').describe('The gateway’s client id at the issuer.'),
  clientSecret: text('the secret of that client').describe('The client secret, or file:/path of it.'),
  timeoutMs: duration('1ms', '1m').prefault('3s').describe('Maximum wait for a response; then 503.'),
  maxAgeMs: duration('0s', '1h')
    .prefault('30s')
    .describe('How long a response is cached, and so how long a revoked token may be accepted.'),
}).describe('Introspection of opaque tokens (RFC 7662), at one issuer at most; without it they are refused.')

const audience = z
  .union(
    [text('the audience'), list(text('an audience'), 1, 'a list of audiences')],
    mustBe('the audience of the tokens or a list of audiences, such as https://api.example.com'),
  )
  .transform((audience) => [audience].flat())

const issuerFields = section({
  issuer: issuer.describe('The issuer of the tokens, exactly as in their iss claim.'),
  audience: audience.describe('The audience of the tokens, or a list; aud must contain one of them.'),
  jwks: keysLocation
    .optional()
    .describe('The issuer’s keys: a URL or a file relative to this one; by default from its discovery.'),
  clientClaim: text('the name of a claim').default('client_id').describe('The claim with the client’s id.'),
  algorithms: list(choice(ALGORITHMS), 1, 'a list of algorithms')
    .default(['PS256', 'ES256', 'EdDSA', 'RS256'])
    .describe('The signature algorithms that are accepted in JWTs.'),
  leewayMs: duration('0s', '10m').prefault('5s').describe('Allowed clock difference, for exp, nbf and iat.'),
  realm: stringThat((realm) => /^[ !#-[\]-~]+$/.test(realm), 'plain ASCII without quotes and backslashes')
    .optional()
    .describe('The realm in WWW-Authenticate; by default the issuer’s host.'),
  type: choice(['any', 'strict']).default('any').describe('strict accepts only at+jwt tokens (RFC 9068).'),
  introspection: introspection.optional(),
})

/** Schema of an issuer, whose file of keys is not resolved yet. */
const issuerOfTokens = issuerFields
  .transform((settings) => ({ ...settings, realm: settings.realm ?? new URL(settings.issuer).host }))
  .describe('An issuer whose access tokens are accepted.')

function* issuerConflicts(issuers: readonly z.output<typeof issuerOfTokens>[]): Generator<Issue> {
  const introspected = issuers.findIndex(({ introspection }) => introspection !== undefined)
  for (const [i, { issuer, introspection }] of issuers.entries()) {
    const first = issuers.findIndex((other) => other.issuer === issuer)
    if (first < i) yield { path: [i, 'issuer'], message: `is also in tokens[${first}]; merge the two` }
    const message = `is also in tokens[${introspected}], and opaque tokens do not name their issuer; remove one of them`
    if (introspection !== undefined && introspected < i)
      yield { path: [i, 'introspection'], message, key: true }
  }
}

const ISSUER_KEYS = Object.keys(issuerFields.in.shape).join(', ')

export const tokens = z
  .union(
    [issuerOfTokens, list(issuerOfTokens, 1, 'a list of issuers').superRefine(crossField(issuerConflicts))],
    mustBe(`a mapping (keys: ${ISSUER_KEYS}), or a list of such mappings`),
  )
  .describe('How callers authenticate on routes with authenticate: bearer; a list for several issuers.')

const PRIVATE_KEY =
  'belongs to a private key, which only its owner should have; have the client create a new key, and write its public part'
const jwk = z.record(z.string(), z.unknown(), mustBe('a JWK: a mapping with "kty"')).superRefine(
  crossField((jwk) => {
    const member = privateMember(jwk)
    return member === undefined ? [] : [atKey(member, PRIVATE_KEY)]
  }),
)

const keys = list(jwk, 1, 'a list of JWKs').describe('The keys, each a JWK without private members.')
const jwks = z
  .strictObject({ keys }, mustBeMapping(['keys'], 'a JWK Set: a mapping with "keys"'))
  .describe('The client’s public keys as a JWK Set, which verify its request objects and assertions.')

const jwksUri = fetchedUrl('the URL of the client’s JWK Set, such as https://client.example.com/jwks')

const SECRET_METHODS = ['client_secret_basic', 'client_secret_post', 'client_secret_jwt'] as const
const KEY_METHODS = ['private_key_jwt', 'tls_client_auth', 'self_signed_tls_client_auth'] as const

const client = section({
  id: text('the client’s id')
    .refine((id) => id === '' || isClientId(id), 'must have at most 255 characters and no control characters')
    .describe('The client’s id, exactly as in its tokens.'),
  issuer: issuer.optional().describe('The issuer of its tokens, if several; by default the first.'),
  name: text('the client’s name').optional().describe('A name for operators.'),
  requestObjectSigningAlg: choice(['none', ...ALGORITHMS, 'HS256', 'HS384', 'HS512'])
    .optional()
    .describe('The algorithm by which it must sign request objects; with none, signing is optional.'),
  authentication: choice([...SECRET_METHODS, ...KEY_METHODS, 'none'])
    .optional()
    .describe('How it must authenticate at the PAR endpoint; by default not checked.'),
  jwks: jwks.optional(),
  jwksUri: jwksUri.optional().describe('Instead of jwks: the URL of its JWK Set.'),
  pushed: choice(['required'])
    .optional()
    .describe('required: the authorisation endpoint accepts only a request_uri of the PAR endpoint.'),
  limits: ownLimits,
})
  .superRefine(crossField((client) => exclusive(client, ['jwks', 'jwksUri'])))
  .describe('An API client with its own settings.')

export const clients = list(client, 0, 'a list of clients').describe('API clients with their own settings.')

export const par = section({
  issuer: issuer.describe('The identity backend’s issuer: audience of assertions and request objects.'),
  audiences: list(text('an audience'), 0, 'a list of audiences')
    .optional()
    .describe('Further values of aud in client assertions; default <issuer>/token, <issuer>/request.'),
  assertionAudience: choice(['compatible', 'strict'])
    .default('compatible')
    .describe('strict accepts only the issuer as the audience of assertions (FAPI 2.0), not audiences.'),
  leewayMs: duration('0s', '10m').prefault('10s').describe('Allowed clock difference, in clients’ JWTs.'),
  maxBody: size('1kB', '10MB').prefault('64kB').describe('Largest form at these endpoints; beyond, 413.'),
  unknownClients: choice(['forward', 'refuse'])
    .default('forward')
    .describe('Whether clients that are not listed under clients are forwarded unchecked or refused.'),
})
  .transform((settings) => {
    const base = settings.issuer.replace(/\/$/, '')
    return { ...settings, audiences: settings.audiences ?? [`${base}/token`, `${base}/request`] }
  })
  .describe('The rules of routes with authenticate: par or authorization.')
