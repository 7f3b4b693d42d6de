import { z } from 'zod'
import { isClientId } from '../../authenticate/token/claims.ts'
import { privateMember } from '../../authenticate/token/key-set.ts'
import { mustBe, mustBeMapping } from '../yaml/wording.ts'
import { fetchedUrl, issuer } from './addresses.ts'
import { ownLimits } from './limits.ts'
import { ALGORITHMS } from './tokens.ts'
import { checkWhole, choice, duration, list, section, size, text } from './values.ts'

const jwk = z.record(z.string(), z.unknown(), mustBe('a JWK: a mapping with "kty"')).superRefine(
  checkWhole(function* (jwk) {
    const secret = privateMember(jwk)
    if (secret === undefined) return
    const message =
      'is a part of a private key, which its owner alone should have; write the public key without it, and have the client make a new one'
    yield { path: [secret], message, key: true }
  }),
)

const jwks = z
  .strictObject(
    { keys: list(jwk, 1, 'a list of JWKs').describe('The keys, each a JWK without private members.') },
    mustBeMapping(['keys'], 'a JWK Set: a mapping with "keys"'),
  )
  .describe('The client’s public keys as a JWK Set, which verify its request objects and assertions.')

const client = section({
  id: text('the client’s id')
    .refine((id) => id === '' || isClientId(id), 'must have at most 255 characters, none a control character')
    .describe('The client’s id, exactly as in its tokens.'),
  issuer: issuer().optional().describe('The issuer of its tokens, if several; by default the first.'),
  name: text('the client’s name').optional().describe('A name for operators.'),
  requestObjectSigningAlg: choice(['none', ...ALGORITHMS, 'HS256', 'HS384', 'HS512'])
    .optional()
    .describe('The algorithm by which it must sign request objects; with none, signing is optional.'),
  authentication: choice([
    'client_secret_basic',
    'client_secret_post',
    'client_secret_jwt',
    'private_key_jwt',
    'tls_client_auth',
    'self_signed_tls_client_auth',
    'none',
  ])
    .optional()
    .describe('How it must authenticate at the PAR endpoint; by default not checked.'),
  jwks: jwks.optional(),
  jwksUri: fetchedUrl('the URL of the client’s JWK Set, such as https://client.example.com/jwks')
    .optional()
    .describe('Instead of jwks: the URL of its JWK Set.'),
  limits: ownLimits,
})
  .superRefine(
    checkWhole(function* ({ jwks, jwksUri }) {
      if (jwks !== undefined && jwksUri !== undefined)
        yield { path: ['jwksUri'], message: 'stands beside "jwks"; take one of the two out', key: true }
    }),
  )
  .describe('An API client with settings of its own.')

/** The clients with settings of their own. */
export const clients = list(client, 0, 'a list of clients').describe(
  'The API clients with settings of their own.',
)

/** What is enforced at the PAR endpoint. */
export const par = section({
  issuer: issuer().describe('The identity backend’s issuer: audience of assertions and request objects.'),
  audiences: list(text('an audience'), 0, 'a list of audiences')
    .optional()
    .describe('Further audiences of client assertions; by default <issuer>/token and <issuer>/request.'),
  assertionAudience: choice(['compatible', 'strict'])
    .default('compatible')
    .describe('strict accepts only the issuer as the audience of assertions (FAPI 2.0), not audiences.'),
  leeway: duration('0s', '10m').prefault('10s').describe('Allowed clock difference, in clients’ JWTs.'),
  maxBody: size('1kB', '10MB').prefault('64kB').describe('Largest body at the PAR endpoint; beyond, 413.'),
  unknownClients: choice(['forward', 'refuse'])
    .default('forward')
    .describe('Whether clients that are not listed under clients are forwarded unchecked or refused.'),
})
  .transform(({ leeway, audiences, ...rest }) => {
    const base = rest.issuer.replace(/\/$/, '')
    return { ...rest, audiences: audiences ?? [`${base}/token`, `${base}/request`], leewayMs: leeway }
  })
  .describe('What the gateway enforces on routes with authenticate: par.')
