import {
  constants,
  createPublicKey,
  generateKeyPairSync,
  hash,
  type JsonWebKey,
  type KeyObject,
  randomUUID,
  sign,
  type SignKeyObjectInput,
} from 'node:crypto'
import { createServer, type ServerResponse } from 'node:http'
import { listenLocally } from './local-server.ts'

export type TestAlgorithm = 'RS256' | 'PS256' | 'ES256' | 'EdDSA'

export interface TestKey {
  readonly kid: string
  readonly alg: TestAlgorithm
  readonly privateKey: KeyObject
  /** The published JWK. */
  readonly jwk: JsonWebKey & { readonly kid: string }
}

/** A fault in the responses for keys and discovery. */
export type Fault = 'down' | 'error' | 'garbage' | 'huge' | 'redirect' | 'silent'

export interface TokenOptions {
  /** The algorithm of the issuer's key that signs; default: PS256, or else the first key. */
  readonly alg?: TestAlgorithm
  /** A key that is not the issuer's. */
  readonly key?: TestKey
  /** Adds to or replaces alg, kid and typ; undefined removes a parameter. */
  readonly header?: Readonly<Record<string, unknown>>
}

export interface TestIssuer {
  /** The issuer identifier, which is its base URL. */
  readonly issuer: string
  readonly audience: string
  readonly jwksUri: string
  /** Number of requests by path. */
  readonly asked: { jwks: number; discovery: number }
  fault: Fault | undefined
  /** The published JWK Set, which tests may replace. */
  jwks: unknown
  /** Adds to or replaces issuer and jwks_uri of the discovery document. */
  metadata: Readonly<Record<string, unknown>>
  key(alg: TestAlgorithm): TestKey
  /** Replaces all keys by new keys. */
  rotate(): void
  /**
   * Returns an access token, by default of the client `client-1`, for the issuer's audience, valid for five minutes.
   * `claims` adds or replaces claims, undefined removes a claim.
   */
  token(claims?: Readonly<Record<string, unknown>>, options?: TokenOptions): string
  close(): Promise<void>
}

const ALGORITHMS: readonly TestAlgorithm[] = ['RS256', 'PS256', 'ES256', 'EdDSA']
const SIGNING: Readonly<Record<TestAlgorithm, readonly [string | undefined, Partial<SignKeyObjectInput>]>> = {
  RS256: ['sha256', {}],
  PS256: ['sha256', { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 32 }],
  ES256: ['sha256', { dsaEncoding: 'ieee-p1363' }],
  EdDSA: [undefined, {}],
}

/** Creates a key pair with a new kid. */
export function makeKey(alg: TestAlgorithm, kid: string = randomUUID()): TestKey {
  const { privateKey, publicKey } = generatePair(alg)
  return { kid, alg, privateKey, jwk: { ...publicKey.export({ format: 'jwk' }), kid, alg, use: 'sig' } }
}

/** RSA pairs, each made once, as that takes a fifth of a second; in turn, so that the keys of a test differ. */
const rsaPairs: ReturnType<typeof generatePair>[] = []
const MAX_RSA_PAIRS = 4
let rsaKeys = 0

function generatePair(alg: TestAlgorithm): { privateKey: KeyObject; publicKey: KeyObject } {
  if (alg === 'ES256') return generateKeyPairSync('ec', { namedCurve: 'P-256' })
  if (alg === 'EdDSA') return generateKeyPairSync('ed25519')
  return (rsaPairs[rsaKeys++ % MAX_RSA_PAIRS] ??= generateKeyPairSync('rsa', { modulusLength: 2048 }))
}

/** Creates a compact JWS of any header and payload; a payload that is not bytes is serialised as JSON. */
export function signJws(header: object, payload: unknown, key: TestKey): string {
  const body = Buffer.isBuffer(payload) ? payload : Buffer.from(JSON.stringify(payload))
  const input = `${Buffer.from(JSON.stringify(header)).toString('base64url')}.${body.toString('base64url')}`
  const [digest, options] = SIGNING[key.alg]
  const signature = sign(digest, Buffer.from(input), { key: key.privateKey, ...options })
  return `${input}.${signature.toString('base64url')}`
}

export interface ProofOptions {
  readonly key: TestKey
  readonly token: string
  readonly method?: string
  readonly url: string
  /** Adds to or replaces typ, alg and jwk; undefined removes a parameter. */
  readonly header?: Readonly<Record<string, unknown>>
  /** Adds to or replaces jti, htm, htu, iat and ath; undefined removes a claim. */
  readonly claims?: Readonly<Record<string, unknown>>
}

/** Creates a DPoP proof (RFC 9449 section 4.2) for one request. */
export function signProof({ key, token, method = 'GET', url, header, claims }: ProofOptions): string {
  return signJws(
    { typ: 'dpop+jwt', alg: key.alg, jwk: publicPart(key), ...header },
    {
      jti: randomUUID(),
      htm: method,
      htu: url,
      iat: Math.floor(Date.now() / 1000),
      ath: hash('sha256', token, 'base64url'),
      ...claims,
    },
    key,
  )
}

/** Returns the thumbprint of a key (RFC 7638), to which tokens are bound. */
export function thumbprintOf(key: TestKey): string {
  const jwk = publicPart(key)
  const members = Object.keys(jwk).toSorted()
  return hash('sha256', JSON.stringify(jwk, members), 'base64url')
}

function publicPart({ privateKey }: TestKey): JsonWebKey {
  return createPublicKey(privateKey).export({ format: 'jwk' })
}

/** Starts a real HTTP issuer on a free port: discovery, JWK Set, signed tokens, and faults on demand. */
export async function startIssuer({
  audience = 'https://api.example.com',
  path = '/oidc',
  algorithms = ALGORITHMS,
}: {
  readonly audience?: string
  readonly path?: string
  /** Shared, because RSA keys are slow to generate. */
  readonly algorithms?: readonly TestAlgorithm[]
} = {}): Promise<TestIssuer> {
  const makeKeys = () => new Map(algorithms.map((alg) => [alg, makeKey(alg)]))
  let keys = makeKeys()
  const published = (): unknown => ({ keys: [...keys.values()].map((key) => key.jwk) })
  const server = createServer((request, response) => {
    const isJwks = request.url === `${path}/jwks`
    if (!isJwks && request.url !== `${path}/.well-known/openid-configuration`) {
      response.writeHead(404).end()
      return
    }
    self.asked[isJwks ? 'jwks' : 'discovery']++
    if (self.fault !== undefined) {
      fail(self.fault, response, self.jwksUri)
      return
    }
    const document = isJwks
      ? self.jwks
      : { issuer: self.issuer, jwks_uri: self.jwksUri, authorization_endpoint: '', ...self.metadata }
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(document))
  })
  const { url, close } = await listenLocally(server)
  const issuer = `${url}${path}`

  const self: TestIssuer = {
    issuer,
    audience,
    jwksUri: `${issuer}/jwks`,
    asked: { jwks: 0, discovery: 0 },
    fault: undefined,
    jwks: published(),
    metadata: {},
    key: (alg) => keys.get(alg)!,
    rotate() {
      keys = makeKeys()
      self.jwks = published()
    },
    token(
      claims,
      { alg = algorithms.includes('PS256') ? 'PS256' : algorithms[0]!, key = keys.get(alg)!, header } = {},
    ) {
      const now = Math.floor(Date.now() / 1000)
      const defaults = {
        iss: issuer,
        aud: audience,
        client_id: 'client-1',
        iat: now,
        exp: now + 300,
        jti: randomUUID(),
      }
      const head = { alg: key.alg, kid: key.kid, typ: 'at+jwt', ...header }
      return signJws(head, { ...defaults, ...claims }, key)
    },
    close,
  }
  return self
}

function fail(fault: Fault, response: ServerResponse, elsewhere: string): void {
  if (fault === 'down') response.destroy()
  else if (fault === 'error') response.writeHead(503).end()
  else if (fault === 'garbage') response.writeHead(200).end('<html>Welcome</html>')
  else if (fault === 'redirect') response.writeHead(302, { location: `${elsewhere}?again` }).end()
  else if (fault === 'huge') {
    const chunk = Buffer.alloc(64 * 1024, ' ')
    const pour = (): void => {
      while (!response.destroyed && response.write(chunk));
    }
    response.on('drain', pour)
    pour()
  }
}
