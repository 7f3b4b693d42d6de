import { generateKeyPairSync } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { effectiveConfig } from '../../src/commands/check.ts'
import { problemLine } from '../../src/config/yaml/problem.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { completed, load, mistakesIn, type Row } from './load-text.ts'

const own = makeCertificate('gateway')
const other = makeCertificate('other')
const { privateKey } = generateKeyPairSync('ed25519')
const BESIDE = {
  'cert.pem': own.cert,
  'key.pem': own.key,
  'other.pem': other.key,
  'locked.pem': privateKey.export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase: 'x',
  }) as string,
  'broken.pem': own.cert.replace(/\n.{20}/, '\n'),
  'chain.pem': `${own.cert}\n${other.cert}`,
  'cert.der': 'hunter2',
}

const tls = (inside: string): string => `listen: { tls: { ${inside} } }`

const toUpstream = (inside: string, url = 'https://a'): string =>
  `upstreams: { data: { url: "${url}", tls: { ${inside} } } }`

const MISTAKES: readonly Row[] = [
  [
    'TLS that is switched on with nothing',
    'listen: { tls: true }',
    ['1:16: listen.tls: must be a mapping with keys of cert, key, clientCa, requestClientCert'],
  ],
  [
    'TLS without files, and a choice that is none',
    tls('requestClientCert: optional'),
    [
      '1:11: listen.tls.cert: is missing; write the path of a PEM file',
      '1:11: listen.tls.key: is missing; write the path of a PEM file',
      '1:37: listen.tls.requestClientCert: must be true or false, not "optional"',
    ],
  ],
  [
    'files that are not there or written as secrets',
    tls('cert: nowhere.pem, key: nowhere.key, clientCa: "file:ca.pem"'),
    ['1:65: listen.tls.clientCa: is a path already; write ca.pem'],
  ],
  [
    'files that are not there',
    tls('cert: nowhere.pem, key: ., clientCa: cert.pem'),
    [
      '1:24: listen.tls.cert: names nowhere.pem, which does not exist',
      '1:42: listen.tls.key: names ., which is a directory, not a file',
    ],
  ],
  [
    'files that are no PEM',
    tls('cert: cert.der, key: key.pem'),
    ['1:24: listen.tls.cert: names cert.der, which holds no PEM text; convert it with openssl'],
  ],
  [
    'certificate and key the wrong way round',
    tls('cert: key.pem, key: cert.pem, clientCa: broken.pem'),
    [
      '1:24: listen.tls.cert: names key.pem, which holds no certificate, or a broken one',
      '1:38: listen.tls.key: names cert.pem, which holds no private key, or a broken one',
      '1:58: listen.tls.clientCa: names broken.pem, which holds no certificate, or a broken one',
    ],
  ],
  [
    'a key that is locked',
    tls('cert: cert.pem, key: locked.pem'),
    ['1:39: listen.tls.key: names locked.pem, which is locked with a passphrase; write a key without one'],
  ],
  [
    'the key of another certificate',
    tls('cert: cert.pem, key: other.pem'),
    [
      '1:39: listen.tls.key: is not the key of the certificate in cert.pem; write the one that it was made with',
    ],
  ],
  [
    'a certificate that asks nobody for theirs, beside the authorities of clients',
    tls('cert: cert.pem, key: key.pem, clientCa: cert.pem, requestClientCert: false'),
    [
      '1:87: listen.tls.requestClientCert: contradicts "clientCa", for which everybody is asked; take one of the two out',
    ],
  ],
  [
    'TLS to an upstream over http',
    toUpstream('', 'http://a'),
    ['1:39: upstreams.data.tls: has no meaning for http addresses; write https, or take it out'],
  ],
  [
    'TLS to an upstream that is not to be verified',
    toUpstream('rejectUnauthorized: false'),
    ['1:47: upstreams.data.tls.rejectUnauthorized: unknown key; write one of ca, servername, cert, key'],
  ],
  [
    'a certificate for an upstream without its key, and a name that is an address',
    toUpstream('cert: cert.pem, servername: 10.0.0.1'),
    [
      '1:47: upstreams.data.tls.cert: is of no use without "key"; write both or neither',
      '1:75: upstreams.data.tls.servername: must be a host name such as data.internal, not "10.0.0.1"',
    ],
  ],
  [
    'files for an upstream that are not there, or something else',
    toUpstream('ca: nowhere.pem, cert: key.pem, key: key.pem'),
    [
      '1:51: upstreams.data.tls.ca: names nowhere.pem, which does not exist',
      '1:70: upstreams.data.tls.cert: names key.pem, which holds no certificate, or a broken one',
    ],
  ],
  [
    'the key of another certificate for an upstream',
    toUpstream('cert: cert.pem, key: other.pem'),
    [
      '1:68: upstreams.data.tls.key: is not the key of the certificate in cert.pem; write the one that it was made with',
    ],
  ],
]

describe('mistakes in TLS', () => {
  it.for(MISTAKES)('names %s', async ([, snippet, lines]) => {
    const mistakes = await mistakesIn(completed(snippet as string), {}, [], BESIDE)
    expect(mistakes).toEqual(lines.map((line) => `sluice.yaml:${line}`))
  })
})

describe('TLS', () => {
  const good = tls('cert: chain.pem, key: ./key.pem, clientCa: cert.pem')

  it('is handed on as read', async () => {
    const { config } = await load(completed(good), {}, [], BESIDE)
    expect(config.listen.tls).toEqual({
      cert: BESIDE['chain.pem'],
      key: own.key,
      clientCa: own.cert,
      requestClientCert: false,
    })
    expect(config.warnings).toEqual([])
  })

  it('to an upstream is handed on as read', async () => {
    const text = toUpstream('ca: chain.pem, servername: data.internal, cert: cert.pem, key: key.pem')
    const { config } = await load(completed(text), {}, [], BESIDE)
    expect(config.upstreams[0]!.tls).toEqual({
      ca: BESIDE['chain.pem'],
      servername: 'data.internal',
      cert: own.cert,
      key: own.key,
    })
    expect(JSON.stringify(effectiveConfig(config))).not.toContain('PRIVATE KEY')
    const late = await load(completed(text), {}, [], BESIDE, Date.now() + 7 * 86_400_000)
    expect(late.config.warnings.map(problemLine)).toEqual([
      expect.stringMatching(
        /upstreams\.data\.tls\.cert: expired at .* the backend will not take it/,
      ) as string,
    ])
  })

  it('is warned of where its certificate is over, or not yet valid', async () => {
    for (const [days, words] of [
      [7, 'expired at'],
      [-7, 'is not valid before'],
    ] as const) {
      const { config } = await load(completed(good), {}, [], BESIDE, Date.now() + days * 86_400_000)
      expect(config.warnings.map(problemLine)).toEqual([
        expect.stringMatching(new RegExp(`sluice\\.yaml:1:24: listen\\.tls\\.cert: ${words} `)) as string,
      ])
    }
  })
})
