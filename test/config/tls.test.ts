import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { problemLine } from '../../src/config/yaml/issue.ts'
import { makeAuthority } from '../helpers/authority.ts'
import { createFolder } from '../helpers/folder.ts'
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
    expect(config.listen.tls).toEqual({
      cert: chain,
      key,
      clientCa: cert,
      minVersion: 1.2,
      requestClientCert: false,
    })
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

  const LISTED = completed(
    'listen: { tls: { cert: cert.pem, key: key.pem, clientCa: authority.pem, crl: lists.pem } }',
  )
  const authority = makeAuthority('clients')
  const warningsWith = async (list: string, nowMs = Date.now()) => {
    const beside = { ...BESIDE, 'authority.pem': authority.cert, 'lists.pem': list }
    return (await load(LISTED, {}, [], beside, nowMs)).config.warnings.map(problemLine)
  }

  it.each([
    [
      'has expired',
      { thisUpdateMs: -7_200_000, nextUpdateMs: -1000 },
      /expired at \S+, so the client .*; renew it$/,
    ],
    ['expires within two hours', { nextUpdateMs: 3_600_000 }, /is valid until \S+; renew it$/],
    ['is not valid yet', { thisUpdateMs: 3_600_000 }, /is valid only from \S+, so the client certificates /],
  ])('a revocation list that %s gets a warning', async (_, times, words) => {
    const place = /^.*sluice\.yaml:1:78: listen\.tls\.crl: /
    const [line, ...more] = await warningsWith(authority.list([], times))
    expect(line).toMatch(place)
    expect(line!.replace(place, '')).toMatch(words)
    expect(more).toEqual([])
  })

  it('a revocation list that is valid for a day gets no warning, also with an expired one before it', async () => {
    const old = authority.list([], { thisUpdateMs: -7_200_000, nextUpdateMs: -1000 })
    expect(await warningsWith(old + authority.list([]))).toEqual([])
    expect(await warningsWith(authority.list([]) + old)).toEqual([])
  })

  it('revocation lists that openssl made are those of their authorities, with RSA, P-384 and Ed25519', async () => {
    const folder = createFolder()
    const openssl = (command: string) =>
      execFileSync('openssl', command.split(' '), { cwd: folder, stdio: 'pipe' })
    const settings = 'database = index.txt\ndefault_md = default\ndefault_crl_days = 1\n'
    writeFileSync(join(folder, 'ca.cnf'), `[ca]\ndefault_ca = own\n[own]\n${settings}`)
    writeFileSync(join(folder, 'index.txt'), '')
    const read = (name: string) => readFileSync(join(folder, name), 'utf8')
    for (const [i, kind] of ['rsa:2048', 'ec -pkeyopt ec_paramgen_curve:P-384', 'ed25519'].entries()) {
      openssl(`req -x509 -newkey ${kind} -nodes -subj /O=Some-Bank/CN=ca${i} -keyout ${i}.key -out ${i}.pem`)
      openssl(`ca -gencrl -config ca.cnf -keyfile ${i}.key -cert ${i}.pem -out ${i}.crl`)
    }
    const text = LISTED.replace('lists.pem', '[0.crl, 1.crl, 2.crl]')
    const lists = { '0.crl': read('0.crl'), '1.crl': read('1.crl'), '2.crl': read('2.crl') }
    const beside = { ...BESIDE, ...lists, 'authority.pem': read('0.pem') + read('1.pem') + read('2.pem') }
    const { config } = await load(text, {}, [], beside)
    expect(config.listen.tls!.crl).toHaveLength(3)
    expect(config.warnings).toEqual([])
    const altered = read('1.crl').replace(/(?<=CRL-----\n).*(?=-----END)/s, (base64) => {
      const der = Buffer.from(base64, 'base64')
      der.writeUInt8(der.at(-1)! ^ 1, der.length - 1)
      return `${der.toString('base64')}\n`
    })
    await expect(load(text, {}, [], { ...beside, '1.crl': altered })).rejects.toThrow(
      /listen\.tls\.crl\[1\]: names 1\.crl, which has a revocation list that no authority/,
    )
  })

  it.each([
    ['AES128-SHA', 'accepts AES128-SHA, against RFC 9325: no forward secrecy, or CBC; remove'],
    [
      'ECDHE-ECDSA-AES128-SHA256:TLS_AES_128_CCM_8_SHA256:ECDHE-ECDSA-AES128-GCM-SHA256',
      'accepts ECDHE-ECDSA-AES128-SHA256, TLS_AES_128_CCM_8_SHA256, against RFC 9325',
    ],
    ['ECDHE-RSA-AES128-GCM-SHA256', 'has no suite of TLS 1.2 for the key of listen.tls.cert; add one'],
    ['ECDHE-ECDSA-CHACHA20-POLY1305:TLS_AES_256_GCM_SHA384', undefined],
  ])('the suites %s get a warning if they are weak, or do not fit the key', async (ciphers, words) => {
    const text = completed(`listen: { tls: { cert: cert.pem, key: key.pem, ciphers: "${ciphers}" } }`)
    const [line] = (await load(text, {}, [], files)).config.warnings.map(problemLine)
    if (words === undefined) expect(line).toBeUndefined()
    else expect(line).toContain(`sluice.yaml:1:57: listen.tls.ciphers: ${words}`)
  })

  it('minVersion may come from the environment', async () => {
    const text = completed('listen: { tls: { cert: cert.pem, key: key.pem, minVersion: "${MIN_TLS}" } }')
    expect((await load(text, { MIN_TLS: '1.3' }, [], files)).config.listen.tls!.minVersion).toBe(1.3)
  })
})
