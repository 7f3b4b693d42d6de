import { generateKeyPairSync } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { readKeySet } from '../../../src/authenticate/jose/key-set.ts'
import { makeKey } from '../../helpers/issuer.ts'

const rsa = makeKey('RS256', 'one')
const ec = makeKey('ES256', 'one')
const ed = makeKey('EdDSA', 'two')
const { alg: _, ...anyRsa } = rsa.jwk

const p384 = generateKeyPairSync('ec', { namedCurve: 'secp384r1' }).publicKey.export({ format: 'jwk' })
const p521 = generateKeyPairSync('ec', { namedCurve: 'secp521r1' }).publicKey.export({ format: 'jwk' })
const encode = (number: bigint): string => {
  const hex = number.toString(16)
  return Buffer.from(hex.padStart(hex.length + (hex.length % 2), '0'), 'hex').toString('base64url')
}
const exponent = (bits: number): string => encode((1n << BigInt(bits)) - 1n)
const modulus = (bits: number): string => encode((1n << BigInt(bits)) - 159n)

describe('reading a JWK Set', () => {
  it('distinguishes keys of one kid by type and algorithm', async () => {
    const set = await readKeySet({ keys: [rsa.jwk, ec.jwk, ed.jwk] })
    expect(set.keys).toHaveLength(3)
    expect(set.find('RS256', 'one')).toHaveLength(1)
    expect(set.find('ES256', 'one')).toHaveLength(1)
    expect(set.find('EdDSA', 'one')).toHaveLength(0)
    expect(set.find('PS256', 'one')).toHaveLength(0)
  })

  it('uses a key without alg for all algorithms of its type', async () => {
    const set = await readKeySet({ keys: [anyRsa] })
    for (const alg of ['RS256', 'PS256', 'RS512', 'PS384']) expect(set.find(alg, 'one')).toHaveLength(1)
    for (const alg of ['ES256', 'EdDSA', 'HS256', 'none']) expect(set.find(alg, 'one')).toHaveLength(0)
  })

  it('returns all fitting keys for a token without kid, and keys without kid only for such tokens', async () => {
    const { kid: _, ...nameless } = ec.jwk
    const set = await readKeySet({ keys: [nameless, makeKey('ES256').jwk, rsa.jwk] })
    expect(set.find('ES256', undefined)).toHaveLength(2)
    expect(set.find('ES256', 'one')).toHaveLength(0)
  })

  const weak = generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey.export({ format: 'jwk' })
  it.each([
    ['for encryption', { ...rsa.jwk, use: 'enc' }],
    ['only for signing', { ...rsa.jwk, key_ops: ['sign'] }],
    ['with operations that are not a list', { ...rsa.jwk, key_ops: 'verify' }],
    ['for an unknown algorithm', { ...rsa.jwk, alg: 'RS1' }],
    ['for encryption by its algorithm', { ...rsa.jwk, alg: 'RSA-OAEP' }],
    ['for an algorithm of another type', { ...ec.jwk, alg: 'RS256' }],
    ['for an algorithm of another curve', { ...p384, alg: 'ES256' }],
    ['with a shared secret', { kty: 'oct', k: 'c2VjcmV0', alg: 'HS256' }],
    ['with its private half', rsa.privateKey.export({ format: 'jwk' })],
    ['of 1024 bits', weak],
    ['with the exponent 1', { ...rsa.jwk, e: 'AQ' }],
    ['with an even exponent', { ...rsa.jwk, e: 'AQAA' }],
    ['with an exponent of 65 bits', { ...rsa.jwk, e: exponent(65) }],
    ['with an exponent as long as its modulus', { ...rsa.jwk, e: exponent(2047) }],
    ['of 4097 bits', { ...rsa.jwk, n: modulus(4097) }],
    ['of P-521', p521],
    ['with a point off the curve', { ...ec.jwk, y: ec.jwk.x }],
    ['with half a point', { ...ec.jwk, y: undefined }],
    ['without a modulus', { kty: 'RSA', e: 'AQAB' }],
    ['of an unknown curve', { ...ec.jwk, crv: 'secp256k1', alg: undefined }],
    ['that is for key agreement', { kty: 'OKP', crv: 'X25519', x: ed.jwk.x }],
    ['with a kid that is not a string', { ...rsa.jwk, kid: 7 }],
    ['that is null', null],
    ['that is a string', 'key'],
  ])('ignores a key %s, and accepts the others', async (_, jwk) => {
    const set = await readKeySet({ keys: [jwk, ed.jwk] })
    expect(set.keys).toHaveLength(1)
    expect(set.find('EdDSA', 'two')).toHaveLength(1)
  })

  it('accepts the largest key that is cheap to use, and the smallest exponent', async () => {
    const largest = { ...rsa.jwk, n: modulus(4096), e: exponent(64) }
    const set = await readKeySet({ keys: [largest, { ...rsa.jwk, e: 'Aw' }] })
    expect(set.keys).toHaveLength(2)
  })

  it('reading a JWK Set has at most five keys tried for one token, with a kid and without', async () => {
    const same = Array.from({ length: 7 }, () => makeKey('ES256', 'same').jwk)
    const set = await readKeySet({ keys: same })
    expect(set.find('ES256', undefined)).toHaveLength(5)
    expect(set.find('ES256', 'same')).toHaveLength(5)
  })

  it('tries only one key if one takes as long as five', async () => {
    const slow = { ...anyRsa, kid: 'slow', e: exponent(17) }
    const set = await readKeySet({ keys: [anyRsa, slow, { ...p384, kid: 'a' }, { ...p384, kid: 'b' }] })
    expect(set.find('PS256', undefined).map(({ kid }) => kid)).toEqual(['one'])
    expect(set.find('PS256', 'slow').map(({ kid }) => kid)).toEqual(['slow'])
    expect(set.find('ES384', undefined).map(({ kid }) => kid)).toEqual(['a'])
  })

  it.each([null, undefined, [], 'keys', {}, { keys: {} }, { keys: null }])(
    'throws on %j',
    async (document) => {
      await expect(readKeySet(document)).rejects.toThrow('not a JWK Set')
    },
  )

  it('accepts 100 keys, and throws on more', async () => {
    const keysOf = (length: number) => ({ keys: Array.from({ length }, () => ed.jwk) })
    await expect(readKeySet(keysOf(100))).resolves.toBeDefined()
    await expect(readKeySet(keysOf(101))).rejects.toThrow('over 100 keys')
  })

  it('a JWK Set is the same set if an earlier reading gave equal keys', async () => {
    const first = await readKeySet({ keys: [rsa.jwk, ed.jwk] })
    expect(await readKeySet({ keys: [rsa.jwk, { ...ed.jwk }] }, first)).toBe(first)
    expect(await readKeySet({ keys: [ed.jwk] }, first)).not.toBe(first)
  })
})

it.each(['EdDSA', 'Ed25519'])('takes a key whose alg is %s for both names of the algorithm', async (alg) => {
  const set = await readKeySet({ keys: [{ ...makeKey('EdDSA').jwk, alg }] })
  expect([...set.keys[0]!.algorithms]).toEqual(['EdDSA', 'Ed25519'])
})

it('takes a key with another alg for that alg only', async () => {
  const set = await readKeySet({ keys: [{ ...makeKey('RS256').jwk, alg: 'RS256' }] })
  expect([...set.keys[0]!.algorithms]).toEqual(['RS256'])
})
