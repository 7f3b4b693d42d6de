import { z } from 'zod'
import { SCHEMES } from '../../authenticate/jose/jws.ts'
import { privateMember } from '../../authenticate/jose/key-set.ts'
import { asList } from '../../runtime/json.ts'
import { type Issue, issueAt, issueAtKey, mustBe, type Path } from '../yaml/issue.ts'
import { clientIdIssue } from './client-id.ts'
import { planName } from './keys.ts'
import { ownLimits } from './limits.ts'
import { fetchedUrl, isDiscoverable, issuer, issuerName, keysLocation, resourceUrl } from './texts.ts'
import { atKey, bool, choice, crossField, distinct, duration, exclusive } from './values.ts'
import { list, section, size, stringThat, text } from './values.ts'

/** Asymmetric algorithms, with which a verifier cannot sign. */
const ALGORITHMS = [...SCHEMES.keys()]

const CLIENT_ID = 'the id of the gateway at the issuer'
const introspection = section(
  {
    url: fetchedUrl('the URL of the introspection endpoint'),
    authentication: choice(['basic', 'post', 'bearer']).default('basic'),
    clientId: text(CLIENT_ID).optional(),
    clientSecret: text('the secret of that client'),
    timeoutMs: duration('1ms', '1m').prefault('3s'),
    maxAgeMs: duration('0s', '1h').prefault('30s'),
  },
  function* ({ authentication, clientId }) {
    if (authentication === 'bearer') {
      if (clientId !== undefined)
        yield atKey('clientId', 'is not sent with "authentication: bearer"; remove it')
    } else if (clientId === undefined) yield atKey('clientId', `is missing; write ${CLIENT_ID}`)
  },
)

const audiences = list(text('an audience'), 1, 'a list of audiences')
const AUDIENCE = 'the audience of the tokens or a list of audiences, such as https://api.example.com'
const audience = z.union([text('the audience'), audiences], mustBe(AUDIENCE)).transform(asList)

const algorithms = list(choice(ALGORITHMS), 1, 'a list of algorithms')
const isRealm = (text: string): boolean => /^[ !#-[\]-~]+$/.test(text)

const ISSUER = 'the issuer exactly as in iss, or a list of the names of one issuer'
const issuerNames = z
  .union([issuerName, distinct(issuerName, 1, 'a list of names of one issuer')], mustBe(ISSUER))
  .transform(asList)

const issuerSection = section(
  {
    issuer: issuerNames,
    audience,
    audienceOptional: bool.default(false),
    jwks: keysLocation.optional(),
    clientClaim: text('the name of a claim').default('client_id'),
    planClaim: text('the name of a claim').optional(),
    algorithms: algorithms.default(['PS256', 'ES256', 'EdDSA', 'RS256']),
    leewayMs: duration('0s', '10m').prefault('5s'),
    realm: stringThat(isRealm, 'plain ASCII without quotes and backslashes').optional(),
    type: choice(['any', 'strict']).default('any'),
    bound: choice(['required']).optional(),
    resource: resourceUrl.optional(),
    introspection: introspection.optional(),
  },
  function* ({ issuer, jwks }) {
    if (jwks === undefined && !isDiscoverable(issuer[0]!))
      yield issueAt(
        nameAt(issuer, 0),
        'is not a URL, under which the keys could be discovered; write "jwks" in addition',
      )
  },
)

/** Returns the path of a name of an issuer, which is written as a text or in a list. */
const nameAt = (names: readonly string[], index: number): Path =>
  names.length > 1 ? ['issuer', index] : ['issuer']

/** Schema of an issuer, whose file of keys is not resolved yet. Its first name identifies it. */
const oneIssuer = issuerSection.transform(({ issuer: names, ...rest }) => ({
  ...rest,
  issuer: names[0]!,
  names,
}))

function* issuerConflicts(issuers: readonly z.output<typeof oneIssuer>[]): Generator<Issue> {
  for (const [i, { names, introspection, resource }] of issuers.entries()) {
    const earlier = issuers.slice(0, i)
    for (const [j, name] of names.entries())
      if (earlier.some((other) => other.names.includes(name)))
        yield issueAt([i, ...nameAt(names, j)], 'is the issuer of an earlier item; merge them')
    if (introspection !== undefined && earlier.some((other) => other.introspection !== undefined))
      yield issueAtKey(
        [i, 'introspection'],
        'cannot be at two issuers, as opaque tokens name none; remove one',
      )
    if (resource !== undefined && earlier.some((other) => other.resource !== undefined))
      yield issueAtKey([i, 'resource'], 'is at an earlier item, and names all issuers; remove one')
  }
}

const issuers = list(oneIssuer, 1, 'a list of issuers').superRefine(crossField(issuerConflicts))
const ISSUER_KEYS = Object.keys(issuerSection.in.shape).join(', ')
const TOKENS = `a mapping (keys: ${ISSUER_KEYS}), or a list of such mappings`
export const tokens = z.union([oneIssuer, issuers], mustBe(TOKENS))

/** Returns the realm by default: the host of an issuer that is a URL, or its name if it is plain. */
export function realmOf(issuer: string): string {
  if (isDiscoverable(issuer)) return new URL(issuer).host
  return isRealm(issuer) ? issuer : 'sluice'
}

const PRIVATE_KEY = 'is private; have the client create a new key, and write only its public part'
const jwk = z.record(z.string(), z.unknown(), mustBe('a JWK: a mapping with "kty"')).superRefine(
  crossField((jwk) => {
    const member = privateMember(jwk)
    return member === undefined ? [] : [atKey(member, PRIVATE_KEY)]
  }),
)

const jwks = section({ keys: list(jwk, 1, 'a list of JWKs') })

const SECRET_METHODS = ['client_secret_basic', 'client_secret_post', 'client_secret_jwt'] as const
const KEY_METHODS = ['private_key_jwt', 'tls_client_auth', 'self_signed_tls_client_auth'] as const

const client = section(
  {
    id: stringThat(clientIdIssue, 'the client’s id').min(1),
    issuer: issuerName.optional(),
    name: text('the client’s name').optional(),
    requestObjectSigningAlg: choice(['none', ...ALGORITHMS, 'HS256', 'HS384', 'HS512']).optional(),
    authentication: choice([...SECRET_METHODS, ...KEY_METHODS, 'none']).optional(),
    jwks: jwks.optional(),
    jwksUri: fetchedUrl('the URL of the client’s keys, such as https://a.example/jwks').optional(),
    pushed: choice(['required']).optional(),
    plan: planName.optional(),
    limits: ownLimits,
  },
  (client) => exclusive(client, ['jwks', 'jwksUri']),
)

export const clients = list(client, 0, 'a list of clients')

/** The beginning of a URN (RFC 8141), so that no request_uri is an address to be fetched. */
const isUrn = (text: string): boolean => /^urn:[a-z0-9][a-z0-9-]{0,31}:[!-~]+$/i.test(text)

export const par = section({
  issuer,
  audiences: list(text('an audience'), 0, 'a list of audiences').optional(),
  requestUri: stringThat(isUrn, 'the beginning of a URN, such as urn:ietf:params:oauth:request_uri:').default(
    'urn:ietf:params:oauth:request_uri:',
  ),
  assertionAudience: choice(['compatible', 'strict']).default('compatible'),
  leewayMs: duration('0s', '10m').prefault('10s'),
  maxBody: size('1kB', '10MB').prefault('64kB'),
  unknownClients: choice(['forward', 'refuse']).default('forward'),
}).transform((settings) => {
  const base = settings.issuer.replace(/\/$/, '')
  return { ...settings, audiences: settings.audiences ?? [`${base}/token`, `${base}/request`] }
})
