import { describe, expect, it } from 'vitest'
import { completed, mistakesIn, type Row } from './load-text.ts'

const MISTAKES: readonly Row[] = [
  [
    'upstreams that are a list',
    'upstreams: [{ name: data }]',
    ['1:12: upstreams: must be a mapping of names to upstreams'],
  ],
  [
    'no upstreams',
    'upstreams: {}',
    [
      '8:50: routes[0].upstream: there is no upstream "data"; define it under "upstreams"',
      '9:30: routes[1].upstream: there is no upstream "data"; define it under "upstreams"',
    ],
  ],
  [
    'an upstream’s name with spaces',
    [
      'upstreams:',
      '  data: { url: http://data.internal:4000 }',
      '  Data API: { url: http://data.internal:4000 }',
    ],
    [
      '3:3: upstreams["Data API"]: is not a name; write lower-case letters, digits, "-" and "_", a letter first',
    ],
  ],
  [
    'an upstream with a path',
    ['upstreams:', '  data: { url: http://data.internal:4000/v3 }'],
    [
      '2:16: upstreams.data.url: must have no path, because requests keep theirs; write http://data.internal:4000',
    ],
  ],
  [
    'an upstream with a query',
    ['upstreams:', '  data: { url: "http://data.internal:4000?x=1" }'],
    ['2:16: upstreams.data.url: must end after the port; write http://data.internal:4000'],
  ],
  [
    'an upstream with credentials, without showing them',
    ['upstreams:', '  data: { url: "http://user:hunter2@data.internal:4000" }'],
    ['2:16: upstreams.data.url: must hold no credentials; upstreams are asked without any'],
  ],
  [
    'an upstream without scheme',
    ['upstreams:', '  data: { url: "data.internal:4000" }'],
    ['2:16: upstreams.data.url: must be an http or https address, such as http://data.internal:4000'],
  ],
  [
    'an upstream of another scheme',
    ['upstreams:', '  data: { url: "ftp://data.internal" }'],
    ['2:16: upstreams.data.url: must be an http or https address, such as http://data.internal:4000'],
  ],
  [
    'an upstream without URL',
    ['upstreams:', '  data: { timeout: 5s }'],
    [
      '2:3: upstreams.data.url: is missing; write an address such as http://data.internal:4000, or "urls" for several',
    ],
  ],
  [
    'an upstream with both kinds of addresses, and of different schemes, and twice',
    [
      'upstreams:',
      '  data: { url: http://a, urls: [http://b] }',
      '  identity: { urls: [http://a, https://b, "http://a:80", ftp://c] }',
      '  more: { urls: [] }',
      '  one: { urls: http://a }',
    ],
    [
      '2:26: upstreams.data.urls: stands beside "url"; take one of the two out',
      '3:32: upstreams.identity.urls[1]: differs from the first one in scheme; write all alike',
      '3:43: upstreams.identity.urls[2]: stands twice; take one out',
      '3:58: upstreams.identity.urls[3]: must be an http or https address, such as http://data.internal:4000',
      '4:17: upstreams.more.urls: is empty; write at least one',
      '5:16: upstreams.one.urls: must be a list of addresses such as http://10.0.0.1:4000, in [ ] or with a "- " before each',
    ],
  ],
  [
    'an empty upstream',
    ['upstreams:', '  data:'],
    [
      '2:3: upstreams.data: is empty; write a mapping with keys of url, urls, timeout, connectTimeout, maxConnections, tls, identityHeaders',
    ],
  ],
  [
    'empty tokens',
    'tokens:',
    [
      '1:1: tokens: is empty; write a mapping with keys of issuer, audience, jwks, clientClaim, algorithms, leeway, realm, type, introspection, or a list of such mappings',
    ],
  ],
  [
    'an issuer that is no URL',
    'tokens: { issuer: identity.example.com, audience: a }',
    [
      '1:19: tokens.issuer: must be the issuer’s URL without query or fragment, such as https://identity.example.com/oidc, not "identity.example.com"',
    ],
  ],
  [
    'an issuer with a fragment',
    'tokens: { issuer: "https://identity.example.com/#x", audience: a }',
    [
      '1:19: tokens.issuer: must be the issuer’s URL without query or fragment, such as https://identity.example.com/oidc, not "https://identity.example.com/#x"',
    ],
  ],
  [
    'tokens for nobody',
    'tokens: { issuer: https://identity.example.com }',
    [
      '1:1: tokens.audience: is missing; write the audience of the tokens or a list of some, such as https://api.example.com',
    ],
  ],
  [
    'an empty list of audiences',
    'tokens: { issuer: https://identity.example.com, audience: [] }',
    ['1:59: tokens.audience: is empty; write at least one'],
  ],
  [
    'an audience that is a mapping',
    'tokens: { issuer: https://identity.example.com, audience: { a: b } }',
    [
      '1:59: tokens.audience: must be the audience of the tokens or a list of some, such as https://api.example.com, not a mapping',
    ],
  ],
  [
    'an audience that is a number',
    'tokens: { issuer: https://identity.example.com, audience: [a, 1] }',
    ['1:63: tokens.audience[1]: is a number here; put it in quotes'],
  ],
  [
    'an empty audience',
    'tokens: { issuer: https://identity.example.com, audience: "" }',
    ['1:59: tokens.audience: is empty; write the audience'],
  ],
  [
    'algorithms that anybody can sign with',
    'tokens: { issuer: https://identity.example.com, audience: a, algorithms: [none, HS256, RS265] }',
    [
      '1:75: tokens.algorithms[0]: must not be "none": anybody could write such a token',
      '1:81: tokens.algorithms[1]: must not be HS256: whoever can verify such a token can also forge one',
      '1:88: tokens.algorithms[2]: must be one of PS256, PS384, PS512, ES256, ES384, EdDSA, Ed25519, RS256, RS384, RS512, not "RS265"',
    ],
  ],
  [
    'algorithms that are no list',
    'tokens: { issuer: https://identity.example.com, audience: a, algorithms: RS256 }',
    ['1:74: tokens.algorithms: must be a list of algorithms, in [ ] or with a "- " before each'],
  ],
  [
    'a file of keys that does not exist',
    'tokens: { issuer: https://identity.example.com, audience: a, jwks: keys.json }',
    ['1:68: tokens.jwks: names keys.json, which does not exist'],
  ],
  [
    'a file of keys that is a directory',
    'tokens: { issuer: https://identity.example.com, audience: a, jwks: . }',
    ['1:68: tokens.jwks: names ., which is a directory, not a file'],
  ],
  [
    'a file of keys that holds something else',
    'tokens: { issuer: https://i/, audience: https://api.example.com, jwks: sluice.yaml }',
    [
      "1:72: tokens.jwks: names sluice.yaml, which is no JSON; write the issuer's JWK Set there, or its URL here",
    ],
  ],
  [
    'keys of another scheme',
    'tokens: { issuer: https://identity.example.com, audience: a, jwks: "ftp://x/keys" }',
    ['1:68: tokens.jwks: must be an http or https URL, or the path of a file, not "ftp://x/keys"'],
  ],
  [
    'keys with file: in front',
    'tokens: { issuer: https://identity.example.com, audience: a, jwks: "file:/etc/keys.json" }',
    ['1:68: tokens.jwks: is a path already; write /etc/keys.json'],
  ],
  [
    'a realm with quotes',
    `tokens: { issuer: https://identity.example.com, audience: a, realm: 'a"b' }`,
    ['1:69: tokens.realm: must be plain ASCII without quotes and backslashes, not "a\\"b"'],
  ],
  [
    'a type in the wrong case',
    'tokens: { issuer: https://identity.example.com, audience: a, type: Strict }',
    ['1:68: tokens.type: must be any or strict; did you mean "strict"?'],
  ],
  [
    'tokens that are a text',
    'tokens: https://identity.example.com',
    [
      '1:9: tokens: must be a mapping with keys of issuer, audience, jwks, clientClaim, algorithms, leeway, realm, type, introspection, or a list of such mappings',
    ],
  ],
  ['no issuers', 'tokens: []', ['1:9: tokens: is empty; write at least one']],
  [
    'issuers that stand twice, have no audience, or have keys that are not there',
    [
      'tokens:',
      '  - { issuer: https://a.example.com, audience: a }',
      '  - { issuer: https://b.example.com }',
      '  - { issuer: https://a.example.com, audience: c }',
    ],
    [
      '3:5: tokens[1].audience: is missing; write the audience of the tokens or a list of some, such as https://api.example.com',
      '4:15: tokens[2].issuer: stands twice, first in tokens[0]; make one of the two',
    ],
  ],
  [
    'a file of keys of one of several issuers',
    [
      'tokens:',
      '  - { issuer: https://a.example.com, audience: a }',
      '  - { issuer: https://b.example.com, audience: a, jwks: keys.json }',
    ],
    ['3:57: tokens[1].jwks: names keys.json, which does not exist'],
  ],
  [
    'two issuers whose opaque tokens are looked up',
    [
      'tokens:',
      '  - issuer: https://a.example.com',
      '    audience: a',
      '    introspection: { url: http://a/introspect, clientId: sluice, clientSecret: hunter2 }',
      '  - issuer: https://b.example.com',
      '    audience: b',
      '    introspection: { url: http://b/introspect, clientId: sluice, clientSecret: hunter2 }',
    ],
    [
      '7:5: tokens[1].introspection: stands in tokens[0] too, and opaque tokens do not tell whose they are; take one of the two out',
    ],
  ],
  [
    'an introspection without client',
    ['tokens:', '  issuer: https://a.example.com', '  audience: a', '  introspection: { url: http://a }'],
    [
      '4:3: tokens.introspection.clientId: is missing; write the id of the gateway at the issuer',
      '4:3: tokens.introspection.clientSecret: is missing; write the secret of that client',
    ],
  ],
  [
    'an introspection elsewhere than on the web, with credentials in its URL, and times out of range',
    [
      'tokens:',
      '  - issuer: https://a.example.com',
      '    audience: a',
      '    introspection: { url: introspect, clientId: "", clientSecret: "", timeout: 3 }',
      '  - issuer: https://b.example.com',
      '    audience: b',
      '    introspection: { url: "http://u:hunter2@b", clientId: a, clientSecret: [hunter2], maxAge: 2h }',
    ],
    [
      '4:27: tokens[0].introspection.url: must be the URL of the introspection endpoint, not "introspect"',
      '4:49: tokens[0].introspection.clientId: is empty; write the id of the gateway at the issuer',
      '4:67: tokens[0].introspection.clientSecret: must be the secret of that client',
      '4:80: tokens[0].introspection.timeout: has no unit; write 3ms or 3s',
      '7:5: tokens[1].introspection: stands in tokens[0] too, and opaque tokens do not tell whose they are; take one of the two out',
      '7:27: tokens[1].introspection.url: must hold no credentials and no fragment',
      '7:76: tokens[1].introspection.clientSecret: must be the secret of that client',
      '7:95: tokens[1].introspection.maxAge: must be a duration from 0s to 1h (units ms, s, m, h, d), not "2h"',
    ],
  ],
]

describe('mistakes in upstreams and tokens', () => {
  it.for(MISTAKES)('names %s', async ([, snippet, lines]) => {
    const text = typeof snippet === 'string' ? snippet : snippet.join('\n')
    const mistakes = await mistakesIn(completed(text))
    expect(mistakes).toEqual(lines.map((line) => `sluice.yaml:${line}`))
  })
})
