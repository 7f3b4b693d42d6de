import { expect, vi } from 'vitest'
import { randomUUID } from 'node:crypto'
import { type KeysOptions, createClientKeys } from '../../src/authenticate/token/jwks.ts'
import { createParGuard } from '../../src/par/guard.ts'
import { type ParRules, foldClientId, type ParClient } from '../../src/par/clients.ts'
import { type Form, type Guard, parseParameters, refuseBody } from '../../src/par/form.ts'
import type { Refusal } from '../../src/errors.ts'
import { refusalReply } from '../../src/downstream/reply.ts'
import { makeKey, signJws, type TestKey } from './issuer.ts'

export const ISSUER = 'https://identity.example.com/oidc'
export const TOKEN = `${ISSUER}/token`
export const PAR = `${ISSUER}/request`
export const ASSERTION_TYPE = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer'
/** The time of the guards' clock, in seconds. */
export const NOW = 1_800_000_000

export const KEY = makeKey('PS256', 'key-1')
export const OTHER_KEY = makeKey('PS256', 'key-1')
export const KEYS = clientKeys({ keys: [KEY.jwk] })

/** Returns the keys of a client, from a JWK Set or from its URL. */
export function clientKeys(
  jwks: string | object,
  events: Partial<KeysOptions['events']> = {},
  options: Partial<KeysOptions> = {},
) {
  return createClientKeys({
    issuer: 'client',
    jwks,
    events: { onDown() {}, onUp() {}, ...events },
    ...options,
  })
}

type Members = Readonly<Record<string, unknown>>

let checking = 0

/** Returns the options of a guard with these clients, by id. */
export function guardOptions(clients: Readonly<Record<string, Omit<ParClient, 'id'>>>): ParRules {
  return {
    issuer: ISSUER,
    audiences: [TOKEN, PAR],
    requestUri: 'urn:ietf:params:oauth:request_uri:',
    assertionAudience: 'compatible',
    leewayMs: 10_000,
    unknownClients: 'forward',
    clientOf: (id) => (Object.hasOwn(clients, id) ? { id, ...clients[id] } : undefined),
    isLookAlike: (id) => Object.keys(clients).some((one) => foldClientId(one) === foldClientId(id)),
  }
}

/** Creates a guard with these clients, whose clock is at `NOW`. */
export function guardOf(clients: Parameters<typeof guardOptions>[0], options: Partial<ParRules> = {}): Guard {
  const guard = createParGuard({ ...guardOptions(clients), ...options })
  return async (query, form) => {
    checking++
    vi.setSystemTime(NOW * 1000)
    return await guard(query, form).finally(() => --checking === 0 && vi.useRealTimers())
  }
}

/** Returns valid plain parameters of a client; `more` adds or replaces parameters, undefined removes a parameter. */
export function plain(client: string, more: Members = {}): Members {
  return {
    client_id: client,
    scope: 'openid id:b74f1a79f0be8bdb857d82d0f041d7d2',
    redirect_uri: 'https://client.example.com/callback?a=b&c=d',
    response_type: 'code',
    state: 'a state/with:reserved+characters',
    nonce: 'n-0S6_WzA2Mj',
    claims: '{"id_token":{"sub":"true","mh:con_id":"true"}}',
    ...more,
  }
}

export interface JwtOptions {
  readonly key?: TestKey
  readonly header?: Members
  /** Replaces the JSON of the claims. */
  readonly payload?: Buffer
}

/** Returns a client assertion, by default a valid one; `claims` adds or replaces claims, undefined removes a claim. */
export function assertion(client: string, claims: Members = {}, options: JwtOptions = {}): Members {
  const good = {
    iss: client,
    sub: client,
    aud: ISSUER,
    jti: randomUUID(),
    iat: NOW,
    exp: NOW + 60,
    ...claims,
  }
  return { client_assertion_type: ASSERTION_TYPE, client_assertion: jwt(good, options) }
}

/** Returns a signed request object with the parameters of `plain`, `claims` as an object. */
export function requestObject(client: string, claims: Members = {}, options: JwtOptions = {}): string {
  return jwt(objectClaims(client, claims), {
    ...options,
    header: { typ: 'oauth-authz-req+jwt', ...options.header },
  })
}

/** Returns an unsigned request object with these parameters. */
export function unsignedObject(client: string, claims: Members = {}, header: Members = {}): string {
  return `${encode({ alg: 'none', ...header })}.${encode(objectClaims(client, claims))}.`
}

function objectClaims(client: string, claims: Members): Members {
  return {
    iss: client,
    aud: ISSUER,
    jti: randomUUID(),
    iat: NOW,
    exp: NOW + 300,
    ...plain(client),
    claims: { id_token: { sub: { essential: true } } },
    ...claims,
  }
}

function jwt(claims: Members, { key = KEY, header = {}, payload }: JwtOptions): string {
  return signJws({ alg: key.alg, kid: key.kid, ...header }, payload ?? claims, key)
}

export function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}

export function basic(client: string, secret = 'a secret: with/some %signs'): string {
  const form = (text: string): string => new URLSearchParams({ a: text }).toString().slice(2)
  return `Basic ${Buffer.from(`${form(client)}:${form(secret)}`).toString('base64')}`
}

export interface Sent {
  readonly contentType?: string | undefined
  readonly contentEncoding?: string
  readonly authorization?: string | readonly string[]
}

export const PASSED = 'passed'

/** Returns the guard's result for a form: `PASSED`, or the status, code and description of its refusal. */
export async function push(
  guard: Guard,
  fields: Members | string | Buffer,
  sent: Sent = {},
): Promise<unknown> {
  const answer = await guard('', {
    contentType: 'application/x-www-form-urlencoded',
    body: typeof fields === 'string' || Buffer.isBuffer(fields) ? Buffer.from(fields) : encodeForm(fields),
    ...sent,
    authorization: [sent.authorization ?? []].flat(),
  })
  if (answer === undefined) return PASSED
  const { status, body } = refusalReply(answer, 'oauth', 'request-id')
  const { error, error_description: description } = JSON.parse(body) as Record<string, unknown>
  return { status, error, description, headers: answer.headers }
}

/** Parses a form like the guard. */
export function readForm(contentType: string | undefined, body: Buffer): Form | Refusal {
  return refuseBody({ contentType, body }) ?? parseParameters(body.toString(), 'request_uri')
}

/** Encodes a form; a list repeats its parameter. */
export function encodeForm(fields: Members): Buffer {
  const form = new URLSearchParams()
  for (const [name, value] of Object.entries(fields)) {
    for (const one of [value ?? []].flat()) form.append(name, String(one))
  }
  return Buffer.from(form.toString())
}

/** Matches a refusal by its description. */
export function refusal(status: number, error: string, words: RegExp, headers: object = {}): unknown {
  return { status, error, description: expect.stringMatching(words), headers }
}
