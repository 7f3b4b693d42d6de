import { describe, expect, it } from 'vitest'
import { completed, mistakesIn, type Row } from './load-text.ts'

const MISTAKES: readonly Row[] = [
  ['a misspelt section', 'listens: { port: 1 }', ['1:1: listens: unknown key; did you mean "listen"?']],
  [
    'a section that does not exist',
    'refusals: { limit: 5 }',
    [
      '1:1: refusals: unknown key; write one of listen, admin, drainTimeout, log, store, upstreams, tokens, par, clients, limits, parameters, headers, failures, routes',
    ],
  ],
  [
    'failures without a window',
    'failures: { limit: 5 }',
    ['1:1: failures.window: is missing; write a duration from 1s to 1h (units ms, s, m, h, d)'],
  ],
  [
    'failures that are none, in a window beyond all patience',
    'failures: { limit: 0, window: 2h }',
    [
      '1:20: failures.limit: must be a whole number from 1 to 1000, not 0',
      '1:31: failures.window: must be a duration from 1s to 1h (units ms, s, m, h, d), not "2h"',
    ],
  ],
  [
    'an unknown key of an upstream',
    ['upstreams:', '  data: { url: http://data.internal:4000, pool: {} }'],
    [
      '2:43: upstreams.data.pool: unknown key; write one of url, urls, timeout, connectTimeout, maxConnections, tls, identityHeaders',
    ],
  ],
  [
    'a section that is a number',
    'listen: 8080',
    [
      '1:9: listen: must be a mapping with keys of host, port, tls, trustedProxies, hosts, maxHeaderSize, headersTimeout, requestTimeout, keepAliveTimeout, maxConnections, maxConnectionsPerAddress',
    ],
  ],
  [
    'an empty section',
    'listen:',
    [
      '1:1: listen: is empty; write a mapping with keys of host, port, tls, trustedProxies, hosts, maxHeaderSize, headersTimeout, requestTimeout, keepAliveTimeout, maxConnections, maxConnectionsPerAddress',
    ],
  ],
  [
    'a section that is a list',
    'listen: [a]',
    [
      '1:9: listen: must be a mapping with keys of host, port, tls, trustedProxies, hosts, maxHeaderSize, headersTimeout, requestTimeout, keepAliveTimeout, maxConnections, maxConnectionsPerAddress',
    ],
  ],
  [
    'a port that is a word',
    'listen: { port: http }',
    ['1:17: listen.port: must be a port from 0 to 65535, not "http"'],
  ],
  [
    'a port in quotes',
    'listen: { port: "8080" }',
    ['1:17: listen.port: must be a port from 0 to 65535, not "8080"'],
  ],
  [
    'a fractional port',
    'listen: { port: 80.5 }',
    ['1:17: listen.port: must be a port from 0 to 65535, not 80.5'],
  ],
  ['a negative port', 'listen: { port: -1 }', ['1:17: listen.port: must be a port from 0 to 65535, not -1']],
  [
    'a port beyond 65535',
    'listen: { port: 65536 }',
    ['1:17: listen.port: must be a port from 0 to 65535, not 65536'],
  ],
  [
    'a host with a port',
    'listen: { host: "0.0.0.0:8080" }',
    [
      '1:17: listen.host: must be an address or a host name without port, such as 127.0.0.1, not "0.0.0.0:8080"',
    ],
  ],
  [
    'a host that is a URL',
    'listen: { host: "http://localhost" }',
    [
      '1:17: listen.host: must be an address or a host name without port, such as 127.0.0.1, not "http://localhost"',
    ],
  ],
  [
    'a host that is a number',
    'listen: { host: 127 }',
    ['1:17: listen.host: must be an address or a host name without port, such as 127.0.0.1, not 127'],
  ],
  [
    'proxies that are no list',
    'listen: { trustedProxies: 10.0.0.0/8 }',
    ['1:27: listen.trustedProxies: must be a list of address ranges, in [ ] or with a "- " before each'],
  ],
  [
    'proxies that are single addresses',
    'listen: { trustedProxies: [10.0.0.1, "::1"] }',
    [
      '1:28: listen.trustedProxies[0]: must be a range of addresses; write 10.0.0.1/32 for this one alone',
      '1:38: listen.trustedProxies[1]: must be a range of addresses; write ::1/128 for this one alone',
    ],
  ],
  [
    'proxies that are no ranges',
    'listen: { trustedProxies: [10.0.0.0/33, 10.0.0/8, localhost, 10.0.0.0/8/8] }',
    [
      '1:28: listen.trustedProxies[0]: must be a range of addresses such as 10.0.0.0/8, not "10.0.0.0/33"',
      '1:41: listen.trustedProxies[1]: must be a range of addresses such as 10.0.0.0/8, not "10.0.0/8"',
      '1:51: listen.trustedProxies[2]: must be a range of addresses such as 10.0.0.0/8, not "localhost"',
      '1:62: listen.trustedProxies[3]: must be a range of addresses such as 10.0.0.0/8, not "10.0.0.0/8/8"',
    ],
  ],
  [
    'served hosts with port or scheme',
    'listen: { hosts: ["api.example.com:443", "https://api.example.com"] }',
    [
      '1:19: listen.hosts[0]: must be a host name without port, such as api.example.com, not "api.example.com:443"',
      '1:42: listen.hosts[1]: must be a host name without port, such as api.example.com, not "https://api.example.com"',
    ],
  ],
  [
    'identity headers that are none, or that the gateway reads',
    [
      'upstreams:',
      '  data:',
      '    url: http://data.internal:4000',
      '    identityHeaders: [X-My-User, "X My", "", HOST, content-type, Content_Language, authorization, Connection, TE, Cookie, 7]',
    ],
    [
      '4:34: upstreams.data.identityHeaders[1]: must be the name of a header field such as X-My-User, not "X My"',
      '4:42: upstreams.data.identityHeaders[2]: must be the name of a header field such as X-My-User, not ""',
      ...[
        [46, 'HOST'],
        [52, 'content-type'],
        [66, 'Content_Language'],
        [84, 'authorization'],
        [99, 'Connection'],
        [111, 'TE'],
        [115, 'Cookie'],
      ].map(
        ([column], i) =>
          `4:${column}: upstreams.data.identityHeaders[${i + 3}]: is read by the gateway itself; take it out`,
      ),
      '4:123: upstreams.data.identityHeaders[10]: must be the name of a header field such as X-My-User, not 7',
    ],
  ],
  ['no served hosts', 'listen: { hosts: [] }', ['1:18: listen.hosts: is empty; write at least one']],
  [
    'a duration without unit',
    'listen: { headersTimeout: 15 }',
    ['1:27: listen.headersTimeout: has no unit; write 15s'],
  ],
  [
    'a duration with a space',
    'listen: { headersTimeout: 15 s }',
    ['1:27: listen.headersTimeout: must be a duration such as 30s; did you mean "15s"?'],
  ],
  [
    'a duration in an unknown unit',
    'listen: { headersTimeout: 15 min }',
    ['1:27: listen.headersTimeout: must be a duration from 1s to 1h (units ms, s, m, h, d), not "15 min"'],
  ],
  [
    'a duration whose unit is in upper case',
    'drainTimeout: 10S',
    ['1:15: drainTimeout: must be a duration such as 30s; did you mean "10s"?'],
  ],
  [
    'a negative duration',
    'drainTimeout: -1s',
    ['1:15: drainTimeout: must be a duration from 0s to 1h (units ms, s, m, h, d), not "-1s"'],
  ],
  [
    'a duration below a millisecond',
    'store: { redis: { url: redis://r }, timeout: 0.5ms }',
    ['1:46: store.timeout: must come to whole milliseconds'],
  ],
  [
    'a timeout of nothing',
    ['upstreams:', '  data: { url: http://data.internal:4000, timeout: 0s }'],
    ['2:52: upstreams.data.timeout: must be a duration from 1ms to 1d (units ms, s, m, h, d), not "0s"'],
  ],
  [
    'more time for the head than for the request',
    'listen: { headersTimeout: 2m }',
    ['1:27: listen.headersTimeout: must be at most requestTimeout (60s), of which it is part'],
  ],
  [
    'less time for the request than for the head',
    'listen: { requestTimeout: 5s }',
    ['1:27: listen.requestTimeout: must be at least headersTimeout (15s), which is part of it'],
  ],
  [
    'a size without unit',
    'listen: { maxHeaderSize: 16384 }',
    ['1:26: listen.maxHeaderSize: has no unit; write 16384B'],
  ],
  [
    'a size whose unit is in the wrong case',
    'listen: { maxHeaderSize: 16KB }',
    ['1:26: listen.maxHeaderSize: must be a size such as 30kB; did you mean "16kB"?'],
  ],
  [
    'a size out of range',
    'listen: { maxHeaderSize: 1GB }',
    ['1:26: listen.maxHeaderSize: must be a size from 1kB to 1MB (units B, kB, MB, GB), not "1GB"'],
  ],
  [
    'no connections',
    'listen: { maxConnections: 0 }',
    ['1:27: listen.maxConnections: must be a whole number from 1 to 1000000, not 0'],
  ],
  [
    'an address without connections',
    'listen: { maxConnectionsPerAddress: none }',
    ['1:37: listen.maxConnectionsPerAddress: must be a whole number from 1 to 1000000, not "none"'],
  ],
  [
    'the admin port for callers',
    'listen: { port: 9090 }',
    ['1:17: listen.port: is 9090 for both "listen" and "admin"; give each its own port'],
  ],
  [
    'one port for both listeners',
    ['listen: { port: 7000, host: 127.0.0.1 }', 'admin: { port: 7000 }'],
    ['2:16: admin.port: is 7000 for both "listen" and "admin"; give each its own port'],
  ],
  [
    'an unknown log level and format',
    'log: { level: warning, format: text }',
    [
      '1:15: log.level: must be fatal, error, warn, info, debug, trace or silent; did you mean "warn"?',
      '1:32: log.format: must be json or pretty, not "text"',
    ],
  ],
  [
    'a store that is another word',
    'store: redis',
    ['1:8: store: must be "memory" or a mapping with "redis"'],
  ],
  [
    'a store that is another mapping',
    'store: { memory: {} }',
    [
      '1:1: store.redis: is missing; write a mapping with keys of url, cluster, sentinels, name, sentinelUsername, sentinelPassword, username, password, tls',
      '1:10: store.memory: unknown key; write one of redis, prefix, timeout, onOutage, instances',
    ],
  ],
  ['an empty store', 'store:', ['1:1: store: is empty; write "memory" or a mapping with "redis"']],
  [
    'a Redis that is a URL alone',
    'store: { redis: redis://localhost:6379 }',
    [
      '1:17: store.redis: must be a mapping with keys of url, cluster, sentinels, name, sentinelUsername, sentinelPassword, username, password, tls',
    ],
  ],
  [
    'a Redis URL of another scheme, without showing its password',
    'store: { redis: { url: "http://user:hunter2@redis:6379" } }',
    ['1:24: store.redis.url: must be redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock'],
  ],
  [
    'a Redis URL without scheme',
    'store: { redis: { url: "localhost:6379" } }',
    ['1:24: store.redis.url: must be redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock'],
  ],
  [
    'a Redis database that is no number',
    'store: { redis: { url: "redis://redis/zero" } }',
    ['1:24: store.redis.url: must end with the number of a database, such as /0, or without'],
  ],
  [
    'options in a Redis URL',
    'store: { redis: { url: "redis://redis/0?password=hunter2" } }',
    ['1:24: store.redis.url: must have nothing after the database number'],
  ],
  [
    'a list of Redis URLs',
    'store: { redis: { url: [redis://a] } }',
    ['1:24: store.redis.url: must be redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock'],
  ],
  [
    'a prefix that could enter the hash tag',
    'store: { redis: { url: redis://r }, prefix: "a{b}" }',
    ['1:45: store.prefix: must be letters, digits and . _ : - (64 at most), not "a{b}"'],
  ],
]

describe('mistakes in listeners, log and store', () => {
  it.for(MISTAKES)('names %s', async ([, snippet, lines]) => {
    const text = typeof snippet === 'string' ? snippet : snippet.join('\n')
    const mistakes = await mistakesIn(completed(text))
    expect(mistakes).toEqual(lines.map((line) => `sluice.yaml:${line}`))
  })
})
