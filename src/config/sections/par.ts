import { z } from 'zod'
import { isClientId } from '../../authenticate/token/claims.ts'
import { privateMember } from '../../authenticate/token/key-set.ts'
import { must, mustHave } from '../yaml/wording.ts'
import { fetchedUrl, issuer } from './addresses.ts'
import { ownLimits } from './limits.ts'
import { ALGORITHMS } from './tokens.ts'
import { checking, choice, duration, list, section, size, text } from './values.ts'

const jwk = z.record(z.string(), z.unknown(), must('a JWK: a mapping with "kty"')).superRefine(
  checking(function* (jwk) {
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
    mustHave(['keys'], 'a JWK Set: a mapping with "keys"'),
  )
  .describe('Its public keys, for its request objects and assertions.')

const client = section({
  id: text('the client’s id')
    .refine((id) => id === '' || isClientId(id), 'must have at most 255 characters, none a control character')
    .describe('The id as tokens name it, compared exactly.'),
  issuer: issuer().optional().describe('The issuer whose tokens name it so; the first one, unless set.'),
  name: text('the client’s name').optional().describe('What operators call it.'),
  requestObjectSigningAlg: choice(['none', ...ALGORITHMS, 'HS256', 'HS384', 'HS512'])
    .optional()
    .describe('With which algorithm it must sign request objects; none: it need not.'),
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
    .describe('How it authenticates at the PAR endpoint; not checked, unless set.'),
  jwks: jwks.optional(),
  jwksUri: fetchedUrl('the URL of the client’s JWK Set, such as https://client.example.com/jwks')
    .optional()
    .describe('In place of jwks: where its JWK Set is.'),
  limits: ownLimits,
})
  .superRefine(
    checking(function* ({ jwks, jwksUri }) {
      if (jwks !== undefined && jwksUri !== undefined)
        yield { path: ['jwksUri'], message: 'stands beside "jwks"; take one of the two out', key: true }
    }),
  )
  .describe('An API client that is not as all others.')

/** The clients with settings of their own. */
export const clients = list(client, 0, 'a list of clients').describe(
  'The API clients with settings of their own.',
)

/** What is enforced at the PAR endpoint. */
export const par = section({
  issuer: issuer().describe('The audience of assertions and request objects: the identity backend’s issuer.'),
  audiences: list(text('an audience'), 0, 'a list of audiences')
    .optional()
    .describe('What else an assertion’s audience may be; <issuer>/token and <issuer>/request, unless set.'),
  assertionAudience: choice(['compatible', 'strict'])
    .default('compatible')
    .describe('strict takes assertions for the issuer alone (FAPI 2.0).'),
  leeway: duration('0s', '10m').prefault('10s').describe('How far clocks may differ.'),
  maxBody: size('1kB', '10MB').prefault('64kB').describe('Most bytes of a request to the PAR endpoint.'),
  unknownClients: choice(['forward', 'refuse']).default('forward').describe('Clients that are not listed.'),
})
  .transform(({ leeway, audiences, ...rest }) => {
    const base = rest.issuer.replace(/\/$/, '')
    return { ...rest, audiences: audiences ?? [`${base}/token`, `${base}/request`], leewayMs: leeway }
  })
  .describe('What the gateway itself enforces where a route says par.')
