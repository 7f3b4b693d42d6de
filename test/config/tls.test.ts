import { describe, expect, it } from 'vitest'
import { problemLine } from '../../src/config/yaml/issue.ts'
import { BESIDE, completed, load } from './load-text.ts'

const DAY_MS = 86_400_000
const LISTEN = completed('listen: { tls: { cert: chain.pem, key: ./key.pem, clientCa: cert.pem } }')
const ADMIN = completed('admin: { tls: { cert: chain.pem, key: key.pem } }')
const UPSTREAM = completed(
  'upstreams: { data: { url: https://a, tls: { ca: chain.pem, servername: data.internal, cert: cert.pem, key: key.pem } } }',
)
const REDIS = completed(
  'store: { redis: { url: redis://r, tls: { ca: chain.pem, cert: ./bag.pem, key: key.pem, servername: redis } } }',
)
const { 'cert.pem': cert, 'key.pem': key, 'chain.pem': chain } = BESIDE
const files = { ...BESIDE, 'bag.pem': `bag attributes\n${cert}` }

describe('TLS', () => {
  it('TLS is passed on as read', async () => {
    const { config } = await load(LISTEN, {}, [], files)
    expect(config.listen.tls).toEqual({ cert: chain, key, clientCa: cert, requestClientCert: false })
    expect(config.warnings).toEqual([])
    const upstream = await load(UPSTREAM, {}, [], files)
    expect(upstream.config.upstreams[0]!.tls).toEqual({ ca: chain, servername: 'data.internal', cert, key })
    const store = await load(REDIS, {}, [], files)
    expect(store.config.store).toMatchObject({
      redis: {
        tls: { ca: chain, cert: files['bag.pem'], key, servername: 'redis', rejectUnauthorized: true },
      },
    })
  })

  it.each([
    ['the listener', LISTEN, 31, /sluice\.yaml:1:24: listen\.tls\.cert: expired at /],
    ['the listener', LISTEN, 20, /sluice\.yaml:1:24: listen\.tls\.cert: is valid until .*; renew it$/],
    ['the listener', LISTEN, -7, /sluice\.yaml:1:24: listen\.tls\.cert: is valid only from /],
    ['the admin listener', ADMIN, 31, /sluice\.yaml:1:23: admin\.tls\.cert: expired at /],
    ['an upstream', UPSTREAM, 31, /upstreams\.data\.tls\.cert: expired at /],
    ['Redis', REDIS, 31, /store\.redis\.tls\.cert: expired at /],
  ])(
    'TLS of %s gets a warning if its certificate has expired, expires soon, or is not valid yet',
    async (_, text, days, words) => {
      const { config } = await load(text, {}, [], files, Date.now() + days * DAY_MS)
      expect(config.warnings.map(problemLine)).toEqual([expect.stringMatching(words) as string])
    },
  )
})
