import type { Sender } from '../authenticate/proof/dpop.ts'
import type { Authenticate, Authenticated } from '../authenticate/token/bearer.ts'
import { shown } from '../authenticate/jose/cause.ts'
import type { Identity } from '../authenticate/token/claims.ts'
import { redactUrl } from '../authenticate/jose/fetch-json.ts'
import { parseJws } from '../authenticate/jose/jws.ts'
import type { Config } from '../config/config.ts'
import { Refusal } from '../errors.ts'
import { instant } from '../runtime/instant.ts'
import { parseObject, withoutNulls } from '../runtime/json.ts'
import { createIssuers, type LoadedKeys } from './open-issuers.ts'
import { createResources } from './resources.ts'
import {
  claimChecks,
  confirmationOf,
  headerChecks,
  okIf,
  type ParsedToken,
  scopeCheck,
} from './token-checks.ts'
import { neededProofs, type TokenCheck } from './token-checks.ts'
import { ASSUMED, keyChecks, readIssuerKeys, UNUSED } from './token-keys.ts'

/** The decision of a gateway with a configuration about a token. Contains neither the token nor its signature. */
export interface ExplainedToken {
  readonly at: string
  readonly checks: readonly TokenCheck[]
  /** Null if that is not known, as an opaque token was not introspected. */
  readonly accepted: boolean | null
  /** The id under which the client is counted; null if none is accepted. */
  readonly client: string | null
  readonly user: string | null
  /** The status of the refusal, its text for the caller, and its cause for the log. */
  readonly refusal: {
    readonly status: number
    readonly message: string
    readonly cause: string | null
  } | null
  /** The remaining condition of the result, or what a caller must send besides the token. */
  readonly provided: readonly string[]
}

/**
 * Explains what a gateway with this configuration does with an access token. Reads the keys of its
 * issuer, or introspects it, as the gateway would; if `offline`, opens no connection.
 */
export async function explainToken(config: Config, token: string, offline: boolean): Promise<ExplainedToken> {
  const jws = parseJws(token)
  const payload = parseObject(jws?.payload)
  const parsed = jws && payload && { jws, claims: withoutNulls(payload) }
  return parsed
    ? await explainJwt(config, token, parsed, offline)
    : await explainOpaque(config, token, offline)
}

/** Stands for the answer of the parser, which ends the connection of a longer request. */
const TOO_LONG = new Refusal(
  'HeaderFieldsTooLarge',
  'The header fields are too long; see listen.maxHeaderSize.',
)

async function explainJwt(config: Config, token: string, parsed: ParsedToken, offline: boolean) {
  const { tokens, routes } = config
  const iss = parsed.claims['iss']
  const named = tokens.find(({ names }) => names.includes(iss as string))
  // The rest of a token of an unknown issuer is compared with the only one that it can be meant for.
  const rules = named ?? (tokens.length === 1 ? tokens[0] : undefined)
  const read = rules && (await readIssuerKeys(rules, offline))
  const loaded = tokens.map((one) => (one === rules ? read!.keys : UNUSED))
  const verdict = await decide(config, token, loaded)
  const nowMs = Date.now()
  const checks: TokenCheck[] = [
    {
      check: 'form',
      result: okIf(token.length < config.listen.maxHeaderSize),
      value: `a JWT of ${token.length} characters`,
      accepted: `a JWT that fits into ${config.listen.maxHeaderSize} bytes of header fields`,
    },
    {
      check: 'iss',
      result: okIf(named !== undefined),
      value: shown(iss),
      accepted: tokens.flatMap(({ names }) => names).join(', '),
    },
    ...(rules ? headerChecks(parsed, rules) : []),
    ...(read ? keyChecks(parsed.jws, read) : []),
    ...(rules ? claimChecks(parsed, rules, nowMs, routes) : []),
  ]
  const isAssumed = read?.keys === ASSUMED
  const unverified = isAssumed ? ['the signature is valid: the keys were not fetched (--offline)'] : []
  return report(nowMs, checks, verdict, [
    ...unverified,
    ...(rules ? neededProofs(confirmationOf(parsed.claims, rules)) : []),
  ])
}

async function explainOpaque(config: Config, token: string, offline: boolean) {
  const introspecting = config.tokens.find(({ introspection }) => introspection !== undefined)
  const url = introspecting && redactUrl(introspecting.introspection!.url)
  const form = (result: TokenCheck['result'], accepted: string): TokenCheck => ({
    check: 'form',
    result,
    value: `no JWT, ${token.length} characters`,
    accepted,
  })
  const nowMs = Date.now()
  if (url !== undefined && offline) {
    const accepted = `would be introspected at ${url}; not asked (--offline)`
    const checks = [form('unknown', accepted)]
    return {
      at: instant(nowMs),
      checks,
      accepted: null,
      client: null,
      user: null,
      refusal: null,
      provided: [],
    }
  }
  const verdict = await decide(
    config,
    token,
    config.tokens.map(() => UNUSED),
  )
  if (url === undefined)
    return report(nowMs, [form('failed', 'a JWT; no tokens.introspection is set')], verdict, [])
  const { answer } = verdict
  const identity = identityOf(answer)
  const introspected: TokenCheck = {
    check: 'introspection',
    result: okIf(identity !== undefined || verdict.lacksCertificate),
    value: answer instanceof Refusal ? answer.message : 'active',
    accepted: `active, at ${url}`,
  }
  const scope = identity ? [scopeCheck(identity.scope, config.routes)] : []
  const needs = verdict.lacksCertificate
    ? ['the caller sends the TLS client certificate that the token is bound to']
    : neededProofs(identity?.confirmation)
  return report(nowMs, [form('ok', 'a JWT, or an opaque token'), introspected, ...scope], verdict, needs)
}

interface Verdict {
  readonly answer: Authenticated
  /** True if nothing but the certificate that a token is bound to is missing. */
  readonly lacksCertificate: boolean
}

/** Has the gateway's own verification decide, as if the token were sent as Bearer, or else as DPoP. */
async function decide(config: Config, token: string, loaded: LoadedKeys): Promise<Verdict> {
  if (token.length >= config.listen.maxHeaderSize) return { answer: TOO_LONG, lacksCertificate: false }
  const resources = createResources()
  const counts = { inc() {} }
  const silent = { info() {}, warn() {} }
  const { openIssuers } = createIssuers(resources, silent, {
    keyFailures: counts,
    introspections: counts,
  })
  try {
    const { authenticate } = resources.replace(() => openIssuers(config, loaded))
    const asBearer = await send(authenticate, `Bearer ${token}`)
    if (!isRefused(asBearer) || asBearer.answer.status !== 401) return asBearer
    const asDpop = await send(authenticate, `DPoP ${token}`)
    return isRefused(asDpop) ? asBearer : asDpop
  } finally {
    resources.close()
  }
}

const isRefused = (verdict: Verdict): verdict is Verdict & { readonly answer: Refusal } =>
  verdict.answer instanceof Refusal && !verdict.lacksCertificate

async function send(authenticate: Authenticate, authorization: string): Promise<Verdict> {
  let askedForCertificate = false
  const sender: Sender = {
    method: 'GET',
    scheme: 'https',
    host: 'localhost',
    path: '/',
    proofs: [],
    // Asked for after all other checks, except the proof.
    certificate() {
      askedForCertificate = true
      return undefined
    },
  }
  const answer = await authenticate([authorization], () => sender)
  return { answer, lacksCertificate: askedForCertificate && answer instanceof Refusal }
}

function identityOf(answer: Authenticated): Identity | undefined {
  if (answer instanceof Refusal) return undefined
  return 'prove' in answer ? answer.identity : answer
}

function report(
  nowMs: number,
  checks: readonly TokenCheck[],
  { answer, lacksCertificate }: Verdict,
  provided: readonly string[],
): ExplainedToken {
  const identity = identityOf(answer)
  const refusal = answer instanceof Refusal && !lacksCertificate ? answer : undefined
  const explained = checks.some(({ result }) => result === 'failed')
  // A refusal for a reason that has no row of its own.
  const other =
    refusal && !explained
      ? [{ check: 'other', result: 'failed', value: '-', accepted: refusal.message } as const]
      : []
  return {
    at: instant(nowMs),
    checks: [...checks, ...other],
    accepted: refusal === undefined,
    client:
      identity?.client ?? (answer instanceof Refusal && lacksCertificate ? (answer.client ?? null) : null),
    user: identity?.user ?? null,
    refusal: refusal ? { status: refusal.status, message: refusal.message, cause: causeOf(refusal) } : null,
    provided: refusal ? [] : provided,
  }
}

function causeOf({ cause }: Refusal): string | null {
  if (cause instanceof Error) return cause.message
  return typeof cause === 'string' ? cause : null
}
