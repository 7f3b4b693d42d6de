import { randomUUID } from 'node:crypto'
import { redactUrl } from '../../authenticate/token/fetch-json.ts'
import { createIntrospection } from '../../authenticate/token/introspection.ts'
import { loadKeys } from '../../authenticate/token/key-set.ts'
import { certificatesOf, describeValidity } from '../../config/certificates.ts'
import type { Config, Tokens } from '../../config/compile.ts'
import { keysFrom } from '../../process/open-authentication.ts'
import { type Address, createAddresses, createConnect } from '../../upstream/addresses.ts'
import type { Upstream } from '../../upstream/upstream.ts'
import { formatList, pluralize } from '../format.ts'

/** The result for one server or certificate that a configuration names. */
export interface Finding {
  readonly state: 'ok' | 'warning' | 'failed'
  readonly what: string
  /** The result and, if it failed, the remedy. */
  readonly message: string
  readonly ms?: number
}

/** Tries a server within a bounded time; never rejects. */
export type Probe = () => Promise<Finding | readonly Finding[]>

/** Timeout of one response, in milliseconds. */
export const TIMEOUT_MS = 3000

/** Returns the probes of each upstream address, with TLS as for a call, each key set and each introspection endpoint. */
export function probesOf({ upstreams, tokens, clients }: Config): readonly Probe[] {
  return [
    ...upstreams.flatMap((upstream) => {
      const { all } = createAddresses(upstream.origins, () => {})
      return all.map((address) => () => connect(upstream, address))
    }),
    ...tokens.flatMap((issuer) => {
      const advice = issuer.jwks
        ? 'correct the issuer, or tokens.jwks'
        : 'correct tokens.issuer, or write tokens.jwks'
      return [
        () => readKeys(issuer.issuer, keysFrom(issuer), issuer.algorithms, advice),
        ...(issuer.introspection === undefined ? [] : [() => introspect(issuer)]),
      ]
    }),
    ...clients.flatMap(({ id, jwks, requestObjectSigningAlg: alg = 'none' }) => {
      if (jwks === undefined || !('url' in jwks)) return []
      const algorithms = alg === 'none' || alg.startsWith('HS') ? undefined : [alg]
      const advice = 'correct the client, or its jwksUri'
      return [() => readKeys(`the client ${id}`, { issuer: id, jwks: jwks.url }, algorithms, advice)]
    }),
  ]
}

function connect({ name, connectTimeoutMs, tls }: Upstream, address: Address): Promise<Finding> {
  const isTls = address.origin.startsWith('https:')
  const what = `upstream ${name} at ${address.origin}`
  const open = createConnect(Math.min(connectTimeoutMs, TIMEOUT_MS), isTls ? (tls ?? {}) : undefined)
  return new Promise((resolve) => {
    const socket = open(address, (failure) => {
      socket.destroy()
      const message = failure
        ? (tlsFailure(failure) ??
          `${failure.message}; start it, or correct upstreams.${name}${isTls ? ', with its tls' : ''}`)
        : `connected${isTls ? ' by TLS' : ''}`
      resolve({ state: failure ? 'failed' : 'ok', what, message })
    })
    socket.on('error', () => {})
  })
}

/** Describes OpenSSL's errors, such as that of a server without TLS; undefined for other errors. */
function tlsFailure({ message }: Error): string | undefined {
  if (message.includes('wrong version number')) return 'does not use TLS; write http:// in place of https://'
  const [, reason] = /:SSL routines:[^:]*:([^:]+):/.exec(message) ?? []
  return reason && `TLS fails: ${reason}; correct its certificate or its tls`
}

/** Reads keys, by discovery without `jwks`; fails if none is for one of `algorithms`. */
async function readKeys(
  owner: string,
  source: ReturnType<typeof keysFrom>,
  algorithms: readonly string[] | undefined,
  advice: string,
): Promise<Finding> {
  const what = `keys of ${owner}`
  try {
    const { keys } = await loadKeys({ ...source, fetchTimeoutMs: TIMEOUT_MS })
    const count = pluralize(keys.length, 'key')
    if (algorithms === undefined) return { state: 'ok', what, message: count }
    const usable = algorithms.filter((alg) => keys.some((key) => key.algorithms.has(alg)))
    return usable.length > 0
      ? { state: 'ok', what, message: `${count}, for ${formatList(usable)}` }
      : { state: 'failed', what, message: `${count}, none of them for ${formatList(algorithms)}` }
  } catch (error) {
    return { state: 'failed', what, message: `${(error as Error).message}; ${advice}` }
  }
}

/** Introspects a random token. An endpoint that accepts the gateway's credentials reports it as not active. */
async function introspect({ introspection, ...issuer }: Tokens): Promise<Finding> {
  const what = `introspection at ${redactUrl(introspection!.url)}`
  const events = { onDown() {}, onUp() {} }
  const ask = createIntrospection({ ...issuer, ...introspection!, timeoutMs: TIMEOUT_MS, events })
  const answer = await ask(`sluice-check-${randomUUID()}`)
  if (!('error' in answer)) {
    const message = 'reports a made-up token as active; correct the url of the introspection'
    return { state: 'failed', what, message }
  }
  if (answer.error !== 'temporarily_unavailable') return { state: 'ok', what, message: 'answers the gateway' }
  const advice = 'correct the url, clientId and clientSecret of the introspection'
  return { state: 'failed', what, message: `${(answer.cause as Error).message}; ${advice}` }
}

/** Returns how long the certificates of each file are valid at an instant in epoch milliseconds. */
export function certificateFindings(config: Config, nowMs: number): readonly Finding[] {
  return certificatesOf(config).map((certificate) => {
    const what = `certificate ${certificate.path.join('.')}`
    const { state, message } = describeValidity(certificate, nowMs)
    // An expired authority may be left in the file with its successor.
    const isAuthority = certificate.path.at(-1) !== 'cert'
    return { state: state === 'failed' && isAuthority ? 'warning' : state, what, message }
  })
}
