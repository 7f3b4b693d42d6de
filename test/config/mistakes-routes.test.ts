import { describe, expect, it } from 'vitest'
import { completed, mistakesIn, type Row } from './load-text.ts'

const MISTAKES: readonly Row[] = [
  [
    'a per that is no list',
    [
      'limits:',
      '  requests: { per: client, limit: 1000, window: 1m }',
      '  sync: { per: [client, connection], limit: 1, window: 5s }',
    ],
    [
      '2:20: limits.requests.per: must be a list of what a key is made of, such as [client], in [ ] or with a "- " before each',
    ],
  ],
  [
    'an empty per',
    [
      'limits:',
      '  requests: { per: [], limit: 1000, window: 1m }',
      '  sync: { per: [client, connection], limit: 1, window: 5s }',
    ],
    ['2:20: limits.requests.per: is empty; write at least one'],
  ],
  [
    'a per with a colon',
    [
      'limits:',
      '  requests: { per: [client], limit: 1000, window: 1m }',
      '  sync: { per: [client, ":connection"], limit: 1, window: 5s }',
    ],
    ['3:25: limits.sync.per[1]: is written without the colon; write connection'],
  ],
  [
    'a per with a part twice',
    [
      'limits:',
      '  requests: { per: [client, client], limit: 1000, window: 1m }',
      '  sync: { per: [client, connection], limit: 1, window: 5s }',
    ],
    ['2:29: limits.requests.per[1]: stands twice; take one "client" out'],
  ],
  [
    'limits that are no whole numbers',
    [
      'limits:',
      '  requests: { per: [client], limit: -1, window: 1m }',
      '  sync: { per: [client, connection], limit: 1.5, window: 5s }',
      '  other: { per: [client], limit: many, window: 5s }',
      '  huge: { per: [client], limit: 1e300, window: 5s }',
    ],
    [
      '2:37: limits.requests.limit: must be a whole number, 0 or more, not -1',
      '3:45: limits.sync.limit: must be a whole number, 0 or more, not 1.5',
      '4:34: limits.other.limit: must be a whole number, 0 or more, not "many"',
      '5:33: limits.huge.limit: must be a whole number, 0 or more, not 1e+300',
    ],
  ],
  [
    'windows out of range, without unit, or missing',
    [
      'limits:',
      '  requests: { per: [client], limit: 1000, window: 99ms }',
      '  sync: { per: [client, connection], limit: 1, window: 32d }',
      '  other: { per: [client], limit: 1, window: 60 }',
      '  none: { per: [client], limit: 1 }',
    ],
    [
      '2:51: limits.requests.window: must be a duration from 100ms to 31d (units ms, s, m, h, d), not "99ms"',
      '3:56: limits.sync.window: must be a duration from 100ms to 31d (units ms, s, m, h, d), not "32d"',
      '4:45: limits.other.window: has no unit; write 60s',
      '5:3: limits.none.window: is missing; write a duration from 100ms to 31d (units ms, s, m, h, d)',
    ],
  ],
  [
    'a limit’s name with spaces',
    [
      'limits:',
      '  requests: { per: [client], limit: 1000, window: 1m }',
      '  sync: { per: [client, connection], limit: 1, window: 5s }',
      '  Per Minute: { per: [client], limit: 1, window: 60s }',
    ],
    [
      '4:3: limits["Per Minute"]: is not a name; write lower-case letters, digits, "-" and "_", a letter first',
    ],
  ],
  [
    'a limit defined twice',
    [
      'limits:',
      '  requests: { per: [client], limit: 1000, window: 1m }',
      '  sync: { per: [client, connection], limit: 1, window: 5s }',
      '  requests: { per: [client], limit: 5, window: 1m }',
    ],
    ['4:3: limits.requests: stands here again, first in line 2; take one of the two out'],
  ],
  ['empty limits', 'limits:', ['1:1: limits: is empty; write a mapping of names to limits']],
  [
    'a route that is a text',
    'routes: ["/*"]',
    [
      '1:10: routes[0]: must be a mapping with keys of match, upstream, respond, authenticate, scope, limits, maxBody, timeout',
    ],
  ],
  [
    'routes that are a mapping',
    'routes: { a: 1 }',
    ['1:9: routes: must be a list of routes, in [ ] or with a "- " before each'],
  ],
  ['no routes', 'routes: []', ['1:9: routes: is empty; write at least one']],
  [
    'an empty route',
    ['routes:', '  - {}'],
    [
      '2:5: routes[0].match: is missing; write a pattern such as "POST /sync/:connection"',
      '2:5: routes[0].authenticate: is missing; write none, bearer or par',
      '2:5: routes[0].upstream: is missing; write the name of an upstream, or "respond: limits"',
    ],
  ],
  [
    'a route that does not say who may enter',
    ['routes:', '  - { match: "/*", upstream: data }'],
    ['2:5: routes[0].authenticate: is missing; write none, bearer or par'],
  ],
  [
    'a kind of authentication that does not exist',
    ['routes:', '  - { match: "/*", upstream: data, authenticate: basic }'],
    ['2:50: routes[0].authenticate: must be none, bearer or par, not "basic"'],
  ],
  [
    'a PAR endpoint without rules',
    ['routes:', '  - { match: "POST /oidc/request", upstream: data, authenticate: par }'],
    [
      '1:1: par: is missing; routes[0] says "authenticate: par", so write the issuer for which assertions are made',
    ],
  ],
  [
    'PAR endpoints that take other methods, have limits, bounds or scopes of their own, or no upstream',
    [
      'par: { issuer: https://id.example.com }',
      'routes:',
      '  - { match: "/a", upstream: data, authenticate: par }',
      '  - { match: "GET,POST id.example.com/b", upstream: data, authenticate: par }',
      '  - { match: "POST /c", upstream: data, authenticate: par, limits: [requests] }',
      '  - { match: "POST /d", upstream: data, authenticate: par, maxBody: 1kB, scope: [a] }',
      '  - { match: "POST /e", respond: limits, authenticate: par }',
    ],
    [
      '3:14: routes[0].match: must take POST alone, because a pushed authorisation request is one; write "POST /a"',
      '4:14: routes[1].match: must take POST alone, because a pushed authorisation request is one; write "POST id.example.com/b"',
      '5:60: routes[2].limits: must be left out beside "authenticate: par": identity traffic is never limited',
      '6:60: routes[3].maxBody: must be left out beside "authenticate: par"; write par.maxBody',
      '6:74: routes[3].scope: goes with "authenticate: bearer" alone, since only tokens have scopes; take it out',
      '7:56: routes[4].authenticate: must be bearer, because a caller is told of its own limits alone',
    ],
  ],
  [
    'scopes that are none, and scopes without a token',
    [
      'routes:',
      '  - { match: "/a", upstream: data, authenticate: bearer, scope: read }',
      '  - { match: "/b", upstream: data, authenticate: bearer, scope: [] }',
      '  - { match: "/c", upstream: data, authenticate: bearer, scope: ["read write", ""] }',
      '  - { match: "/d", upstream: data, authenticate: none, scope: [read] }',
    ],
    [
      '2:65: routes[0].scope: must be a list of scopes, in [ ] or with a "- " before each',
      '3:65: routes[1].scope: is empty; write at least one',
      '4:66: routes[2].scope[0]: holds a space; write each scope apart, as [read, write]',
      '4:80: routes[2].scope[1]: must be a scope such as payments:read, not ""',
      '5:56: routes[3].scope: goes with "authenticate: bearer" alone, since only tokens have scopes; take it out',
    ],
  ],
  [
    'an answer that the gateway does not give',
    ['routes:', '  - { match: "GET /v3/rate-limits", respond: quota, authenticate: bearer }'],
    ['2:46: routes[0].respond: must be limits, not "quota"'],
  ],
  [
    'a route that two answer',
    [
      'routes:',
      '  - { match: "GET /v3/rate-limits", upstream: data, respond: limits, authenticate: bearer }',
    ],
    ['2:53: routes[0].respond: stands beside "upstream"; take one of the two out'],
  ],
  [
    'an answer about nobody, which costs a call and waits for an upstream',
    [
      'routes:',
      '  - { match: "/mine", respond: limits, authenticate: none, limits: [requests], timeout: 5s }',
    ],
    [
      '2:54: routes[0].authenticate: must be bearer, because a caller is told of its own limits alone',
      '2:60: routes[0].limits: must be left out beside "respond": to read one’s limits costs no call',
      '2:69: routes[0].limits[0]: the limit "requests" is per client, whom nobody proves to be here; write "authenticate: bearer" or take the limit out',
      '2:80: routes[0].timeout: must be left out beside "respond": no upstream is asked',
    ],
  ],
  [
    'a misspelt key of a route',
    ['routes:', '  - { match: "/*", upstream: data, autenticate: bearer }'],
    [
      '2:5: routes[0].authenticate: is missing; write none, bearer or par',
      '2:36: routes[0].autenticate: unknown key; did you mean "authenticate"?',
    ],
  ],
  [
    'upstreams that nobody defined',
    [
      'routes:',
      '  - { match: "/*", upstream: dta, authenticate: none }',
      '  - { match: "/a", upstream: billing, authenticate: none }',
    ],
    [
      '2:30: routes[0].upstream: there is no upstream "dta"; did you mean "data"?',
      '3:14: routes[1].match: can never match: "/*" (routes[0]) takes all that "/a" would; put it first or take it out',
      '3:30: routes[1].upstream: there is no upstream "billing"; define it under "upstreams" or write data',
    ],
  ],
  [
    'limits that nobody defined',
    ['routes:', '  - { match: "/*", upstream: data, authenticate: bearer, limits: [request, unknown] }'],
    [
      '2:67: routes[0].limits[0]: there is no limit "request"; did you mean "requests"?',
      '2:76: routes[0].limits[1]: there is no limit "unknown"; define it under "limits" or write requests or sync',
    ],
  ],
  [
    'a limit named twice',
    ['routes:', '  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests, requests] }'],
    ['2:77: routes[0].limits[1]: stands twice; take one "requests" out'],
  ],
  [
    'limits that are no list',
    ['routes:', '  - { match: "/*", upstream: data, authenticate: bearer, limits: requests }'],
    ['2:66: routes[0].limits: must be a list of limits, in [ ] or with a "- " before each'],
  ],
  [
    'a limit per a parameter that the route lacks',
    [
      'routes:',
      '  - { match: "POST /sync/:id", upstream: data, authenticate: bearer, limits: [requests, sync] }',
    ],
    [
      '2:89: routes[0].limits[1]: the limit "sync" is per connection, but "POST /sync/:id" has no :connection; name a segment :connection or take the limit out',
    ],
  ],
  [
    'misspelt parts of keys, once for all the routes of their limits',
    [
      'limits:',
      '  requests: { per: [clinet], limit: 1000, window: 1m }',
      '  sync: { per: [client, conection], limit: 1, window: 5s }',
      'routes:',
      '  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }',
      '  - { match: "POST /v3/sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }',
      '  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }',
    ],
    [
      '2:21: limits.requests.per[0]: no route of this limit has a :clinet in its path; did you mean "client"?',
      '3:25: limits.sync.per[1]: no route of this limit has a :conection in its path; did you mean "connection"?',
    ],
  ],
  [
    'kinds of parameters that are none, or would let callers take long',
    [
      'routes:',
      '  - { match: "/:a/:b/:c/:d/:e/:f/:g/:h/:i/:j", upstream: data, authenticate: bearer, limits: [sync] }',
      'limits: { sync: { per: [a, b, c, d, e, f, g, h, i, j], limit: 1, window: 5s } }',
      'parameters:',
      '  a: uid',
      '  b: number',
      '  c: "[a-z"',
      '  d: "(a+)+"',
      '  e: "(?:a|a){2,}"',
      '  f: "a*b*c*"',
      '  g: "(a)\\\\1"',
      '  h: 7',
      '  i: "a)|(?:b"',
      '  j: "(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|GB[0-9]+(?:-[a-z]{3})?|[+*?(|{]|\\\\d{2}"',
    ],
    [
      '5:6: parameters.a: must be plain, uuid, integer or a regular expression such as "[a-z]{2}[0-9]+"; did you mean "uuid"?',
      '6:6: parameters.b: must be plain, uuid, integer or a regular expression such as "[a-z]{2}[0-9]+", not "number"',
      '7:6: parameters.c: is no regular expression: Unterminated character class',
      '8:6: parameters.d: may take too long: it repeats a group that has alternatives or repetitions in it; write it without',
      '9:6: parameters.e: may take too long: it repeats a group that has alternatives or repetitions in it; write it without',
      '10:6: parameters.f: may take too long: it has more than 2 of *, +, ? and {n,m}; write {n} or characters in [ ]',
      '11:6: parameters.g: must not refer back to a group; write out what it matches',
      '12:6: parameters.h: must be plain, uuid, integer or a regular expression such as "[a-z]{2}[0-9]+", not 7',
      "13:6: parameters.i: is no regular expression: Unmatched ')'",
    ],
  ],
  [
    'kinds of parameters that no route has',
    ['parameters: { ":connection": uuid, conection: uuid, account: uuid }'],
    [
      '1:15: parameters[":connection"]: is not the name of a parameter; write it as routes do, without the colon',
      '1:36: parameters.conection: no route has a :conection in its path; did you mean "connection"?',
      '1:53: parameters.account: no route has a :account in its path; take it out',
    ],
  ],
  [
    'a limit per client on an open route',
    ['routes:', '  - { match: "/*", upstream: data, authenticate: none, limits: [requests] }'],
    [
      '2:65: routes[0].limits[0]: the limit "requests" is per client, whom nobody proves to be here; write "authenticate: bearer" or take the limit out',
    ],
  ],
  [
    'a route that an earlier one hides',
    [
      'routes:',
      '  - { match: "/v3/*", upstream: data, authenticate: bearer }',
      '  - { match: "GET /v3/:a/b", upstream: data, authenticate: bearer }',
    ],
    [
      '3:14: routes[1].match: can never match: "/v3/*" (routes[0]) takes all that "GET /v3/:a/b" would; put it first or take it out',
    ],
  ],
  [
    'a route that is there already, but for case and slash',
    [
      'routes:',
      '  - { match: "GET /a", upstream: data, authenticate: bearer }',
      '  - { match: "GET /A/", upstream: data, authenticate: bearer }',
    ],
    [
      '3:14: routes[1].match: can never match: "GET /a" (routes[0]) takes all that "GET /A/" would; put it first or take it out',
    ],
  ],
  [
    'a pattern without slash',
    ['routes:', '  - { match: "sync", upstream: data, authenticate: bearer }'],
    [
      '2:14: routes[0].match: is not a pattern: write "[METHOD[,METHOD]] [host]/path", such as "POST /sync/:connection"',
    ],
  ],
  [
    'a pattern with an unknown method',
    ['routes:', '  - { match: "FETCH /sync", upstream: data, authenticate: bearer }'],
    [
      '2:14: routes[0].match: is not a pattern: "FETCH" is no method that a route takes; use GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS',
    ],
  ],
  [
    'a pattern with a star within a segment',
    ['routes:', '  - { match: "/a*/b", upstream: data, authenticate: bearer }'],
    [
      '2:14: routes[0].match: is not a pattern: "*" stands only as the last segment and takes the rest of the path',
    ],
  ],
  [
    'a pattern with a star in the middle',
    ['routes:', '  - { match: "/*/b", upstream: data, authenticate: bearer }'],
    [
      '2:14: routes[0].match: is not a pattern: "*" stands only as the last segment and takes the rest of the path',
    ],
  ],
  [
    'a pattern with a parameter twice',
    ['routes:', '  - { match: "/:a/:a", upstream: data, authenticate: bearer }'],
    ['2:14: routes[0].match: is not a pattern: the parameter ":a" stands twice; give each its own name'],
  ],
  [
    'a pattern with a port',
    ['routes:', '  - { match: "api.example.com:80/x", upstream: data, authenticate: bearer }'],
    ['2:14: routes[0].match: is not a pattern: "api.example.com:80" is no host name; leave the port out'],
  ],
  [
    'a pattern with an empty segment',
    ['routes:', '  - { match: "//x", upstream: data, authenticate: bearer }'],
    [
      '2:14: routes[0].match: is not a pattern: the segment "" cannot match; write plain characters, ":name" or a last "*"',
    ],
  ],
  [
    'a pattern with a query',
    ['routes:', '  - { match: "/x?y=1", upstream: data, authenticate: bearer }'],
    [
      '2:14: routes[0].match: is not a pattern: the segment "x?y=1" cannot match; write plain characters, ":name" or a last "*"',
    ],
  ],
  [
    'a parameter that would hide the client',
    ['routes:', '  - { match: "/:client", upstream: data, authenticate: bearer }'],
    [
      `2:14: routes[0].match: is not a pattern: ":client" would hide the caller's own client in a limit's "per"; choose another name`,
    ],
  ],
  [
    'a pattern with needless escapes',
    ['routes:', '  - { match: "/a%41/%c3%a4/%2e%2e", upstream: data, authenticate: bearer }'],
    ['2:14: routes[0].match: is not a pattern: the segment "a%41" cannot match; write it as "aA"'],
  ],
  [
    'route bounds without units',
    ['routes:', '  - { match: "/*", upstream: data, authenticate: bearer, maxBody: 10, timeout: 5 }'],
    [
      '2:67: routes[0].maxBody: has no unit; write 10B or 10kB',
      '2:80: routes[0].timeout: has no unit; write 5ms or 5s',
    ],
  ],
]

describe('mistakes in limits and routes', () => {
  it.for(MISTAKES)('names %s', async ([, snippet, lines]) => {
    const text = typeof snippet === 'string' ? snippet : snippet.join('\n')
    const mistakes = await mistakesIn(completed(text))
    expect(mistakes).toEqual(lines.map((line) => `sluice.yaml:${line}`))
  })
})
