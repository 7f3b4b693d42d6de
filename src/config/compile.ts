import { readFile, stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { createQualifier } from '../authenticate/token/bearer.ts'
import { readKeySet } from '../authenticate/token/key-set.ts'
import { isGuarded } from '../downstream/router.ts'
import { counterNameOf } from '../policy/key.ts'
import { type ClientLimit, type Limit, MAX_LEASE_MS, MIN_LEASE_MS } from '../policy/limit.ts'
import type { RedisConfig } from '../limit/redis/options.ts'
import { foldClientId } from '../par/clients.ts'
import { asList, parseObject } from '../runtime/json.ts'
import { type ReadFile, stampBeforeRead } from './file-stamp.ts'
import { resourceOf, resourceRoute, type ServedRoute } from './resource-route.ts'
import { type Team, unavailableRoute } from './teams/team.ts'
import type { Settings } from './schema.ts'
import { realmOf } from './sections/identity.ts'
import { costOf } from './sections/routes.ts'
import { reason } from './text.ts'
import { type Check, createTlsReader } from './tls-files.ts'
import type { Issue, LocatedIssue, Path } from './yaml/issue.ts'

/**
 * The settings with their files read and their names resolved. Durations are in milliseconds, sizes
 * in bytes.
 */
export type Compiled = Readonly<Awaited<ReturnType<typeof compile>>>
export type Config = Compiled & { readonly warnings: readonly LocatedIssue[] }

/** The counters in Redis. The settings may contain credentials. */
export type SharedStore = Omit<Exclude<Settings['store'], 'memory'>, 'redis' | 'overrides'> & {
  readonly redis: RedisConfig
  /** `required`: not ready until the overrides were read from Redis once; default `optional`. */
  readonly overrides?: 'optional' | 'required'
  /** Number of processes of this gateway that share it; default 1. */
  readonly processes?: number
}
export type StoreConfig = Config['store']
/** Settings for the verification of one issuer's tokens. `introspection` contains a secret. */
export type Tokens = Config['tokens'][number]
/**
 * A client with its own settings; undefined ones are not checked. `issuer` defaults to the first
 * one and that of the PAR endpoint.
 */
export type Client = Config['clients'][number]

/**
 * Compiles settings, whose files are relative to `directory`. Adds the files to `files`, and the
 * mistakes in them to `mistakes`. `teams` own requests; those without a valid file get a route that
 * answers 503.
 */
export async function compile(
  settings: Settings,
  directory: string,
  files: ReadFile[],
  mistakes: Issue[],
  teams: readonly Team[] = [],
) {
  const { upstreams, listen, admin, log, tokens, routes, par } = settings
  const hasPoints = (limit: Limit): boolean =>
    !limit.isConcurrent &&
    routes.some((route) => route.limits.includes(limit.name) && costOf(route, limit) > 1)
  const inPoints = new Set(settings.limits.filter(hasPoints).map(counterNameOf))
  const limits = settings.limits.map((limit) => {
    const counter = settings.limits.find(({ name }) => name === counterNameOf(limit))!
    const { name, together, countsSuccess, onOutage } = counter
    return { ...limit, together, countsSuccess, onOutage, ...(inPoints.has(name) && { cost: 1 }) }
  })
  const issuers = asList(tokens ?? [])
  const qualify = createQualifier(issuers.map(({ issuer }) => issuer))
  const isPushedTo = (name: string): boolean =>
    routes.some(({ authenticate, upstream }) => authenticate === 'par' && upstream === name)

  /** Reads a file; returns undefined if it has a mistake. */
  async function read(path: Path, name: string | undefined, check: Check) {
    if (name === undefined) return undefined
    const file = resolve(directory, name)
    files.push(stampBeforeRead(file))
    const text = await readFile(file, 'utf8').catch((error: Error) => error)
    const mistake = typeof text === 'string' ? await check(text) : reason(text)
    if (mistake !== undefined) mistakes.push({ path, message: `names ${file}, which ${mistake}` })
    return mistake === undefined ? (text as string) : undefined
  }

  const { readTls, readServerTls } = createTlsReader(read, mistakes)

  /** Returns the path of a file that the gateway writes, and that need not exist; its folder must. */
  async function fileToWrite(path: Path, name: string | undefined): Promise<string | undefined> {
    if (name === undefined) return undefined
    const file = resolve(directory, name)
    const folder = dirname(file)
    if (await isMissing(folder))
      mistakes.push({ path, message: `needs the folder ${folder}, which does not exist; create it` })
    else if (await isFolder(file))
      mistakes.push({ path, message: `names ${file}, which is a folder; write the path of a file` })
    return file
  }

  const keep = await fileToWrite(['configuration', 'keep'], settings.configuration.keep)
  const isRead = files.some(({ file }) => resolve(file) === keep)
  const unwritable = 'is a file of the configuration itself; write the path of another file'
  if (isRead) mistakes.push({ path: ['configuration', 'keep'], message: unwritable })

  let store: SharedStore | 'memory' = 'memory'
  if (settings.store !== 'memory') {
    const { redis } = settings.store
    const tls = await readTls(redis.tls, 'store', 'redis', 'tls')
    const overridesFile = await fileToWrite(['store', 'overridesFile'], settings.store.overridesFile)
    store = { ...settings.store, redis: { ...redis, tls }, overridesFile }
  }
  for (const [i, { jwks }] of issuers.entries()) {
    const path = Array.isArray(tokens) ? ['tokens', i, 'jwks'] : ['tokens', 'jwks']
    if (jwks !== undefined && 'file' in jwks) await read(path, jwks.file, jwksMistake)
  }
  for (const [i, { jwks, requestObjectSigningAlg }] of settings.clients.entries()) {
    const message = 'have no usable key; write RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519'
    if (jwks !== undefined && !(await hasKey(jwks, requestObjectSigningAlg)))
      mistakes.push({ path: ['clients', i, 'jwks', 'keys'], message })
  }
  const clientLimits = new Map<string, ReadonlyMap<string, ClientLimit>>()
  const clients = settings.clients.map(({ limits: own, jwks, jwksUri, ...client }) => {
    /** The client’s name: in keys, limits, logs and commands. */
    const issuer = issuers.find(({ names }) => names.includes(client.issuer ?? ''))?.issuer
    const caller = qualify(client.id, issuer)
    if (Object.keys(own).length > 0) clientLimits.set(caller, new Map(Object.entries(own)))
    const location = jwksUri === undefined ? undefined : { url: jwksUri }
    return { ...client, caller, folded: foldClientId(client.id), jwks: jwks ?? location }
  })
  const resource = resourceOf(settings)
  const servedRoutes: readonly ServedRoute[] = [
    ...routes,
    ...teams.filter(({ isServed }) => !isServed).map(unavailableRoute),
    ...(resource === undefined ? [] : [resourceRoute(resource, settings)]),
  ]
  const answerMs = settings.store === 'memory' ? 0 : settings.store.timeoutMs
  /** Returns the length of the leases of a route's calls: its timeout, and several of Redis's, within bounds. */
  const leaseMs = ({ timeoutMs, upstream }: ServedRoute): number => {
    const ofUpstream = upstreams.find(({ name }) => name === upstream)?.timeoutMs
    const wantedMs = Math.max(MIN_LEASE_MS, 4 * answerMs, timeoutMs ?? ofUpstream ?? 0)
    return Math.min(MAX_LEASE_MS, wantedMs)
  }
  return {
    ...settings,
    configuration: { keep },
    teams,
    listen: {
      ...listen,
      hosts: listen.hosts ?? [...new Set(routes.flatMap(({ host }) => host ?? []))],
      tls: await readServerTls(listen.tls, 'listen', 'tls'),
    },
    admin: { ...admin, tls: await readServerTls(admin.tls, 'admin', 'tls') },
    log: { ...log, audit: await fileToWrite(['log', 'audit'], log.audit) },
    store,
    /** The prefix of all keys, also of those in memory. */
    prefix: store === 'memory' ? 'sluice' : store.prefix,
    upstreams: await Promise.all(
      upstreams.map(async ({ errors, ...rest }) => ({
        ...rest,
        errors: errors ?? (isPushedTo(rest.name) ? ('oauth' as const) : ('problem' as const)),
        tls: await readTls(rest.tls, 'upstreams', rest.name, 'tls'),
      })),
    ),
    /** One for each issuer; empty if no route needs tokens. */
    tokens: issuers.map(({ jwks, realm, ...rest }) => ({
      ...rest,
      realm: realm ?? realmOf(rest.issuer),
      jwks: jwks && 'file' in jwks ? { file: resolve(directory, jwks.file) } : jwks,
    })),
    clients,
    clientLimits,
    /** The URL of the API, whose metadata the last route serves; undefined without `tokens.resource`. */
    resource,
    routes: servedRoutes.map((route) => ({
      ...route,
      hosts: route.host === undefined ? listen.hosts : undefined,
      maxBody: isGuarded(route) ? par!.maxBody : route.maxBody,
      cors: isGuarded(route) || route.cors === 'none' ? undefined : (route.cors ?? settings.cors),
      limits: route.limits
        .map((name) => limits.find((limit) => limit.name === name)!)
        .filter((limit) => costOf(route, limit) > 0)
        .map((limit) => {
          if (limit.isConcurrent) return { ...limit, windowMs: leaseMs(route) }
          return limit.cost === undefined ? limit : { ...limit, cost: costOf(route, limit) }
        }),
    })),
    limits,
  }
}

const isFolder = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  )

/**
 * Returns true unless a path is a folder. A folder that this user may not see is not missing: a
 * service's folder is often closed to the operator who runs `check`.
 */
const isMissing = (folder: string): Promise<boolean> =>
  stat(folder).then(
    (found) => !found.isDirectory(),
    ({ code }: NodeJS.ErrnoException) => code !== 'EACCES',
  )

const NO_KEY = "has no key that verifies tokens; write the issuer's JWK Set there, or its URL here"
const jwksMistake = async (text: string) => ((await hasKey(parseObject(text))) ? undefined : NO_KEY)

/**
 * Returns true if a key of a JWK Set can verify signatures; of the algorithm, if it is asymmetric.
 */
async function hasKey(jwks: unknown, algorithm = 'none'): Promise<boolean> {
  const set = await readKeySet(jwks).catch(() => undefined)
  const keys = /^(?:none|HS)/.test(algorithm) ? set?.keys : set?.find(algorithm, undefined)
  return keys !== undefined && keys.length > 0
}
