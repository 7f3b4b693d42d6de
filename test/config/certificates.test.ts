import { X509Certificate } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { certificatesOf } from '../../src/config/certificates.ts'
import { makeCertificate, type TestCertificate } from '../helpers/self-signed.ts'
import { BESIDE, completed, load } from './load-text.ts'

const UNSET = {
  clientCa: undefined,
  crl: undefined,
  ciphers: undefined,
  minVersion: 1.2,
  requestClientCert: false,
} as const

/** Returns the certificate with an invalid end date. */
function undated({ der, key }: TestCertificate): { readonly cert: string; readonly key: string } {
  const broken = Buffer.from(der)
  const [start, length] = [broken.indexOf(Buffer.of(0x17, 13)), 15]
  broken.fill('x', start + length + 2, start + 2 * length)
  return { cert: new X509Certificate(broken).toString(), key }
}

describe('the certificates of a configuration', () => {
  it('the certificates of a configuration are listed by file, valid until the first one expires', async () => {
    const soon = makeCertificate('soon', 3_600_000).cert
    const { config } = await load(
      completed(
        [
          'listen: { tls: { cert: cert.pem, key: key.pem, clientCa: both.pem } }',
          'upstreams: { data: { url: https://a, tls: { ca: chain.pem, cert: cert.pem, key: key.pem } }, open: { url: http://b } }',
          'store: { redis: { url: redis://r, tls: { ca: soon.pem } } }',
        ].join('\n'),
      ),
      {},
      [],
      { ...BESIDE, 'soon.pem': soon, 'both.pem': `# a comment\n${BESIDE['cert.pem']}\n${soon}` },
    )
    const endOf = (pem: string) => Date.parse(new X509Certificate(pem).validTo)
    const usual = endOf(BESIDE['cert.pem'])
    expect(certificatesOf(config).map(({ path, validToMs }) => [path.join('.'), validToMs])).toEqual([
      ['listen.tls.cert', usual],
      ['listen.tls.clientCa', endOf(soon)],
      ['upstreams.data.tls.cert', usual],
      ['upstreams.data.tls.ca', usual],
      ['store.redis.tls.ca', endOf(soon)],
    ])
    const plain = await load(completed('store: { redis: { url: rediss://r, tls: true } }'))
    expect(certificatesOf(plain.config)).toEqual([])
  })

  it('the certificates of a configuration are valid from the latest start', async () => {
    const { config } = await load(
      completed('listen: { tls: { cert: chain.pem, key: key.pem } }'),
      {},
      [],
      BESIDE,
    )
    const starts = BESIDE['chain.pem'].split(/(?<=END CERTIFICATE-----\n)/).filter((pem) => pem.trim() !== '')
    const startOf = (pem: string) => Date.parse(new X509Certificate(pem).validFrom)
    expect(certificatesOf(config)[0]!.validFromMs).toBe(Math.max(...starts.map(startOf)))
  })

  it('the certificates of a configuration do not include those that OpenSSL cannot read', async () => {
    const { config } = await load(completed('store: memory'))
    const own = makeCertificate()
    const bad = undated(own)
    expect(Date.parse(new X509Certificate(bad.cert).validTo)).toBeNaN()
    const of = (cert: string) =>
      certificatesOf({
        ...config,
        listen: {
          ...config.listen,
          tls: { ...UNSET, cert, key: own.key },
        },
      })
    expect(of(bad.cert)).toEqual([])
    expect(of(BESIDE['broken.pem'])).toEqual([])
    expect(of(`${bad.cert}${own.cert}`)).toEqual(of(own.cert))
  })
})
