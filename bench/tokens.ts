/**
 * Measures the cost of verifying an unseen token:
 * `npm run bench:tokens [-- --rounds N --tokens N]`. Sluice, jose with the same keys in memory, and
 * only the signature, alternating in one process; processor time of all threads. Then the maximum
 * cost of a token that no key has signed.
 */
import { generateKeyPairSync, type KeyObject, sign, verify } from 'node:crypto'
import { parseArgs } from 'node:util'
import { createLocalJWKSet, jwtVerify } from 'jose'
import { createBearer } from '../src/authenticate/token/bearer.ts'
import { SCHEMES } from '../src/authenticate/jose/jws.ts'
import { readKeySet } from '../src/authenticate/jose/key-set.ts'
import { AUDIENCE, encode, ISSUER } from './load.ts'
import { medianOf } from './measure.ts'
import { markdown } from './report.ts'

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '15' }, tokens: { type: 'string', default: '2000' } },
})
const rounds = Number(values.rounds)
const count = Number(values.tokens)

/** Verifies a token. Throws, rejects or returns an error or false if it is invalid. */
type Take = (token: string, index: number) => unknown
type KeySet = Awaited<ReturnType<typeof readKeySet>>

/** Microseconds of processor time for each token. */
async function cost(take: Take, tokens: readonly string[], accepted = true): Promise<number> {
  const before = process.cpuUsage()
  for (const [i, token] of tokens.entries()) {
    const taken = take(token, i)
    if (taken instanceof Promise) await taken
    else if (accepted && (taken instanceof Error || taken === false))
      throw new Error('a good token was refused')
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / tokens.length
}

/** Creates the token verification of Sluice, with empty caches. */
function sluice(keySet: KeySet, algorithm: string): Take {
  const issuer = {
    ...{ issuer: ISSUER, audience: [AUDIENCE], clientClaim: 'client_id', algorithms: [algorithm] },
    ...{
      leewayMs: 5000,
      realm: 'bench',
      keys: { current: () => keySet, refresh: () => undefined, isStale: () => false },
    },
  }
  const authenticate = createBearer([{ ...issuer, type: 'any' }])
  return (token) => authenticate([`Bearer ${token}`])
}

const PAIRS: Readonly<Record<string, () => { publicKey: KeyObject; privateKey: KeyObject }>> = {
  RS256: () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
  PS256: () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  EdDSA: () => generateKeyPairSync('ed25519'),
}

/** The median microseconds of Sluice, jose and the signature, and the median of Sluice / jose. */
async function compare(algorithm: string): Promise<readonly string[]> {
  const { publicKey, privateKey } = PAIRS[algorithm]!()
  const { digest, options } = SCHEMES.get(algorithm)!
  const header = encode({ alg: algorithm, typ: 'at+jwt', kid: 'k' })
  const iat = Math.floor(Date.now() / 1000)
  const parts = Array.from({ length: count }, (_, i) => {
    const claims = { client_id: `client-${i}`, sub: `user-${i}`, jti: String(i), scope: 'accounts:read' }
    const input = `${header}.${encode({ ...claims, iss: ISSUER, aud: AUDIENCE, iat, exp: iat + 7200 })}`
    const signature = sign(digest, Buffer.from(input), { key: privateKey, ...options })
    return { input: Buffer.from(input), signature, token: `${input}.${signature.toString('base64url')}` }
  })
  const tokens = parts.map(({ token }) => token)
  const jwks = { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: algorithm, use: 'sig' }] }
  const keySet = await readKeySet(jwks)
  const local = createLocalJWKSet(jwks)
  const jose: Take = (token) =>
    jwtVerify(token, local, { issuer: ISSUER, audience: AUDIENCE, algorithms: [algorithm] })
  const signatureAlone: Take = (_, i) =>
    verify(digest, parts[i]!.input, { key: publicKey, ...options }, parts[i]!.signature)

  const costs: number[][] = []
  for (let round = 0; round <= rounds; round++) {
    const takes = [sluice(keySet, algorithm), jose, signatureAlone]
    const each: number[] = []
    for (const take of takes) each.push(await cost(take, tokens))
    // The first round warms up.
    if (round > 0) costs.push([...each, each[0]! / each[1]!])
  }
  const medians = [0, 1, 2, 3].map((column) => medianOf(costs.map((each) => each[column]!)))
  return [algorithm, ...medians.map((value, i) => value.toFixed(i === 3 ? 2 : 1))]
}

/**
 * Measures the most costly accepted keys of a kind, if no key signed the token: the number of tried
 * keys, and the median in microseconds.
 */
async function refuse(name: string, algorithm: string, keys: readonly object[]): Promise<readonly string[]> {
  const keySet = await readKeySet({ keys: keys.map((key, i) => ({ ...key, kid: String(i) })) })
  const bytes = { PS256: 512, ES256: 64, ES384: 96, EdDSA: 64 }[algorithm]!
  const signature = Buffer.alloc(bytes, 0x0a).toString('base64url')
  const tokens = Array.from(
    { length: 50 },
    (_, i) => `${encode({ alg: algorithm })}.${encode({ iss: ISSUER, jti: i })}.${signature}`,
  )
  const take = sluice(keySet, algorithm)
  const costs: number[] = []
  while (costs.length < rounds) costs.push(await cost(take, tokens, false))
  return [name, String(keySet.find(algorithm, undefined).length), medianOf(costs).toFixed(0)]
}

const several = (make: () => KeyObject): readonly object[] =>
  Array.from({ length: 5 }, () => make().export({ format: 'jwk' }))
const ec = (namedCurve: string) => several(() => generateKeyPairSync('ec', { namedCurve }).publicKey)
const modulus = Buffer.alloc(512, 0xfb).toString('base64url')
const rsa = (exponent: string): readonly object[] =>
  Array.from({ length: 5 }, () => ({
    kty: 'RSA',
    n: modulus,
    e: Buffer.from(exponent, 'hex').toString('base64url'),
  }))

const taken: (readonly string[])[] = []
for (const algorithm of Object.keys(PAIRS)) taken.push(await compare(algorithm))
console.log(markdown(['us per token', 'Sluice', 'jose', 'signature', 'Sluice / jose'], taken))
const refused = [
  await refuse('RSA of 4096 bits, exponent 65537', 'PS256', rsa('010001')),
  await refuse('RSA of 4096 bits, exponent 2^64-1', 'PS256', rsa('ffffffffffffffff')),
  await refuse('P-256', 'ES256', ec('P-256')),
  await refuse('P-384', 'ES384', ec('P-384')),
  await refuse(
    'Ed25519',
    'EdDSA',
    several(() => generateKeyPairSync('ed25519').publicKey),
  ),
]
console.log(`\n${markdown(['us per refused token', 'keys tried', 'us'], refused)}`)
