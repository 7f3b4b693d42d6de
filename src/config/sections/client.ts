import { z } from 'zod'
import { fetchedUrl, issuer } from './addresses.ts'
import { ownLimits } from './limits.ts'
import { ALGORITHMS } from './tokens.ts'
import { isClientId } from '../../authenticate/token/claims.ts'
import { choice, list, section, text } from './values.ts'
import { must, mustSecretly } from '../yaml/wording.ts'

const { error } = mustSecretly('a JWK Set: a mapping with "keys"')
const jwkSet = {
  error: (raised: Parameters<typeof error>[0] & { readonly code?: string | undefined }) =>
    raised.code === 'unrecognized_keys' ? 'keys' : error(raised),
}

const jwks = z
  .strictObject(
    {
      keys: z
        .array(
          z.record(z.string(), z.unknown(), mustSecretly('a JWK: a mapping with "kty"')),
          must('a list of JWKs, in [ ] or with a "- " before each', (input) =>
            Array.isArray(input) ? undefined : 'must be a list of JWKs, in [ ] or with a "- " before each',
          ),
        )
        .min(1, 'is empty; write at least one JWK')
        .describe('The keys, each a JWK without private members.'),
    },
    jwkSet,
  )
  .describe('Its public keys as a JWK Set, for its request objects and assertions.')

const client = section({
  id: text('the client’s id')
    .refine((id) => id === '' || isClientId(id), 'must have at most 255 characters, none a control character')
    .describe('The id as tokens name it, compared exactly.'),
  issuer: issuer()
    .optional()
    .describe('Whose tokens name it so, where "tokens" is a list; the first issuer, unless set.'),
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
}).describe('An API client that is not as all others.')

/** The clients with settings of their own. */
export const clients = list(client, 0, 'a list of clients').describe(
  'The API clients with settings of their own.',
)
