import { randomUUID } from 'node:crypto'
import pLimit from 'p-limit'
import { redactUrl } from '../authenticate/token/fetch-json.ts'
import { createIntrospection } from '../authenticate/token/introspection.ts'
import { type KeyLocation, loadKeys } from '../authenticate/token/key-set.ts'
import { certificatesOf, describeValidity } from '../config/certificates.ts'
import type { Config, SharedStore, Tokens } from '../config/compile.ts'
import { problemLine } from '../config/yaml/issue.ts'
import { listOverrides, parseOverrides } from '../policy/overrides.ts'
import { inspectNodes } from '../limit/redis/diagnose.ts'
import { createRedisStore, type RedisStore } from '../limit/redis/store.ts'
import { keysFrom } from '../process/open-authentication.ts'
import { type Address, createAddresses, createConnect } from '../upstream/addresses.ts'
import type { Upstream } from '../upstream/upstream.ts'
import { formatList, formatTable, pluralize } from './format.ts'
import { type Args, type Io, print } from './io.ts'

/** The result for one server or certificate that a configuration names. `message` has the remedy of a failure. */
interface Finding {
  readonly state: 'ok' | 'warning' | 'failed'
  readonly what: string
  readonly message: string
  readonly ms?: number
}

/** Maximum concurrent probes: each of 100,000 clients may have a key set of its own. */
const MAX_CONCURRENT = 32
const TIMEOUT_MS = 3000

/**
 * Tries every server that a configuration names, and prints a line for each. Returns the exit code:
 * 1 if one of them failed.
 */
export async function run(config: Config, args: Args, io: Io): Promise<number> {
  const tried = await pLimit(MAX_CONCURRENT).map(probesOf(config), settle)
  const certificates = certificateFindings(config, Date.now())
  const checks = [...tried.flat(), ...certificates]
  const reported = new Set(certificates.map(({ what }) => what))
  const warnings = config.warnings.filter(({ path }) => !reported.has(`certificate ${path}`))
  const ok = checks.every(({ state }) => state !== 'failed')
  print(io, args, { ok, checks, warnings }, () =>
    formatTable([
      ...checks.map(({ state, what, ms, message }) => {
        const duration = ms === undefined ? null : `${ms} ms${ms > TIMEOUT_MS / 2 ? ', slow' : ''}`
        return [state, what, duration, message]
      }),
      ...warnings.map((warning) => ['warning', 'configuration', null, problemLine(warning)]),
    ]),
  )
  return ok ? 0 : 1
}

/**
 * `attempt` tries a server within a bounded time. Resolves with what is good, or with findings;
 * rejects with a failure.
 */
type Probe = readonly [what: string, attempt: () => Promise<string | readonly Found[]>]
/** A finding, by default about the whole of what is tried. */
type Found = Omit<Finding, 'what'> & Partial<Finding>

const failed = ({ message }: Error): readonly Found[] => [{ state: 'failed', message }]

async function settle([what, attempt]: Probe): Promise<readonly Finding[]> {
  const startedAt = performance.now()
  const found = await attempt().catch(failed)
  const findings = typeof found === 'string' ? [{ state: 'ok' as const, message: found }] : found
  const ms = Math.round(performance.now() - startedAt)
  return findings.map((finding) => ({ what, ...finding, ms }))
}

function* probesOf(config: Config): Generator<Probe> {
  yield ['store', () => tryStore(config)]
  for (const upstream of config.upstreams)
    for (const address of createAddresses(upstream.origins, () => ({ onDown() {}, onUp() {} })).all)
      yield [`upstream ${upstream.name} at ${address.origin}`, () => connect(upstream, address)]
  for (const issuer of config.tokens) {
    const { introspection } = issuer
    const remedy = issuer.jwks ? 'the issuer, or tokens.jwks' : 'tokens.issuer, or write tokens.jwks'
    yield [`keys of ${issuer.issuer}`, () => readKeys(remedy, keysFrom(issuer), issuer.algorithms)]
    if (introspection !== undefined)
      yield [`introspection at ${redactUrl(introspection.url)}`, () => introspect(issuer, introspection)]
  }
  for (const { id, jwks, requestObjectSigningAlg: alg = 'none' } of config.clients) {
    if (jwks === undefined || !('url' in jwks)) continue
    const source = { issuer: id, jwks: jwks.url }
    const algorithms = alg === 'none' || alg.startsWith('HS') ? undefined : [alg]
    yield [`keys of the client ${id}`, () => readKeys('its jwksUri', source, algorithms)]
  }
}

async function tryStore({ store, limits }: Config): Promise<string | readonly Finding[]> {
  if (store === 'memory') return 'counts in the memory of this process; needs no server'
  const kind = 'name' in store.redis.topology ? 'sentinel' : 'Redis'
  const nodes = (await inspectNodes(store.redis, TIMEOUT_MS)).map((node): Finding => {
    const what = `${kind} at ${node.url.startsWith('redis') ? new URL(node.url).host : node.url}`
    if ('found' in node) return { state: 'ok', what, message: node.found }
    const { name, message } = node.error
    if (name === 'StoreConfigError') return { state: 'failed', what, message }
    const isOther = message.startsWith('Unknown RESP type')
    const reason = isOther ? 'the server is not Redis; correct' : `${message}; start it, or correct`
    return { state: 'failed', what, message: `${reason} store.redis` }
  })
  // If no node can be reached, counting fails for the same reason.
  if (nodes.every(({ state }) => state === 'failed')) return nodes
  return [...nodes, ...(await settle(['counting in Redis', () => useStore(store, limits)]))]
}

/** Counts and frees a call as the gateway does, and reads the overrides. */
async function useStore({ redis, prefix }: SharedStore, limits: Config['limits']) {
  const warnings: string[] = []
  const onWarning = (warning: string) => void warnings.push(warning)
  const store = createRedisStore({ ...redis, prefix, timeoutMs: TIMEOUT_MS, onWarning })
  try {
    if (!(await store.connect())) throw new Error('some servers are unavailable')
    // No client id encodes to this key, which expires within a second even if it is not freed.
    const key = `${prefix}:{~check-${randomUUID()}}:check`
    await store.charge([{ name: 'check', key, limit: 1, windowMs: 1000, shadow: false }])
    await store.reset({ named: [key], glob: undefined, matches: () => true })
    const good = `counted a call and freed it, under the prefix "${prefix}"`
    const overrides = await settle(['overrides in Redis', () => readOverrides(store, limits)])
    const state = warnings.length > 0 ? ('warning' as const) : ('ok' as const)
    return [{ state, message: warnings.join(' ') || good }, ...overrides]
  } finally {
    await store.close()
  }
}

async function readOverrides(store: RedisStore, limits: Config['limits']) {
  const { overrides, bad } = parseOverrides(await store.overrides.read())
  const all = listOverrides(overrides, limits, Date.now())
  const unused = all.filter(({ applies }) => !applies).length
  const total = all.length === 0 ? 'none' : `${all.length}, which "sluice limits overrides" lists`
  const unreadable = bad.length > 0 && pluralize(bad.length, 'unreadable field')
  const message = [total, unreadable, unused > 0 && `${unused} without effect`].filter(Boolean).join('; ')
  return [{ state: message === total ? 'ok' : 'warning', message }] as const
}

async function connect({ name, connectTimeoutMs, tls }: Upstream, address: Address) {
  const isTls = address.origin.startsWith('https:')
  const open = createConnect(Math.min(connectTimeoutMs, TIMEOUT_MS), isTls ? (tls ?? {}) : undefined)
  return await new Promise<string>((resolve, reject) => {
    const socket = open(address, (failure) => {
      socket.destroy()
      if (failure === undefined) return resolve(`connected${isTls ? ' by TLS' : ''}`)
      const remedy = `start it, or correct upstreams.${name}${isTls ? ', with its tls' : ''}`
      reject(new Error(tlsFailure(failure) ?? `${failure.message}; ${remedy}`))
    })
    socket.on('error', () => {})
  })
}

/** Describes OpenSSL's errors, such as that of a server without TLS; undefined for other errors. */
function tlsFailure({ message }: Error): string | undefined {
  if (message.includes('wrong version number')) return 'does not use TLS; write http://'
  const [, reason] = /:SSL routines:[^:]*:([^:]+):/.exec(message) ?? []
  return reason && `TLS fails: ${reason}; correct its certificate or its tls`
}

/** Reads keys, by discovery without `jwks`; fails if none is for one of `algorithms`. */
async function readKeys(remedy: string, source: KeyLocation, algorithms?: readonly string[]) {
  const { keys } = await loadKeys({ ...source, fetchTimeoutMs: TIMEOUT_MS }).catch((error: Error) => {
    throw new Error(`${error.message}; correct ${remedy}`)
  })
  const count = pluralize(keys.length, 'key')
  if (algorithms === undefined) return count
  const usable = algorithms.filter((alg) => keys.some((key) => key.algorithms.has(alg)))
  if (usable.length === 0) throw new Error(`${count}, none of them for ${formatList(algorithms)}`)
  return `${count}, for ${formatList(usable)}`
}

/** Introspects a random token. An endpoint that accepts the gateway's credentials reports it as not active. */
async function introspect(issuer: Tokens, introspection: NonNullable<Tokens['introspection']>) {
  const events = { onDown() {}, onUp() {} }
  const ask = createIntrospection({ ...issuer, ...introspection, timeoutMs: TIMEOUT_MS, events })
  const answer = await ask(`sluice-check-${randomUUID()}`)
  if (!('error' in answer))
    throw new Error('reports a made-up token as active; correct the url of the introspection')
  if (answer.error !== 'unavailable') return 'responds to the gateway'
  const advice = 'correct the url, clientId and clientSecret of the introspection'
  throw new Error(`${(answer.cause as Error).message}; ${advice}`)
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
