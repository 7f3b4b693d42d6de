import { describe, expect, it } from 'vitest'
import { completed, mistakesIn, type Row } from './load-text.ts'

const redis = (inside: string): string => `store: { redis: { ${inside} } }`

const MISTAKES: readonly Row[] = [
  [
    'a Redis without server',
    redis(''),
    ['1:17: store.redis: names no server; write url, cluster or sentinels'],
  ],
  [
    'a Redis that is several',
    redis('url: redis://a, cluster: [redis://b], sentinels: [redis://c], name: main'),
    [
      '1:35: store.redis.cluster: stands beside "url"; take one of the two out',
      '1:57: store.redis.sentinels: stands beside "url"; take one of the two out',
      '1:81: store.redis.name: goes with "sentinels" alone; take it out',
    ],
  ],
  [
    'a cluster that is one URL',
    redis('cluster: redis://a'),
    [
      '1:28: store.redis.cluster: must be a list of the URLs of some nodes, in [ ] or with a "- " before each',
    ],
  ],
  [
    'a cluster without nodes',
    redis('cluster: []'),
    ['1:28: store.redis.cluster: is empty; write at least one'],
  ],
  [
    'nodes that are socket files, numbered databases or of another scheme, without their passwords',
    redis('cluster: [/run/redis.sock, "redis://:hunter2@a/1", "http://:hunter2@b", "redis://"]'),
    [
      '1:29: store.redis.cluster[0]: must be redis://host:6379 or rediss://host:6379',
      '1:46: store.redis.cluster[1]: must end after the port; write redis://host:6379 or rediss://host:6379',
      '1:70: store.redis.cluster[2]: must be redis://host:6379 or rediss://host:6379',
      '1:91: store.redis.cluster[3]: names no host; write redis://host:6379',
    ],
  ],
  [
    'nodes that are reached in different ways',
    redis('cluster: [redis://a, redis://b, "redis://:hunter2@c"]'),
    [
      '1:51: store.redis.cluster[2]: differs from the first one in scheme, user and password; write all alike',
    ],
  ],
  [
    'sentinels without the name of the master',
    redis('sentinels: [redis://a]'),
    ['1:10: store.redis.name: is missing; write the name by which the sentinels know the master'],
  ],
  [
    'sentinels with credentials, or one with TLS',
    redis('sentinels: [redis://a, "rediss://b", "redis://u:hunter2@c"], name: main'),
    [
      '1:42: store.redis.sentinels[1]: differs from the first one in scheme; write all alike',
      '1:56: store.redis.sentinels[2]: must hold no credentials; write them as username, password, sentinelUsername and sentinelPassword',
    ],
  ],
  [
    'a password of sentinels without any',
    redis('url: redis://a, sentinelPassword: hunter2'),
    ['1:35: store.redis.sentinelPassword: goes with "sentinels" alone; take it out'],
  ],
  [
    'a user of sentinels without any',
    redis('cluster: [redis://a], sentinelUsername: me'),
    ['1:41: store.redis.sentinelUsername: goes with "sentinels" alone; take it out'],
  ],
  [
    'a user of sentinels without a password',
    redis('sentinels: [redis://a], name: main, sentinelUsername: me'),
    ['1:55: store.redis.sentinelUsername: is of no use without "sentinelPassword"; write both or neither'],
  ],
  [
    'credentials that are no texts, without showing them',
    redis('url: redis://a, username: [], password: 271828'),
    [
      '1:45: store.redis.username: must be a user of Redis',
      '1:59: store.redis.password: is a number here; put it in quotes',
    ],
  ],
  [
    'TLS that is switched off or a word',
    redis('url: redis://a, tls: false'),
    [
      '1:40: store.redis.tls: must be true or a mapping with keys of ca, cert, key, servername, rejectUnauthorized',
    ],
  ],
  [
    'unknown keys of TLS',
    redis('url: redis://a, tls: { cacert: ca.pem }'),
    ['1:42: store.redis.tls.cacert: unknown key; did you mean "cert"?'],
  ],
  [
    'TLS on a socket file',
    redis('url: /run/redis.sock, tls: true'),
    ['1:41: store.redis.tls: has no meaning on a socket file; take it out'],
  ],
  [
    'half a certificate',
    redis('url: redis://a, tls: { cert: a.pem }'),
    ['1:42: store.redis.tls.cert: is of no use without "key"; write both or neither'],
  ],
  [
    'certificates that cannot be read',
    redis('url: redis://a, tls: { ca: nowhere.pem, cert: file:a.pem, key: ./sluice.yaml }'),
    ['1:65: store.redis.tls.cert: is a path already; write a.pem'],
  ],
  [
    'certificates that are not there, or none',
    redis('url: redis://a, tls: { ca: nowhere.pem, cert: sluice.yaml, key: . }'),
    [
      '1:46: store.redis.tls.ca: names nowhere.pem, which does not exist',
      '1:65: store.redis.tls.cert: names sluice.yaml, which holds no PEM text; convert it with openssl',
      '1:83: store.redis.tls.key: names ., which is a directory, not a file',
    ],
  ],
  [
    'an outage mode that there is not, and no instances',
    'store: { redis: { url: redis://a }, onOutage: open, instances: 0 }',
    [
      '1:47: store.onOutage: must be local, allow or deny, not "open"',
      '1:64: store.instances: must be a whole number from 1 to 100000, not 0',
    ],
  ],
  [
    'a timeout without its unit, and what is accepted alone',
    'store: { redis: { url: redis://a }, timeout: 100 }',
    ['1:46: store.timeout: has no unit; write 100ms'],
  ],
  [
    'an admin token that could be guessed or sent by nobody, without showing it',
    'admin: { token: "hunter2 hunter2 hunter2" }',
    ['1:17: admin.token: must be a token of 16 characters or more, letters, digits and - . _ ~ + / ='],
  ],
]

describe('mistakes in where the counters live', () => {
  it.for(MISTAKES)('names %s', async ([, snippet, lines]) => {
    const mistakes = await mistakesIn(completed(snippet as string))
    expect(mistakes).toEqual(lines.map((line) => `sluice.yaml:${line}`))
    expect(mistakes.join('\n')).not.toMatch(/hunter2|271828/)
  })
})
