/**
 * What it costs to take a token that was never seen before: `npm run bench:tokens [-- --rounds N --tokens N]`. Sluice, jose with
 * the same keys in memory, and the signature alone, in turn in one process; processor time of all threads. Then the most that
 * a token can cost that no key has signed.
 */
import { generateKeyPairSync, type KeyObject, sign, verify } from 'node:crypto'
import { parseArgs } from 'node:util'
import { createLocalJWKSet, jwtVerify } from 'jose'
import { createBearer } from '../src/authenticate/token/bearer.ts'
import { SCHEMES } from '../src/authenticate/token/jws.ts'
import { readKeySet } from '../src/authenticate/token/key-set.ts'
import { AUDIENCE, ISSUER } from './load.ts'

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '15' }, tokens: { type: 'string', default: '2000' } },
})
const rounds = Number(values.rounds)
const count = Number(values.tokens)

/** A way of taking all tokens; afresh for each round, so that it has seen none of them. */
type Contender = () => (token: string) => unknown

const median = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[list.length >> 1]!

function makePair(algorithm: string): { readonly publicKey: KeyObject; readonly privateKey: KeyObject } {
  if (algorithm === 'ES256') return generateKeyPairSync('ec', { namedCurve: 'P-256' })
  if (algorithm === 'EdDSA') return generateKeyPairSync('ed25519')
  return generateKeyPairSync('rsa', { modulusLength: 2048 })
}

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')

/** Microseconds of processor time for each token. */
async function cost(contender: Contender, tokens: readonly string[]): Promise<number> {
  const take = contender()
  const before = process.cpuUsage()
  for (const token of tokens) {
    const taken = take(token)
    if (taken instanceof Promise) await taken
    else if (taken instanceof Error || taken === false) throw new Error('a good token was refused')
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / tokens.length
}

async function compare(algorithm: string): Promise<void> {
  const { publicKey, privateKey } = makePair(algorithm)
  const { digest, options } = SCHEMES.get(algorithm)!
  const header = encode({ alg: algorithm, typ: 'at+jwt', kid: 'k' })
  const iat = Math.floor(Date.now() / 1000)
  const tokens = Array.from({ length: count }, (_, i) => {
    const claims = { client_id: `client-${i}`, sub: `user-${i}`, jti: String(i), scope: 'accounts:read' }
    const input = `${header}.${encode({ ...claims, iss: ISSUER, aud: AUDIENCE, iat, exp: iat + 7200 })}`
    return `${input}.${sign(digest, Buffer.from(input), { key: privateKey, ...options }).toString('base64url')}`
  })
  const jwks = {
    keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: algorithm, use: 'sig' }],
  }
  const keySet = await readKeySet(jwks)
  const keys = { current: () => keySet, refresh: () => undefined }
  const local = createLocalJWKSet(jwks)
  const apart = tokens.map((token) => {
    const last = token.lastIndexOf('.')
    return [Buffer.from(token.slice(0, last)), Buffer.from(token.slice(last + 1), 'base64url')] as const
  })

  const sluice: Contender = () => {
    const authenticate = createBearer({
      ...{ issuer: ISSUER, audience: AUDIENCE, clientClaim: 'client_id', algorithms: [algorithm] },
      ...{ leewayMs: 5000, realm: 'bench', type: 'any', keys },
    })
    return (token) => authenticate([`Bearer ${token}`])
  }
  const jose: Contender = () => (token) =>
    jwtVerify(token, local, { issuer: ISSUER, audience: AUDIENCE, algorithms: [algorithm] })
  const signature: Contender = () => {
    let next = 0
    return () => {
      const [input, signed] = apart[next++]!
      return verify(digest, input, { key: publicKey, ...options }, signed)
    }
  }

  const costs: Record<'sluice' | 'jose' | 'signature', number[]> = { sluice: [], jose: [], signature: [] }
  for (let round = 0; round <= rounds; round++) {
    const measured = {
      sluice: await cost(sluice, tokens),
      jose: await cost(jose, tokens),
      signature: await cost(signature, tokens),
    }
    // The first warms up.
    if (round === 0) continue
    for (const name of ['sluice', 'jose', 'signature'] as const) costs[name].push(measured[name])
  }
  const ratio = median(costs.sluice.map((us, i) => us / costs.jose[i]!))
  const columns = [costs.sluice, costs.jose, costs.signature].map((list) =>
    median(list).toFixed(1).padStart(10),
  )
  console.log(`${algorithm.padEnd(10)}${columns.join('')}${ratio.toFixed(2).padStart(14)}`)
}

console.log(
  `us per token${'Sluice'.padStart(8)}${'jose'.padStart(10)}${'signature'.padStart(10)}  Sluice / jose`,
)
for (const algorithm of ['RS256', 'PS256', 'ES256', 'EdDSA']) await compare(algorithm)

/** The most costly keys of a kind that are taken, none of which signed: the median of microseconds, as `cost`. */
async function refuse(
  name: string,
  algorithm: string,
  keys: readonly object[],
  bytes: number,
): Promise<void> {
  const keySet = await readKeySet({ keys })
  const tried = keySet.find(algorithm, undefined).length
  const authenticate = createBearer({
    ...{ issuer: ISSUER, audience: AUDIENCE, clientClaim: 'client_id', algorithms: [algorithm], leewayMs: 0 },
    ...{ realm: 'bench', type: 'any', keys: { current: () => keySet, refresh: () => undefined } },
  })
  const signature = Buffer.alloc(bytes, 0x0a).toString('base64url')
  const tokens = Array.from(
    { length: 50 },
    (_, i) => `${encode({ alg: algorithm })}.${encode({ iss: ISSUER, jti: i })}.${signature}`,
  )
  const take = () => (token: string) => void authenticate([`Bearer ${token}`])
  const costs: number[] = []
  for (let round = 0; round < rounds; round++) costs.push(await cost(take, tokens))
  console.log(`${name.padEnd(34)}${String(tried).padStart(5)}${median(costs).toFixed(0).padStart(10)}`)
}

const several = (make: () => KeyObject, n = 5) =>
  Array.from({ length: n }, (_, i) => ({ ...make().export({ format: 'jwk' }), kid: String(i) }))
const ec = (namedCurve: string) => () => generateKeyPairSync('ec', { namedCurve }).publicKey
const modulus = Buffer.alloc(512, 0xfb).toString('base64url')
const rsa = (exponent: string) =>
  Array.from({ length: 5 }, (_, i) => ({
    ...{ kty: 'RSA', n: modulus, kid: String(i) },
    e: Buffer.from(exponent, 'hex').toString('base64url'),
  }))

console.log(`\nus per refused token${'tried'.padStart(19)}`)
await refuse('RSA of 4096 bits, exponent 65537', 'PS256', rsa('010001'), 512)
await refuse('RSA of 4096 bits, exponent 2^64-1', 'PS256', rsa('ffffffffffffffff'), 512)
await refuse('P-256', 'ES256', several(ec('P-256')), 64)
await refuse('P-384', 'ES384', several(ec('P-384')), 96)
await refuse(
  'Ed25519',
  'EdDSA',
  several(() => generateKeyPairSync('ed25519').publicKey),
  64,
)
