/** The kinds of calls whose capacity is measured, and the gateway that serves all of them. */
import { constants, createHash, generateKeyPairSync, type KeyObject, randomUUID, sign } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Command } from './environment.ts'
import { gateway } from './contenders.ts'
import { encode, ISSUER, mintTokens, token } from './load.ts'
import type { Bench } from './measure.ts'

const HOST = 'api.bench.example'
const CLIENTS = 1000
/** Clients of refused calls, and of PAR. */
const FEW = 20
/** Calls at once of a gateway that is not busy: it does less work for several calls together. */
const FEW_AT_ONCE = [15, 5, 1]
/** Tokens, more than the gateway's cache has, so that each was evicted when it is sent again. */
const UNSEEN = 12_000

export interface Kind {
  readonly title: string
  /** The status of each response; default: 200. */
  readonly status?: number
  /** Calls at once; default: all connections. */
  readonly connections?: number
  /** The number of calls that are admitted before; default: 0. */
  readonly admittedFirst?: number
  /** Returns requests to send now; a proof is valid for a minute. */
  requests(count: number): Promise<readonly string[]>
}

const elliptic = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
const jwkOf = (key: KeyObject) => key.export({ format: 'jwk' })
const proofKey = jwkOf(elliptic.publicKey)
const { crv, kty, x, y } = proofKey
const thumbprint = createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('base64url')
const fewClient = (i: number): string => `few-${i % FEW}`
const nowS = (): number => Math.floor(Date.now() / 1000)

/** The routes of all kinds; `limit-0` and `limit-1` have room for every call. */
const SETTINGS = {
  limits: {
    'limit-0': { per: ['client'], limit: 1000, window: '1m' },
    'limit-1': { per: ['client'], limit: 900, window: '1m' },
    spent: { per: ['client'], limit: 1, window: '1h' },
  },
  par: { issuer: ISSUER },
  clients: Array.from({ length: FEW }, (_, i) => ({
    id: fewClient(i),
    requestObjectSigningAlg: 'PS256',
    jwks: { keys: [{ ...jwkOf(rsa.publicKey), kid: 'own', alg: 'PS256', use: 'sig' }] },
  })),
  routes: [
    { match: `GET ${HOST}/open`, authenticate: 'none' },
    { match: `POST ${HOST}/par`, authenticate: 'par' },
    { match: `GET ${HOST}/token`, authenticate: 'bearer' },
    { match: `GET ${HOST}/one`, authenticate: 'bearer', limits: ['limit-0'] },
    { match: `GET ${HOST}/two`, authenticate: 'bearer', limits: ['limit-0', 'limit-1'] },
    { match: `GET ${HOST}/spent`, authenticate: 'bearer', limits: ['spent'] },
  ].map((route) => ({ ...route, upstream: 'data' })),
}

/** Sluice with the routes of all kinds, as the container starts it. */
export const allKinds = (bench: Bench, redis = bench.redis): ((port: number) => Promise<Command>) =>
  gateway({ ...bench, redis }, { more: SETTINGS })

/** A request, as text; fields are lines. */
function request(target: string, fields: readonly string[], body = ''): string {
  return [`${target} HTTP/1.1`, `Host: ${HOST}`, ...fields, '', body].join('\r\n')
}

const linesOf = (file: string): readonly string[] => readFileSync(file, 'utf8').trimEnd().split('\n')

/** A kind of GET with the tokens of a file, one after another. */
async function withTokens(title: string, path: string, tokens: Promise<{ file: string }>): Promise<Kind> {
  const lines = linesOf((await tokens).file)
  let sent = 0
  const one = (): string => request(`GET ${path}`, [`Authorization: Bearer ${lines[sent++ % lines.length]!}`])
  return { title, requests: async (count) => Array.from({ length: count }, one) }
}

/** Returns a JWT of the client's own key. */
function ownJwt(claims: object, typ: string): string {
  const input = `${encode({ alg: 'PS256', typ, kid: 'own' })}.${encode(claims)}`
  const padding = constants.RSA_PKCS1_PSS_PADDING
  const key = { key: rsa.privateKey, padding, saltLength: 32 }
  return `${input}.${sign('sha256', Buffer.from(input), key).toString('base64url')}`
}

/** A push with a signed request object and a client assertion. */
function pushed(i: number): string {
  const client = fewClient(i)
  const times = { iat: nowS(), nbf: nowS(), exp: nowS() + 60, jti: randomUUID(), iss: client, aud: ISSUER }
  const parameters = {
    ...times,
    ...{ client_id: client, response_type: 'code', scope: 'openid accounts', state: randomUUID() },
    redirect_uri: 'https://client.example.com/callback',
  }
  const body = new URLSearchParams({
    client_id: client,
    request: ownJwt(parameters, 'oauth-authz-req+jwt'),
    client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
    client_assertion: ownJwt({ ...times, sub: client }, 'JWT'),
  }).toString()
  const type = 'Content-Type: application/x-www-form-urlencoded'
  return request('POST /par', [type, `Content-Length: ${body.length}`], body)
}

/** A call with a token that is bound to a key, and a new proof of that key. */
function proven(bound: string): string {
  const ath = createHash('sha256').update(bound).digest('base64url')
  const claims = { jti: randomUUID(), htm: 'GET', htu: `http://${HOST}/one`, iat: nowS(), ath }
  const input = `${encode({ alg: 'ES256', typ: 'dpop+jwt', jwk: proofKey })}.${encode(claims)}`
  const key = { key: elliptic.privateKey, dsaEncoding: 'ieee-p1363' } as const
  const proof = `${input}.${sign('sha256', Buffer.from(input), key).toString('base64url')}`
  return request('GET /one', [`Authorization: DPoP ${bound}`, `DPoP: ${proof}`])
}

/** Kinds of calls with a token seen before, and one or two limits. */
export const limitedKinds = (): Promise<readonly Kind[]> =>
  Promise.all([
    withTokens('token seen before, one limit', '/one', mintTokens('ES256', CLIENTS)),
    withTokens('token seen before, two limits', '/two', mintTokens('ES256', CLIENTS)),
  ])

/** A kind of calls of many clients, each with a token and a counter. */
export const callersKind = (clients: number): Promise<Kind> =>
  withTokens(`${clients} callers`, '/one', mintTokens('ES256', clients))

/** Every kind of call. */
export async function kinds(): Promise<readonly Kind[]> {
  const bound = await Promise.all(
    Array.from({ length: CLIENTS }, (_, i) => token('ES256', i, i, { cnf: { jkt: thumbprint } })),
  )
  const each = (one: (i: number) => string) => async (count: number) =>
    Array.from({ length: count }, (_, i) => one(i))
  const limited = await limitedKinds()
  const fewAtOnce = FEW_AT_ONCE.map((connections) => {
    const title = `${limited[0]!.title}, ${connections} at once`
    return { ...limited[0]!, title, connections }
  })
  return [
    { title: 'open route, no limit', requests: each(() => request('GET /open', [])) },
    await withTokens('token seen before, no limit', '/token', mintTokens('ES256', CLIENTS)),
    ...limited,
    ...fewAtOnce,
    await withTokens('new token (ES256), one limit', '/one', mintTokens('ES256', UNSEEN, CLIENTS)),
    await withTokens('new token (RS256), one limit', '/one', mintTokens('RS256', UNSEEN, CLIENTS)),
    { title: 'DPoP proof (ES256), one limit', requests: each((i) => proven(bound[i % CLIENTS]!)) },
    { title: 'PAR, request object and assertion (PS256)', requests: each(pushed) },
    {
      ...(await withTokens('refused (429), from memory', '/spent', mintTokens('ES256', FEW))),
      ...{ status: 429, admittedFirst: FEW },
    },
  ]
}
