import { needsExtension } from '../authenticate/jose/jws.ts'
import { shown } from '../authenticate/jose/cause.ts'
import {
  acceptedTypes,
  type Confirmation,
  isClientId,
  type JwtRules,
  otherClientClaims,
  readClaims,
  timeFault,
  typeOf,
} from '../authenticate/token/claims.ts'
import type { Jws } from '../authenticate/jose/jws.ts'
import { readScope } from '../authenticate/token/kept-claims.ts'
import { KIND_CLAIMS, otherKind } from '../authenticate/token/token-kind.ts'
import type { Config, Tokens } from '../config/config.ts'
import { instant } from '../runtime/instant.ts'
import type { JsonObject } from '../runtime/json.ts'

/** The result of one check of a token. */
export interface TokenCheck {
  readonly check: string
  /** `unknown`: not checked, as something that it needs is missing. */
  readonly result: 'ok' | 'failed' | 'unknown'
  /** The value in the token. */
  readonly value: string
  /** The accepted values, or the reason of the result. */
  readonly accepted: string
}

/** A JWT, parsed but not verified. */
export interface ParsedToken {
  readonly jws: Jws
  readonly claims: JsonObject
}

type ClaimRules = Pick<JwtRules, keyof Tokens & keyof JwtRules>

/** Maximum length of a list that is shown. */
const MAX_CHARS = 200

const NONE = 'none'
export const okIf = (isOk: boolean): 'ok' | 'failed' => (isOk ? 'ok' : 'failed')
const cut = (text: string): string => (text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS - 1)}…` : text)
const list = (values: readonly string[]): string => cut(values.join(', ') || '-')

/** Checks the header of a JWT. */
export function headerChecks({ jws: { header } }: ParsedToken, rules: ClaimRules): TokenCheck[] {
  const { typ, alg } = header
  return [
    {
      check: 'typ',
      result: okIf(acceptedTypes(rules.type).includes(typeOf(header))),
      value: shown(typ),
      accepted: rules.type === 'strict' ? 'at+jwt' : 'at+jwt, JWT, none',
    },
    {
      check: 'alg',
      result: okIf(rules.algorithms.includes(alg as string)),
      value: shown(alg),
      accepted: list(rules.algorithms),
    },
    {
      check: 'header',
      result: okIf(!needsExtension(header)),
      value: list(Object.keys(header)),
      accepted: 'no crit, b64 or zip; a kid that is a text',
    },
  ]
}

/** Checks the claims of a JWT, each by itself. */
export function claimChecks(
  { jws, claims }: ParsedToken,
  rules: ClaimRules,
  nowMs: number,
  routes: Config['routes'],
): TokenCheck[] {
  const { audience, audienceOptional = false, clientClaim, leewayMs } = rules
  const others = { ...rules, bound: undefined }
  const resultOf = (name: string) => okIf(!('error' in judge(claims, name, others)))
  const isSkewed = (name: string) => timeFault({ [name]: claims[name] }, leewayMs)

  const client = claims[clientClaim]
  const kind = otherKind(typeOf(jws.header), claims)
  const named = otherClientClaims(claims, clientClaim)
  const optional = audienceOptional ? ', or none (audienceOptional)' : ''
  const leeway = `leeway ${leewayMs / 1000} s; it is ${instant(nowMs)} here`
  return [
    {
      check: 'kind',
      result: okIf(kind === undefined),
      value: kindOf(claims),
      accepted: kind ?? 'an access token, or nothing that says otherwise',
    },
    {
      check: 'aud',
      result: resultOf('aud'),
      value: shown(claims['aud']),
      accepted: list(audience) + optional,
    },
    { check: 'exp', result: resultOf('exp'), value: timeOf(claims['exp'], nowMs), accepted: leeway },
    ...['nbf', 'iat'].map((name) => ({
      check: name,
      result: okIf(isSkewed(name) === undefined),
      value: timeOf(claims[name], nowMs),
      accepted: 'not in the future; optional',
    })),
    {
      check: 'client',
      result: okIf(isClientId(client)),
      value: `${clientClaim}: ${shown(client)}`,
      accepted: `tokens.clientClaim${named.length > 0 ? `; the token also has ${named.join(', ')}` : ''}`,
    },
    {
      check: 'sub',
      result: resultOf('sub'),
      value: shown(claims['sub']),
      accepted: 'a text or a whole number; optional',
    },
    confirmationCheck(claims, rules),
    scopeCheck(readScope(claims), routes),
  ]
}

/** Returns what a token says of its kind, without values of other claims. */
function kindOf(claims: JsonObject): string {
  const names = ['token_use', ...KIND_CLAIMS].filter((name) => name in claims)
  return names.map((name) => `${name}: ${shown(claims[name])}`).join(', ') || NONE
}

/** Describes a time in seconds, with its distance from now. */
function timeOf(seconds: unknown, nowMs: number): string {
  if (typeof seconds !== 'number' || Math.abs(seconds) > 8e9) return shown(seconds)
  const distance = Math.round(seconds - nowMs / 1000)
  const relative = distance < 0 ? `${-distance} s ago` : `in ${distance} s`
  return `${seconds} (${instant(seconds * 1000)}, ${relative})`
}

/**
 * Has the gateway's own `readClaims` judge one claim of a token, or its absence, together with claims
 * that it accepts.
 */
function judge(claims: JsonObject, name: string, rules: ClaimRules) {
  const { issuer, audience, clientClaim } = rules
  const accepted: Record<string, unknown> = { iss: issuer, aud: audience[0], exp: Number.MAX_VALUE }
  accepted[clientClaim] ??= 'client'
  delete accepted[name]
  const given = Object.hasOwn(claims, name) ? { [name]: claims[name] } : {}
  return readClaims('at+jwt', { ...accepted, ...given }, rules)
}

/** Returns the keys that a token is bound to; undefined for a bearer token, or an unknown binding. */
export function confirmationOf(claims: JsonObject, rules: ClaimRules): Confirmation | undefined {
  const judged = judge(claims, 'cnf', rules)
  return 'error' in judged ? undefined : judged.confirmation
}

function confirmationCheck(claims: JsonObject, rules: ClaimRules): TokenCheck {
  const isAccepted = !('error' in judge(claims, 'cnf', rules))
  const needed = neededProofs(confirmationOf(claims, rules)).join(', ')
  const known = rules.bound === 'required' ? 'jkt or x5t#S256 (tokens.bound)' : 'jkt, x5t#S256, or no cnf'
  return {
    check: 'cnf',
    result: okIf(isAccepted),
    value: shown(claims['cnf']),
    accepted: isAccepted ? needed || 'a bearer token: nothing else is needed' : known,
  }
}

/** Returns, as phrases, what a caller must send with a token that is bound to keys. */
export function neededProofs({ jkt, x5t }: Confirmation = {}): string[] {
  return [
    ...(jkt === undefined ? [] : [`the caller sends a DPoP proof by the key ${jkt}`]),
    ...(x5t === undefined ? [] : [`the caller sends the TLS client certificate ${x5t}`]),
  ]
}

/** Compares the scopes of a token with those of the routes, for which it may be refused with a 403. */
export function scopeCheck(scope: string | undefined, routes: Config['routes']): TokenCheck {
  const held = scope?.split(' ') ?? []
  const needed = [...new Set(routes.flatMap((route) => route.scope))]
  const lacking = needed.filter((name) => !held.includes(name))
  const missing = lacking.length > 0 ? `; without ${list(lacking)}: 403 there` : ''
  return {
    check: 'scope',
    result: 'ok',
    value: shown(scope),
    accepted: needed.length > 0 ? `routes need ${list(needed)}${missing}` : 'no route needs any',
  }
}
