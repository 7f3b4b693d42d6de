import { describe, expect, it } from 'vitest'
import { completed, mistakesIn, type Row } from './load-text.ts'

const limit = (rest: string): readonly string[] => [
  'limits:',
  `  requests: { per: [client], limit: 1000, window: 1m, ${rest} }`,
  '  sync: { per: [client, connection], limit: 1, window: 5s }',
]
const change = (announced: string, from: string): string =>
  `{ announced: ${announced}, from: ${from}, limit: 5 }`

const MISTAKES: readonly Row[] = [
  [
    'a shadow that is no yes or no',
    limit('shadow: maybe'),
    ['2:63: limits.requests.shadow: must be true or false, not "maybe"'],
  ],
  [
    'changes that are no list',
    limit('changes: { from: 2027-01-01T00:00:00Z }'),
    ['2:64: limits.requests.changes: must be a list of announced changes, in [ ] or with a "- " before each'],
  ],
  [
    'an empty change',
    limit('changes: [{}]'),
    [
      '2:65: limits.requests.changes[0].announced: is missing; write an instant such as 2027-01-31T00:00:00Z',
      '2:65: limits.requests.changes[0].from: is missing; write an instant such as 2027-01-31T00:00:00Z',
      '2:65: limits.requests.changes[0].limit: is missing; write a whole number, 0 or more',
    ],
  ],
  [
    'a change of the window',
    limit('changes: [{ announced: 2026-12-01T00:00Z, from: 2027-01-15T00:00Z, limit: 5, window: 1s }]'),
    ['2:132: limits.requests.changes[0].window: unknown key; write one of announced, from, limit'],
  ],
  [
    'dates without time, offset or T, and a number',
    limit(
      `changes: [${change('2026-12-01', '2027-01-15T00:00:00')}, ${change('2026-12-01 00:00Z', '1800000000')}]`,
    ),
    [
      '2:78: limits.requests.changes[0].announced: has no time of day; write 2026-12-01T00:00:00Z',
      '2:96: limits.requests.changes[0].from: has no offset, so it is another instant in every place; write 2027-01-15T00:00:00Z, or 2027-01-15T00:00:00+01:00 with the offset that is meant',
      '2:142: limits.requests.changes[1].announced: must have a "T" and no space; write 2026-12-01T00:00Z',
      '2:167: limits.requests.changes[1].from: must be an instant such as 2027-01-31T00:00:00Z, not 1800000000',
    ],
  ],
  [
    'days and times that there are not',
    limit(`changes: [${change('2026-02-29T00:00:00Z', '2027-01-15T24:30:00Z')}]`),
    [
      '2:78: limits.requests.changes[0].announced: is no instant that there is; look at the day, the time and the offset',
      '2:106: limits.requests.changes[0].from: is no instant that there is; look at the day, the time and the offset',
    ],
  ],
  [
    'words for a date',
    limit(`changes: [${change('soon', '2027-01-15T00:00:00Z')}]`),
    [
      '2:78: limits.requests.changes[0].announced: must be an instant such as 2027-01-31T00:00:00Z, not "soon"',
    ],
  ],
  [
    'a change announced after it takes effect, by the offset alone',
    limit(`changes: [${change('2027-01-15T00:00:00-01:00', '2027-01-15T00:30:00Z')}]`),
    ['2:78: limits.requests.changes[0].announced: is after "from"; announce a change before it takes effect'],
  ],
  [
    'changes out of order',
    limit(
      `changes: [${change('2026-01-01T00:00Z', '2027-03-01T00:00Z')}, ${change('2026-01-01T00:00Z', '2027-02-01T00:00Z')}]`,
    ),
    [
      '2:172: limits.requests.changes[1].from: is before that of an earlier change; write them in the order in which they take effect',
    ],
  ],
  [
    'two changes at once, in two offsets',
    limit(
      `changes: [${change('2026-01-01T00:00Z', '2027-03-01T01:00+01:00')}, ${change('2026-01-01T00:00Z', '2027-03-01T00:00Z')}]`,
    ),
    ['2:177: limits.requests.changes[1].from: is when another change takes effect; take one of the two out'],
  ],
  [
    'a shadow limit first, and alone',
    limit('shadow: true'),
    [
      '9:87: routes[0].limits[0]: "requests" is a shadow limit, whose headers no caller is to see; write a live limit before it',
      '10:67: routes[1].limits[0]: "requests" is a shadow limit, which refuses nothing, and no live one stands with it; write a live limit before it',
    ],
  ],
  [
    'clients that are a mapping',
    'clients: { acme: {} }',
    ['1:10: clients: must be a list of clients, in [ ] or with a "- " before each'],
  ],
  [
    'settings of a client that are not known',
    'clients: [{ id: acme, redirectUris: [] }]',
    [
      '1:23: clients[0].redirectUris: unknown key; write one of id, issuer, name, requestObjectSigningAlg, authentication, jwks, jwksUri, limits',
    ],
  ],
  [
    'a client without id, one with an empty one, and one with a number',
    'clients: [{ name: Acme }, { id: "" }, { id: 42 }]',
    [
      '1:11: clients[0].id: is missing; write the client’s id',
      '1:33: clients[1].id: is empty; write the client’s id',
      '1:45: clients[2].id: is a number here; put it in quotes',
    ],
  ],
  [
    'a client whose id no token can name',
    `clients: [{ id: ${'a'.repeat(256)} }, { id: "a\\nb" }, { id: ${'a'.repeat(255)} }]`,
    [
      '1:17: clients[0].id: must have at most 255 characters, none a control character',
      '1:283: clients[1].id: must have at most 255 characters, none a control character',
    ],
  ],
  [
    'a client that stands twice',
    'clients: [{ id: acme }, { id: Acme }, { id: acme }]',
    ['1:45: clients[2].id: stands twice, first in clients[0]; make one of the two'],
  ],
  [
    'a client that stands twice, once with the first issuer by its name, and one of an issuer that there is not',
    [
      'tokens: [{ issuer: https://a, audience: a }, { issuer: https://b, audience: a }]',
      'clients: [{ id: x }, { id: x, issuer: https://b }, { id: x, issuer: https://a }, { id: y, issuer: https://c }]',
    ],
    [
      '2:58: clients[2].id: stands twice, first in clients[0]; make one of the two',
      '2:99: clients[3].issuer: is the issuer of none of "tokens"; write https://a or https://b, or take it out',
    ],
  ],
  [
    'a client of another issuer than the only one',
    ['tokens: { issuer: https://a, audience: a }', 'clients: [{ id: x, issuer: https://a/ }]'],
    ['2:28: clients[0].issuer: is the issuer of none of "tokens"; write https://a, or take it out'],
  ],
  [
    'own limits of limits that there are not',
    'clients: [{ id: acme, limits: { request: { limit: 5 }, Total: { limit: 5 } } }]',
    [
      '1:33: clients[0].limits.request: there is no limit "request"; did you mean "requests"?',
      '1:56: clients[0].limits.Total: there is no limit "Total"; define it under "limits" or write requests or sync',
    ],
  ],
  [
    'an own limit of one that is not counted per client',
    [
      'clients: [{ id: acme, limits: { sync: { limit: 5 } } }]',
      'limits:',
      '  requests: { per: [client], limit: 1000, window: 1m }',
      '  sync: { per: [connection], limit: 1, window: 5s }',
    ],
    [
      '1:33: clients[0].limits.sync: is a limit that is not counted per client, so no client has one of its own; add client to its "per" or take this out',
    ],
  ],
  [
    'own limits that are numbers, empty or out of range',
    [
      'clients:',
      '  - { id: a, limits: { requests: 5000 } }',
      '  - { id: b, limits: { requests: {} } }',
      '  - { id: c, limits: { requests: { limit: -1, window: 60d, until: 2027-01-01 } } }',
    ],
    [
      '2:34: clients[0].limits.requests: must be a mapping with keys of limit, window, until',
      '3:24: clients[1].limits.requests.limit: is missing; write a whole number, 0 or more',
      '4:43: clients[2].limits.requests.limit: must be a whole number, 0 or more, not -1',
      '4:55: clients[2].limits.requests.window: must be a duration from 100ms to 31d (units ms, s, m, h, d), not "60d"',
      '4:67: clients[2].limits.requests.until: has no time of day; write 2027-01-01T00:00:00Z',
    ],
  ],
  [
    'limits that a cluster cannot decide together',
    [
      'store: { redis: { cluster: [redis://a] } }',
      'limits:',
      '  requests: { per: [client], limit: 1000, window: 1m }',
      '  sync: { per: [connection, client], limit: 1, window: 5s }',
    ],
    [
      '9:97: routes[0].limits[1]: "POST /sync/:connection" decides "requests" (per client first) and "sync" (per connection first) together, which a cluster cannot: it keeps them in different places; let the "per" of both begin with the same part',
    ],
  ],
  [
    'a limit that a cluster cannot decide together with proofs',
    [
      'store: { redis: { cluster: [redis://a] } }',
      'limits: { requests: { per: [ip, client], limit: 1000, window: 1m } }',
      'routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [requests] }]',
    ],
    [
      '3:72: routes[0].limits[0]: "/*" decides "requests" (per ip first) together with DPoP proofs, which a cluster cannot: it keeps them with their client; let the "per" begin with client',
    ],
  ],
  [
    'a draft that there is not',
    'headers: { draft: draft-7 }',
    ['1:19: headers.draft: must be none or draft-10; did you mean "draft-10"?'],
  ],
]

describe('mistakes in changes, shadow limits and clients', () => {
  it.for(MISTAKES)('names %s', async ([, snippet, lines]) => {
    const text = typeof snippet === 'string' ? snippet : snippet.join('\n')
    const mistakes = await mistakesIn(completed(text))
    expect(mistakes).toEqual(lines.map((line) => `sluice.yaml:${line}`))
  })

  it('allows limits of several first parts together where one Redis keeps them all', async () => {
    const text = [
      'store: { redis: { url: redis://a } }',
      'limits:',
      '  requests: { per: [client], limit: 1000, window: 1m }',
      '  sync: { per: [connection], limit: 1, window: 5s }',
    ].join('\n')
    expect(await mistakesIn(completed(text))).toEqual([])
  })
})
