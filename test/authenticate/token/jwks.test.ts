import { rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { loadKeys } from '../../../src/authenticate/jose/key-set.ts'
import { createKeySource, type KeySource, type KeysOptions } from '../../../src/authenticate/token/jwks.ts'
import { closeLater } from '../../helpers/closing.ts'
import { createFolder } from '../../helpers/folder.ts'
import { type Fault, makeKey, startIssuer, type TestIssuer } from '../../helpers/issuer.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

const LONG = 600_000
let issuer: TestIssuer
let reported: string[]

beforeEach(async () => {
  issuer = await startIssuer({ algorithms: ['ES256', 'EdDSA'] })
  reported = []
})

function create(options: Partial<KeysOptions> = {}): KeySource {
  const source = createKeySource({
    issuer: issuer.issuer,
    jwks: issuer.jwksUri,
    events: {
      onDown: ({ message: reason }) => reported.push(reason),
      onUp: () => reported.push('recovered'),
    },
    cooldownMs: LONG,
    retryMs: LONG,
    refreshMs: LONG,
    ...options,
  })
  closeLater(() => source.close())
  return source
}

const loaded = (keys: KeySource): Promise<void> => until('keys', () => keys.current() !== undefined)

describe('an issuer’s keys from a URL', () => {
  it('an issuer’s keys from a URL are loaded in the background', async () => {
    const keys = create()
    expect(keys.current()).toBeUndefined()
    await loaded(keys)
    expect(keys.current()!.find('ES256', issuer.key('ES256').kid)).toHaveLength(1)
    expect(issuer.asked).toEqual({ jwks: 1, discovery: 0 })
    expect(reported).toEqual([])
  })

  it('an issuer’s keys from a URL are found by discovery if no URL is given', async () => {
    await loaded(create({ jwks: undefined }))
    expect(issuer.asked).toEqual({ jwks: 1, discovery: 1 })
  })

  it('an issuer’s keys from a URL are loaded in one request for all callers that wait', async () => {
    const keys = create()
    const sets = await Promise.all(Array.from({ length: 50 }, async () => keys.refresh()))
    expect(new Set(sets).size).toBe(1)
    expect(sets[0]!.keys.length).toBe(2)
    expect(issuer.asked.jwks).toBe(1)
  })

  it('an issuer’s keys from a URL are read again at once when one is unknown, then not before the cool-down is over', async () => {
    const keys = create()
    await loaded(keys)
    issuer.rotate()
    const kid = issuer.key('ES256').kid
    expect(keys.current()!.find('ES256', kid)).toHaveLength(0)
    expect((await keys.refresh())!.find('ES256', kid)).toHaveLength(1)
    for (let i = 0; i < 60; i++) expect(keys.refresh()).toBeUndefined()
    expect(issuer.asked.jwks).toBe(2)
  })

  it('an issuer’s keys from a URL are read again after the cool-down', async () => {
    const keys = create({ cooldownMs: 0 })
    await loaded(keys)
    await keys.refresh()
    await keys.refresh()
    expect(issuer.asked.jwks).toBe(3)
  })

  it('an issuer’s keys from a URL are refreshed periodically', async () => {
    const keys = create({ refreshMs: 20 })
    await loaded(keys)
    issuer.rotate()
    await until('the new keys', () => keys.current()!.find('ES256', issuer.key('ES256').kid).length === 1)
    expect(keys.current()!.keys.length).toBe(2)
  })

  it.each<Fault>(['down', 'error', 'garbage', 'huge', 'redirect', 'silent'])(
    'go on serving while the issuer is %s, with one warning an outage',
    async (fault) => {
      const keys = create({ refreshMs: 10, retryMs: 10, fetchTimeoutMs: 1000 })
      await loaded(keys)
      const before = keys.current()
      issuer.fault = fault
      await until('a warning', () => reported.length > 0)
      const asked = issuer.asked.jwks
      await until('two more attempts', () => issuer.asked.jwks > asked + 1)
      expect(keys.current()).toBe(before)
      expect(reported).toHaveLength(1)
      expect(reported[0]).toContain(issuer.jwksUri)
      issuer.fault = undefined
      await until('recovery', () => reported.length > 1)
      expect(reported[1]).toBe('recovered')
    },
  )

  it('come late when the issuer does', async () => {
    issuer.fault = 'down'
    const keys = create({ retryMs: 10 })
    await until('retries', () => issuer.asked.jwks > 2)
    expect(keys.current()).toBeUndefined()
    issuer.fault = undefined
    await loaded(keys)
    await until('recovery', () => reported.at(-1) === 'recovered')
    expect(reported).toHaveLength(2)
  })

  it('an issuer’s keys from a URL are tried again for a caller before the next retry is due', async () => {
    issuer.fault = 'down'
    const keys = create({ cooldownMs: 0 })
    await until('a warning', () => reported.length > 0)
    issuer.fault = undefined
    await until('the keys', async () => (await keys.refresh()) !== undefined)
    expect(reported.at(-1)).toBe('recovered')
  })

  it('delay callers no longer than the timeout', async () => {
    issuer.fault = 'silent'
    const keys = create({ fetchTimeoutMs: 50 })
    expect(await keys.refresh()).toBeUndefined()
    expect(reported).toEqual([`${issuer.jwksUri} did not answer in time`])
  })

  it('an issuer’s keys from a URL are dropped when the issuer withdraws all of them', async () => {
    const keys = create({ cooldownMs: 0 })
    await loaded(keys)
    issuer.jwks = { keys: [] }
    expect(await keys.refresh()).toBeUndefined()
    expect(keys.current()).toBeUndefined()
    expect(reported).toEqual([`${issuer.jwksUri} holds no key that could verify a token: it is empty`])
    issuer.jwks = {
      keys: [{ kid: 'a', kty: 'RSA', use: 'enc' }, { kid: 'b', kty: 'oct', k: 'AA' }, { kty: 'X' }],
    }
    await keys.refresh()
    const why = [
      'the key "a" is not for signatures: use "enc"',
      'the key "b" is private ("k")',
      'the key fits no accepted algorithm: kty "X", crv none, alg none',
    ]
    expect(keys.current()).toBeUndefined()
    expect(await loadKeys({ issuer: issuer.issuer, jwks: issuer.jwks as object }).catch(String)).toContain(
      why.join(', '),
    )
  })

  it('an issuer’s RSA keys of another length, or that are malformed, are named so', async () => {
    const ofBits = (bits: number) => ({ kty: 'RSA', n: Buffer.alloc(bits / 8, 0xff).toString('base64url') })
    const jwks = { keys: [1024, 8192, 2048].map(ofBits) }
    const why = [
      'the key has about 1024 bits; 2048 to 4096 are accepted',
      'the key has about 8192 bits; 2048 to 4096 are accepted',
      'the key is malformed, or has an exponent that is not accepted',
    ]
    expect(await loadKeys({ issuer: issuer.issuer, jwks }).catch(String)).toContain(why.join(', '))
  })

  it.each([[{ keys: 'none' }], [[]], [null], [{ keys: Array.from({ length: 1001 }, () => ({})) }]])(
    'an issuer’s keys from a URL are not replaced by %j',
    async (document) => {
      const keys = create({ cooldownMs: 0 })
      await loaded(keys)
      issuer.jwks = document
      expect((await keys.refresh())!.keys.length).toBe(2)
      expect(reported[0]).toMatch(/is not a JWK Set|is a JWK Set of|is not a JSON object/)
    },
  )

  it('an issuer’s keys from a URL are not asked for after close', async () => {
    const keys = create({ refreshMs: 5, cooldownMs: 0 })
    await loaded(keys)
    issuer.fault = 'silent'
    const asked = issuer.asked.jwks
    await until('a load in flight', () => issuer.asked.jwks > asked)
    const inFlight = keys.refresh()
    keys.close()
    await inFlight
    expect(keys.refresh()).toBeUndefined()
    expect(reported).toEqual([])
  })
})

describe('discovery', () => {
  it.each([
    ['another issuer', { issuer: 'https://identity.evil.example' }, 'another issuer'],
    ['no jwks_uri', { jwks_uri: undefined }, 'no jwks_uri'],
    ['a jwks_uri that is a file', { jwks_uri: 'file:///etc/passwd' }, 'no jwks_uri'],
    ['a jwks_uri that is not a URL', { jwks_uri: 'http://' }, 'no jwks_uri'],
    ['a jwks_uri that is a list', { jwks_uri: ['http://127.0.0.1/'] }, 'no jwks_uri'],
  ])('refuses a document with %s', async (_, metadata, reason) => {
    issuer.metadata = metadata
    const keys = create({ jwks: undefined })
    await until('a warning', () => reported.length > 0)
    expect(reported[0]).toContain(reason)
    expect(keys.current()).toBeUndefined()
    expect(issuer.asked.jwks).toBe(0)
  })

  it('discovery is read again with the keys, so that these may move', async () => {
    issuer.metadata = { jwks_uri: `${issuer.issuer}/elsewhere` }
    const keys = create({ jwks: undefined, retryMs: 10 })
    await until('a warning', () => reported.length > 0)
    issuer.metadata = {}
    await loaded(keys)
    expect(reported).toEqual([`${issuer.issuer}/elsewhere answered 404`, 'recovered'])
  })
})

describe('an issuer’s keys from a file', () => {
  let file: string
  beforeEach(async () => {
    file = join(createFolder(), 'jwks.json')
    await writeFile(file, JSON.stringify(issuer.jwks))
  })

  it('an issuer’s keys from a file are read without asking the issuer', async () => {
    await loaded(create({ jwks: file }))
    expect(issuer.asked).toEqual({ jwks: 0, discovery: 0 })
  })

  it('an issuer’s keys from a file are read again when the file is replaced', async () => {
    const keys = create({ jwks: file, refreshMs: 10 })
    await loaded(keys)
    const key = makeKey('EdDSA')
    await writeFile(`${file}.new`, JSON.stringify({ keys: [key.jwk] }))
    await rename(`${file}.new`, file)
    await until('the new key', () => keys.current()!.find('EdDSA', key.kid).length === 1)
    expect(keys.current()!.keys.length).toBe(1)
  })

  it('stay while the file is missing or half written', async () => {
    const keys = create({ jwks: file, cooldownMs: 0 })
    await loaded(keys)
    await writeFile(file, '{"keys": [{"kty":')
    expect((await keys.refresh())!.keys.length).toBe(2)
    await rm(file)
    expect((await keys.refresh())!.keys.length).toBe(2)
    expect(reported).toEqual([`${file} is not a JSON object`])
    create({ jwks: file })
    await until('another warning', () => reported.length > 1)
    expect(reported[1]).toBe(`${file} cannot be read: there is no such file`)
  })
})

it('reads keys that are served as a bare JWK Set, and begin with a byte-order mark', async () => {
  const { jwk } = makeKey('ES256')
  const server = await startUpstream((request, response) => {
    const isAccepted = request.headers.accept?.includes('application/jwk-set+json') === true
    response.writeHead(isAccepted ? 200 : 406, { 'Content-Type': 'application/jwk-set+json' })
    response.end(`\ufeff${JSON.stringify({ keys: [jwk] })}`)
  })
  expect((await loadKeys({ issuer: 'https://a.example', jwks: server.url })).keys).toHaveLength(1)
})
