/** Creates tokens, and runs wrk, which sends them. */
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { appendFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { folder, LOAD_CPU, startOn } from './environment.ts'

export const ISSUER = 'https://identity.bench.example/oidc'
export const AUDIENCE = 'https://api.bench.example'
const CONNECTIONS = 50
/** Tokens that are signed concurrently, in libuv's thread pool. */
const BATCH = 1000

export type Algorithm = 'RS256' | 'ES256'

const keys: Record<Algorithm, { readonly publicKey: KeyObject; readonly privateKey: KeyObject }> = {
  RS256: generateKeyPairSync('rsa', { modulusLength: 2048 }),
  ES256: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
}

/** The RSA key, as PEM, and both keys, as a JWKS. */
export const publicKeyFile = join(folder, 'public.pem')
export const jwksFile = join(folder, 'jwks.json')
writeFileSync(publicKeyFile, keys.RS256.publicKey.export({ type: 'spki', format: 'pem' }))
writeFileSync(
  jwksFile,
  JSON.stringify({
    keys: (['RS256', 'ES256'] as const).map((alg) => ({
      ...keys[alg].publicKey.export({ format: 'jwk' }),
      ...{ kid: alg, alg, use: 'sig' },
    })),
  }),
)

export const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')

/** Resolves with a token of a client; all have the same length, unless they have further claims. */
export function token(algorithm: Algorithm, client: number, index: number, more = {}): Promise<string> {
  const padded = (n: number): string => String(n).padStart(7, '0')
  const iat = Math.floor(Date.now() / 1000)
  const times = { iat, exp: iat + 7 * 86_400 }
  const claims = { iss: ISSUER, aud: AUDIENCE, ...times, client_id: `client-${padded(client)}` }
  const body = { ...claims, sub: `user-${padded(client)}`, jti: padded(index), ...more }
  const input = `${encode({ alg: algorithm, typ: 'at+jwt', kid: algorithm })}.${encode(body)}`
  const key = { key: keys[algorithm].privateKey, dsaEncoding: 'ieee-p1363' } as const
  return new Promise((resolve, reject) =>
    sign('sha256', Buffer.from(input), key, (error, signature) => {
      if (error) reject(error)
      else resolve(`${input}.${signature.toString('base64url')}`)
    }),
  )
}

/** Changes a digit of the signature of a token. */
export const forge = (good: string): string =>
  `${good.slice(0, -100)}${good.at(-100) === 'A' ? 'B' : 'A'}${good.slice(-99)}`

/** Returns the API key of a client, as load.lua does. */
export const apiKey = (client: number): string => `client-${String(client).padStart(8, '0')}`

/** A file of tokens, one a line. */
export interface Tokens {
  readonly file: string
  readonly count: number
  readonly lineBytes: number
}

const minted = new Map<string, Tokens>()

/** Signs `count` tokens of as many clients as `clients`, once. */
export async function mintTokens(algorithm: Algorithm, count: number, clients = count): Promise<Tokens> {
  const file = join(folder, `tokens-${algorithm}-${count}-${clients}.txt`)
  const known = minted.get(file)
  if (known !== undefined) return known
  let lineBytes = 0
  for (let done = 0; done < count; done += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - done) }, (_, i) =>
      token(algorithm, (done + i) % clients, done + i),
    )
    const lines = await Promise.all(batch)
    lineBytes = lines[0]!.length + 1
    appendFileSync(file, `${lines.join('\n')}\n`)
  }
  const tokens = { file, count, lineBytes }
  minted.set(file, tokens)
  return tokens
}

/** The kind of requests that a run sends. */
export interface Work {
  readonly tokens?: Tokens | undefined
  /** The text before a line of `tokens` in a request; default: `Authorization: Bearer `. */
  readonly credential?: string
  /** True if each run continues after the last token of the previous run; otherwise it begins with the first token. */
  readonly fresh?: boolean
  readonly path?: string
  /** Bytes of a POST; default: GET. */
  readonly body?: number
  /** Number of clients, which call at random with an API key each. */
  readonly clients?: number
  /** Number of header fields, including Host and Authorization; default: 2. */
  readonly fields?: number
}

export interface Load {
  readonly requests: number
  readonly rps: number
  readonly p50Us: number
  readonly p99Us: number
  /** Responses of 400 and above. */
  readonly refused: number
  /** Connections that broke or stalled. */
  readonly errors: number
}

/** Runs wrk for some seconds; `sent` is the number of requests that were sent before. */
export async function load(port: number, seconds: number, work: Work, sent = 0): Promise<Load> {
  const { tokens } = work
  const child = startOn(
    LOAD_CPU,
    {
      command: 'wrk',
      args: [
        ...['-t1', `-c${CONNECTIONS}`, `-d${seconds}s`],
        ...['-s', new URL('load.lua', import.meta.url).pathname, `http://127.0.0.1:${port}`],
      ],
      env: {
        BENCH_PATH: work.path ?? '/transactions',
        BENCH_BODY: String(work.body ?? 0),
        BENCH_CREDENTIAL: work.credential ?? 'Authorization: Bearer ',
        BENCH_FIELDS: String(work.fields ?? 2),
        ...(work.clients !== undefined && { BENCH_CLIENTS: String(work.clients), BENCH_SEED: String(sent) }),
        ...(tokens && { BENCH_TOKENS: tokens.file }),
        ...(tokens && work.fresh && { BENCH_SKIP: String((sent % tokens.count) * tokens.lineBytes) }),
      },
    },
    'pipe',
  )
  let output = ''
  child.stdout!.setEncoding('utf8').on('data', (text: string) => (output += text))
  await new Promise((resolve) => child.once('close', resolve))
  const result = /RESULT (\{.*\})/.exec(output)?.[1]
  if (result === undefined) throw new Error(`wrk failed: ${output}`)
  const { durationUs, ...counts } = JSON.parse(result) as Omit<Load, 'rps'> & { durationUs: number }
  return { ...counts, rps: (counts.requests / durationUs) * 1e6 }
}
