import { describe, expect, it } from 'vitest'
import { makeKey } from '../helpers/issuer.ts'
import { completed, mistakesIn, type Row } from './load-text.ts'

const { kty, crv, x, y } = makeKey('ES256').jwk
const EC = `{ kty: ${kty}, crv: ${crv}, x: "${x}", y: "${y}" }`

/** A client with these settings. */
const client = (settings: string): string => `clients: [{ id: a, ${settings} }]`

const MISTAKES: readonly Row[] = [
  [
    'rules of the PAR endpoint without an issuer, with words that are not known',
    'par: { assertionAudience: Strict, unknownClients: deny, leeway: 1h, maxBody: 64, audience: a }',
    [
      '1:1: par.issuer: is missing; write the issuer’s URL without query or fragment, such as https://identity.example.com/oidc',
      '1:27: par.assertionAudience: must be compatible or strict; did you mean "strict"?',
      '1:51: par.unknownClients: must be forward or refuse, not "deny"',
      '1:65: par.leeway: must be a duration from 0s to 10m (units ms, s, m, h, d), not "1h"',
      '1:78: par.maxBody: has no unit; write 64kB',
      '1:82: par.audience: unknown key; did you mean "audiences"?',
    ],
  ],
  [
    'rules of the PAR endpoint that are a text',
    'par: strict',
    [
      '1:6: par: must be a mapping with keys of issuer, audiences, assertionAudience, leeway, maxBody, unknownClients',
    ],
  ],
  [
    'an algorithm and an authentication that do not exist',
    client('requestObjectSigningAlg: ps256, authentication: private_key'),
    [
      '1:45: clients[0].requestObjectSigningAlg: must be none, PS256, PS384, PS512, ES256, ES384, EdDSA, Ed25519, RS256, RS384, RS512, HS256, HS384 or HS512; did you mean "PS256"?',
      '1:68: clients[0].authentication: must be client_secret_basic, client_secret_post, client_secret_jwt, private_key_jwt, tls_client_auth, self_signed_tls_client_auth or none, not "private_key"',
    ],
  ],
  [
    'keys from two places',
    client(`jwks: { keys: [${EC}] }, jwksUri: https://a.example.com/jwks`),
    [`1:${29 + EC.length + 11}: clients[0].jwksUri: stands beside "jwks"; take one of the two out`],
  ],
  [
    'private keys, without showing them',
    [
      'clients:',
      '  - id: a',
      '    jwks:',
      '      keys:',
      `        - ${EC.replace(' }', ', d: hunter2 }')}`,
      '        - { kty: oct, k: hunter2 }',
      '        - { kty: RSA, n: AQAB, e: AQAB, p: 1, q: hunter2 }',
    ],
    [
      `5:${EC.length + 11}: clients[0].jwks.keys[0].d: is a part of a private key, which its owner alone should have; write the public key without it, and have the client make a new one`,
      '6:23: clients[0].jwks.keys[1].k: is a part of a private key, which its owner alone should have; write the public key without it, and have the client make a new one',
      '7:41: clients[0].jwks.keys[2].p: is a part of a private key, which its owner alone should have; write the public key without it, and have the client make a new one',
    ],
  ],
  [
    'keys that are none, without showing them',
    [
      'clients:',
      '  - { id: a, jwks: hunter2 }',
      '  - { id: b, jwks: { keys: [] } }',
      '  - { id: c, jwks: { keys: hunter2 } }',
      '  - { id: d, jwks: { keys: [hunter2] } }',
      '  - { id: e, jwksUri: "https://u:hunter2@e.example.com" }',
      '  - { id: f, jwksUri: /etc/keys.json }',
    ],
    [
      '2:20: clients[0].jwks: must be a JWK Set: a mapping with "keys"',
      '3:28: clients[1].jwks.keys: is empty; write at least one JWK',
      '4:28: clients[2].jwks.keys: must be a list of JWKs, in [ ] or with a "- " before each',
      '5:29: clients[3].jwks.keys[0]: must be a JWK: a mapping with "kty"',
      '6:23: clients[4].jwksUri: must hold no credentials and no fragment',
      '7:23: clients[5].jwksUri: must be the URL of the client’s JWK Set, such as https://client.example.com/jwks, not "/etc/keys.json"',
    ],
  ],
  [
    'keys that verify nothing, or not what the client signs with',
    [
      'clients:',
      '  - { id: a, jwks: { keys: [{ kty: RSA, n: AQAB, e: AQAB }, { use: enc }] } }',
      `  - { id: b, requestObjectSigningAlg: PS256, jwks: { keys: [${EC}] } }`,
      `  - { id: c, requestObjectSigningAlg: HS256, jwks: { keys: [${EC}] } }`,
    ],
    [
      '2:28: clients[0].jwks.keys: hold no key that verifies signatures; write a public one: RSA of 2048 to 4096 bits with an exponent of at most 64, P-256, P-384 or Ed25519',
      '3:60: clients[1].jwks.keys: hold no key for PS256, with which requestObjectSigningAlg says that it signs; add it',
    ],
  ],
]

describe('mistakes in what is enforced at the PAR endpoint', () => {
  it.for(MISTAKES)('names %s', async ([, snippet, lines]) => {
    const text = typeof snippet === 'string' ? snippet : snippet.join('\n')
    const mistakes = await mistakesIn(completed(text))
    expect(mistakes).toEqual(lines.map((line) => `sluice.yaml:${line}`))
    expect(mistakes.join('\n')).not.toContain('hunter2')
  })
})
