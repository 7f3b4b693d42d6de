import { randomUUID } from 'node:crypto'
import pLimit from 'p-limit'
import { redactUrl } from '../authenticate/jose/fetch-json.ts'
import { createIntrospection } from '../authenticate/token/introspection.ts'
import { type KeyLocation, loadKeys } from '../authenticate/jose/key-set.ts'
import { certificatesOf, describeValidity } from '../config/certificates.ts'
import type { Config, SharedStore, Tokens } from '../config/config.ts'
import { problemLine } from '../config/yaml/issue.ts'
import { listOverrides, parseOverrides } from '../policy/overrides.ts'
import { openClient } from '../limit/redis/client.ts'
import { createDeadlines } from '../limit/redis/deadlines.ts'
import { configError, inspectNodes } from '../limit/redis/diagnose.ts'
import { grantAdvice, isRefused, missingCommands } from '../limit/redis/permissions.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { createRedisStore, type RedisStore } from '../limit/redis/store.ts'
import { keysFrom } from '../process/open-issuers.ts'
import { type Address, createAddresses, createConnect } from '../upstream/addresses.ts'
import type { Upstream } from '../upstream/upstream.ts'
import { toError } from '../runtime/to-error.ts'
import { formatList, formatTable, pluralize } from './format.ts'
import type { Args } from './args.ts'
import { type Io, print } from './io.ts'

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
      ...checks.map(({ state, what, ms, message }) => [state, what, ms && `${ms} ms`, message]),
      ...warnings.map((warning) => ['warning', 'configuration', null, problemLine(warning)]),
    ]),
  )
  return ok ? 0 : 1
}

/**
 * `attempt` tries a server within a bounded time. Resolves with what is good, or with findings;
 * rejects with a failure.
 */
type Probe = readonly [what: string, attempt: () => Promise<string | readonly Finding[]>]

async function settle([what, attempt]: Probe): Promise<readonly Finding[]> {
  const startedAt = performance.now()
  const found = await attempt().then(
    (good) => (typeof good === 'string' ? [{ state: 'ok', what, message: good } as const] : good),
    ({ message }: Error) => [{ state: 'failed', what, message } as const],
  )
  const ms = Math.round(performance.now() - startedAt)
  return found.map((finding) => ({ ...finding, ms }))
}

function* probesOf(config: Config): Generator<Probe> {
  yield ['store', () => tryStore(config)]
  for (const upstream of config.upstreams)
    for (const address of createAddresses(upstream.origins, () => ({ onDown() {}, onUp() {} })).all)
      yield [`upstream ${upstream.name} at ${address.origin}`, () => connect(upstream, address)]
  for (const issuer of config.tokens) {
    const { introspection: endpoint } = issuer
    const remedy = 'tokens.issuer, or tokens.jwks'
    yield [`keys of ${issuer.issuer}`, () => readKeys(remedy, keysFrom(issuer), issuer.algorithms)]
    if (endpoint !== undefined)
      yield [`introspection at ${redactUrl(endpoint.url)}`, () => introspect(issuer, endpoint)]
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
    return { state: 'failed', what, message: node.fault }
  })
  // If no node can be reached, counting fails for the same reason.
  if (nodes.every(({ state }) => state === 'failed')) return nodes
  return [...nodes, ...(await settle(['counting in Redis', () => useStore(store, limits)]))]
}

/** Counts and frees a call as the gateway does, and reads the overrides. */
async function useStore({ redis, prefix }: SharedStore, limits: Config['limits']) {
  const warnings: string[] = []
  const onWarning = (warning: string) => void warnings.push(warning)
  let failure = new Error('some servers are unavailable')
  const failed = (error: Error) => void (failure = error)
  const store = createRedisStore({
    ...redis,
    prefix,
    timeoutMs: TIMEOUT_MS,
    onWarning,
    onMisconfigured: failed,
    onUnavailable: failed,
  })
  try {
    await assertGranted(redis, prefix)
    if (!(await store.connect())) throw failure
    // No client id encodes to this key, which expires within a second even if it is not freed.
    const key = `${prefix}:{~check-${randomUUID()}}:check`
    await store.charge([{ name: 'check', key, limit: 1, windowMs: 1000, shadow: false }])
    await store.reset({ named: [key], glob: undefined, matches: () => true })
    const good = `counted a call and freed it, under the prefix "${prefix}"`
    const overrides = await settle(['overrides in Redis', () => readOverrides(store, limits)])
    const state = warnings.length > 0 ? ('warning' as const) : ('ok' as const)
    return [{ state, what: 'counting in Redis', message: warnings.join(' ') || good }, ...overrides]
  } finally {
    await store.close()
  }
}

/** Rejects if Redis refuses commands that the gateway needs. Other faults are found by counting. */
async function assertGranted(redis: SharedStore['redis'], prefix: string): Promise<void> {
  const client = openClient(redis, () => {})
  client.commands.on('error', () => {})
  const { within } = createDeadlines(TIMEOUT_MS, SYSTEM_CLOCK)
  const ask = async () => {
    await client.connect()
    return await missingCommands(client.commands, prefix)
  }
  const asked = within(ask).finally(() => client.close())
  const missing = await asked.catch((error: Error) => {
    if (isRefused(error)) throw configError(error)
    return []
  })
  if (missing.length > 0) throw grantAdvice(missing)
}

async function readOverrides(store: RedisStore, limits: Config['limits']) {
  const { overrides, bad } = parseOverrides(await store.overrides.read())
  const all = listOverrides(overrides, limits, Date.now())
  const unused = all.filter(({ applies }) => !applies).length
  const message = `${all.length}, ${unused} of them without effect; ${bad.length} unreadable`
  const state = unused + bad.length > 0 ? 'warning' : 'ok'
  return [{ state, what: 'overrides in Redis', message }] as const
}

async function connect({ name, connectTimeoutMs, tls }: Upstream, address: Address) {
  const isTls = address.origin.startsWith('https:')
  const open = createConnect(Math.min(connectTimeoutMs, TIMEOUT_MS), isTls ? (tls ?? {}) : undefined)
  return await new Promise<string>((resolve, reject) => {
    const socket = open(address, (failure) => {
      socket.destroy()
      if (failure === undefined) return resolve(`connected${isTls ? ' by TLS' : ''}`)
      // OpenSSL's errors have a reason, such as "wrong version number" of a server without TLS.
      const reason = (failure.cause as { reason?: string } | undefined)?.reason ?? failure.message
      const remedy = `correct upstreams.${name}${isTls ? ', its tls, or write http://' : ''}`
      reject(new Error(`${reason}; start it, or ${remedy}`))
    })
    socket.on('error', () => {})
  })
}

/** Reads keys, by discovery without `jwks`; fails if none is for one of `algorithms`. */
async function readKeys(remedy: string, source: KeyLocation, algorithms?: readonly string[]) {
  const reading = loadKeys({ ...source, fetchTimeoutMs: TIMEOUT_MS })
  const { keys } = await reading.catch(({ message }: Error) => {
    const start = message.includes('ECONNREFUSED') ? 'start it, or ' : ''
    throw new Error(`${message}; ${start}correct ${remedy}`)
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
  throw new Error(`${toError(answer.cause).message}; ${advice}`)
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
