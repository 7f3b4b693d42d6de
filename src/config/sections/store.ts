import { z } from 'zod'
import { pemFile } from './addresses.ts'
import { clusterUrl, redisUrl, sentinelUrl } from './redis-urls.ts'
import { choice, duration, list, section, secret, text, textThat, whole } from './values.ts'
import { must, mustSecretly } from '../yaml/wording.ts'

const tls = z
  .union(
    [
      z.literal(true),
      section({
        ca: pemFile().optional().describe('The authorities that are trusted; those of Node.js, unless set.'),
        cert: pemFile().optional().describe('The certificate that this gateway shows.'),
        key: pemFile().optional().describe('The private key of that certificate.'),
        servername: text('the name in the certificate of Redis')
          .optional()
          .describe('The name that the certificate of Redis must bear; the host’s, unless set.'),
        rejectUnauthorized: z
          .boolean(must('true or false'))
          .default(true)
          .describe('false takes any certificate, and so anybody who answers for Redis.'),
      }),
    ],
    mustSecretly('true or a mapping with keys of ca, cert, key, servername, rejectUnauthorized'),
  )
  .describe('TLS to Redis, with files relative to this one; rediss:// alone switches it on too.')

const redis = section({
  url: redisUrl()
    .optional()
    .describe('One server: redis://, rediss:// or the path of a socket; may be file:/path to read it from.'),
  cluster: list(clusterUrl(), 1, 'a list of the URLs of some nodes')
    .optional()
    .describe('In place of url: a Redis Cluster, by some of its nodes.'),
  sentinels: list(sentinelUrl(), 1, 'a list of the URLs of the sentinels')
    .optional()
    .describe('In place of url: the master that these sentinels know.'),
  name: text('the name by which the sentinels know the master')
    .optional()
    .describe('The name by which the sentinels know the master.'),
  sentinelUsername: secret('a user of the sentinels')
    .optional()
    .describe('The user of the sentinels themselves, for sentinelPassword; the default one, unless set.'),
  sentinelPassword: secret('the password of the sentinels')
    .optional()
    .describe('The password of the sentinels themselves; none, unless set.'),
  username: secret('a user of Redis').optional().describe('In place of the user in the URL.'),
  password: secret('the password of that user').optional().describe('In place of the password in the URL.'),
  tls: tls.optional(),
}).describe('The Redis that every instance of the gateway shares.')

const sharedStore = section({
  redis,
  prefix: textThat(
    (prefix) => /^[A-Za-z0-9._:-]{1,64}$/.test(prefix),
    'letters, digits and . _ : - (64 at most)',
  )
    .default('sluice')
    .describe('What every key in Redis starts with.'),
  timeout: duration('1ms', '1m').prefault('100ms').describe('Longest that one decision waits for Redis.'),
  onOutage: choice(['local', 'allow', 'deny'])
    .default('local')
    .describe('While Redis is out of reach: count in this process, let every call pass, or refuse with 503.'),
  instances: whole(1, 100_000)
    .optional()
    .describe(
      'How many gateways share the limits, in place of those counted in Redis; under onOutage: local each takes its part of them.',
    ),
}).transform(({ timeout, ...rest }) => ({ ...rest, timeoutMs: timeout }))

/** Where the counters live. */
export const store = z
  .union([z.literal('memory'), sharedStore], mustSecretly('"memory" or a mapping with "redis"'))
  .describe('Where the counters live: "memory" counts in this process alone.')

/** A shared store as the file says it, with files not yet read. */
export type SharedStoreSettings = z.output<typeof sharedStore>
