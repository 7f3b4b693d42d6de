import { readFileSync } from 'node:fs'
import { compactVerify, createLocalJWKSet, type JWK } from 'jose'
import { describe, expect, it } from 'vitest'
import { PROOF_ALGORITHMS } from '../../../src/authenticate/proof/dpop.ts'
import { parseJws, SCHEMES } from '../../../src/authenticate/jose/jws.ts'
import { type KeySet, readKeySet } from '../../../src/authenticate/jose/key-set.ts'
import { makeKey, signJws } from '../../helpers/issuer.ts'

interface Vectors {
  readonly numberOfTests: number
  readonly testGroups: readonly {
    readonly comment: string
    readonly public?: JWK
    readonly private: JWK
    readonly tests: readonly {
      readonly tcId: number
      readonly comment: string
      readonly jws: string
      readonly result: 'valid' | 'invalid'
    }[]
  }[]
}

const vectors = JSON.parse(
  readFileSync(new URL('wycheproof/json_web_signature_test.json', import.meta.url), 'utf8'),
) as Vectors

/** Signatures that the vectors call valid, but MACs, or by another algorithm than their key's `alg`. */
const NOT_FOR_US = new Set([1, 346, 347, 348, 350, 351, 352, 357, 358, 359, 372, 373, 376, 377])

function verifies(text: string, set: KeySet): boolean {
  const jws = parseJws(text)
  return jws !== undefined && set.verifies(jws)
}

async function joseVerifies(text: string, jwk: JWK): Promise<boolean> {
  const options = { algorithms: [...SCHEMES.keys()] }
  return compactVerify(text, createLocalJWKSet({ keys: [jwk] }), options).then(
    () => true,
    () => false,
  )
}

describe('verifying signatures', () => {
  it('verifying signatures is possible by every algorithm that DPoP proofs may have', () => {
    expect([...SCHEMES.keys()]).toEqual(expect.arrayContaining([...PROOF_ALGORITHMS]))
  })

  it.each(vectors.testGroups)(
    'gives each Wycheproof vector its verdict, and jose’s: $comment',
    async (group) => {
      const jwk = group.public ?? group.private
      const set = await readKeySet({ keys: [jwk] })
      for (const { tcId, comment, jws, result } of group.tests) {
        const name = `${tcId} ${comment}`
        const verdict = verifies(jws, set)
        expect([name, verdict]).toEqual([name, result === 'valid' && !NOT_FOR_US.has(tcId)])
        expect([name, verdict]).toEqual([name, await joseVerifies(jws, jwk)])
      }
    },
  )

  it('verifying signatures has read every vector', () => {
    expect(vectors.testGroups.flatMap((group) => group.tests)).toHaveLength(vectors.numberOfTests)
  })

  it.each(['RS256', 'PS256', 'ES256', 'EdDSA'] as const)(
    'takes one spelling of an %s signature only',
    async (alg) => {
      const key = makeKey(alg)
      const set = await readKeySet({ keys: [key.jwk] })
      const token = signJws({ alg, kid: key.kid }, { sub: 'x' }, key)
      expect(verifies(token, set)).toBe(true)
      const others = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/='
        .split('')
        .map((last) => token.slice(0, -1) + last)
        .filter((spelling) => spelling !== token)
      const padded = [`${token}=`, `${token}==`, `${token} `, `${token}\n`, ` ${token}`, `${token}A`]
      const standard = token.replaceAll('-', '+').replaceAll('_', '/')
      for (const spelling of [...others, ...padded, ...(standard === token ? [] : [standard])]) {
        expect(verifies(spelling, set)).toBe(false)
      }
    },
  )

  it.each(['RS256', 'PS256', 'ES256', 'EdDSA'] as const)(
    'agrees with jose on every changed byte of an %s token',
    async (alg) => {
      const key = makeKey(alg)
      const set = await readKeySet({ keys: [key.jwk] })
      const signatureOf = (jws: string) => Buffer.from(jws.split('.')[2]!, 'base64url')
      let token: string
      let sub = 0
      // jose accepts a PSS signature without its leading zero; see below.
      do token = signJws({ alg, kid: key.kid }, { sub: String(sub++) }, key)
      while (signatureOf(token)[0] === 0)
      for (let i = 0; i < token.length; i += 3) {
        const changed = token.slice(0, i) + (token[i] === 'A' ? 'B' : 'A') + token.slice(i + 1)
        expect(verifies(changed, set)).toBe(false)
      }
      const [head, payload] = token.split('.') as [string, string]
      const bytes = signatureOf(token)
      const zeros = Buffer.alloc(bytes.length)
      const ones = Buffer.alloc(bytes.length, 0xff)
      const doubled = Buffer.concat([bytes, bytes])
      for (const forged of [zeros, ones, doubled, bytes.subarray(1), Buffer.concat([zeros, bytes])]) {
        const text = `${head}.${payload}.${forged.toString('base64url')}`
        expect(verifies(text, set)).toBe(false)
        expect(await joseVerifies(text, key.jwk as JWK)).toBe(false)
      }
    },
  )

  it('refuses a PSS signature without its leading zero, which OpenSSL accepts', async () => {
    const key = makeKey('PS256')
    const set = await readKeySet({ keys: [key.jwk] })
    let token: string
    let bytes: Buffer
    do {
      token = signJws({ alg: 'PS256', kid: key.kid }, { sub: 'x' }, key)
      bytes = Buffer.from(token.replace(/.*\./, ''), 'base64url')
    } while (bytes[0] !== 0)
    expect(verifies(token, set)).toBe(true)
    expect(verifies(token.replace(/[^.]+$/, bytes.subarray(1).toString('base64url')), set)).toBe(false)
  })
})

describe('parsing a JWS', () => {
  it.each([
    ['', 'nothing'],
    ['..', 'empty parts'],
    ['e30', 'one part'],
    ['e30.e30', 'two parts'],
    ['e30.e30.AA.AA', 'four parts'],
    ['e30.e30.AAAA.AAAA.AAAA', 'five parts: a JWE'],
    ['e30=.e30.AAAA', 'padding'],
    ['e30.e31.AAAA', 'bits left over in the payload'],
    ['e30.e30.AB', 'bits left over in the signature'],
    ['e30.e30.AAAAA', 'a single character over'],
    ['W10.e30.AAAA', 'a header that is a list'],
    ['bnVsbA.e30.AAAA', 'a header that is null'],
    ['IngI.e30.AAAA', 'a header that is a string'],
    ['gICA.e30.AAAA', 'a header that is not UTF-8'],
    ['77u_e30.e30.AAAA', 'a byte order mark'],
    ['e30.e30.AAÄA', 'a character beyond ASCII'],
  ])('refuses %j: %s', (text) => {
    expect(parseJws(text)).toBeUndefined()
  })

  it('returns each header unchanged, after any number of others', () => {
    const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const headers = Array.from({ length: 250 }, (_, i) => ({ alg: 'ES256', kid: `${i}`, x: 'x'.repeat(i) }))
    for (const again of [headers, headers.slice(100), headers]) {
      for (const header of again) expect(parseJws(`${encode(header)}.e30.AAAA`)?.header).toEqual(header)
    }
  })

  it('survives JSON of any depth', () => {
    const deep = Buffer.from('['.repeat(10_000)).toString('base64url')
    const closed = Buffer.from(`{"a":${'['.repeat(6000)}${']'.repeat(6000)}}`).toString('base64url')
    expect(parseJws(`${deep}.e30.AAAA`)).toBeUndefined()
    expect(parseJws(`${closed}.e30.AAAA`)).toBeDefined()
  })
})
