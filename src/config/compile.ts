import { resolve } from 'node:path'
import { isGuarded } from '../downstream/router.ts'
import { counterNameOf } from '../policy/key.ts'
import { type Limit, MAX_LEASE_MS, MIN_LEASE_MS } from '../policy/limit.ts'
import { byName } from '../runtime/grouping.ts'
import { asList } from '../runtime/json.ts'
import { compileClients, type Issuers } from './compile-clients.ts'
import type { Compiled, StoreConfig, Tokens } from './config.ts'
import type { ReadFile } from './file-stamp.ts'
import { hasKey, keySetMistake, openSettingsFiles, type SettingsFiles } from './files.ts'
import { resourceOf, resourceRoute, type ServedRoute } from './resource-route.ts'
import { type Team, unavailableRoute } from './teams/team.ts'
import type { Settings } from './schema.ts'
import { realmOf } from './sections/identity.ts'
import { actualOf, costOf, takesPoints } from './sections/costs.ts'
import { readServerTls, readTls } from './tls-files.ts'
import type { Issue } from './yaml/issue.ts'

/** Settings of TLS with the texts of their files. */
type UpstreamTls = NonNullable<Compiled['upstreams'][number]['tls']>

interface Given {
  /** The folder that the names of files are relative to. */
  readonly directory: string
  /** True if files that are not here are notes, no mistakes. */
  readonly offline: boolean
  /** The files that the settings were read from. */
  readonly sources: readonly ReadFile[]
  /** The owners of requests; those without a valid file get a route that answers 503. */
  readonly teams: readonly Team[]
  /**
   * The certificates in force by the names of upstreams, of teams whose last valid version is used:
   * they replace files that have mistakes by now.
   */
  readonly tlsInForce: ReadonlyMap<string, UpstreamTls>
}

interface Compilation {
  /** Lacks the texts of files with mistakes. */
  readonly compiled: Compiled
  /** The files that the settings name. */
  readonly files: readonly ReadFile[]
  /** The mistakes in those files. If there are any, `compiled` must not be used. */
  readonly mistakes: readonly Issue[]
  /** The files that are not here. */
  readonly notes: readonly Issue[]
}

/** Resolves the names in settings, and reads the files that they name. */
export async function compile(settings: Settings, given: Given): Promise<Compilation> {
  const { listen, admin, log, routes } = settings
  const files = openSettingsFiles(given.directory, given.offline)
  const issuers = asList(settings.tokens ?? [])
  await checkKeys(settings, files)
  const ofClients = await compileClients(settings, issuers, files)
  const keep = await compileKeep(settings, files, given.sources)
  const store = await compileStore(settings, files)
  const limits = compileLimits(settings)
  const upstreams = byName(settings.upstreams)
  const named = { limits: byName(limits), upstreams, copyOf: createLimitCopies() }
  const resource = resourceOf(settings)
  const served: readonly ServedRoute[] = [
    ...routes,
    ...given.teams.filter(({ isServed }) => !isServed).map(unavailableRoute),
    ...(resource === undefined ? [] : [resourceRoute(resource, settings)]),
  ]
  const compiled = {
    ...settings,
    configuration: { keep },
    teams: given.teams,
    listen: {
      ...listen,
      hosts: listen.hosts ?? [...new Set(routes.flatMap(({ host }) => host ?? []))],
      tls: await readServerTls(files, listen.tls, 'listen', 'tls'),
    },
    admin: { ...admin, tls: await readServerTls(files, admin.tls, 'admin', 'tls') },
    log: { ...log, audit: await files.pathToWrite(['log', 'audit'], log.audit) },
    store,
    prefix: store === 'memory' ? 'sluice' : store.prefix,
    upstreams: await compileUpstreams(settings, files, given),
    tokens: issuers.map((issuer) => compileIssuer(issuer, files)),
    ...ofClients,
    resource,
    routes: served.map((route) => compileRoute(route, settings, named)),
    limits,
  }
  const isReplaced = (one: Issue): boolean => given.tlsInForce.has(upstreamOf(one) ?? '')
  const mistakes = files.mistakes.filter((one) => !isReplaced(one))
  return { compiled, files: files.stamps, mistakes, notes: files.notes }
}

async function compileKeep(
  { configuration }: Settings,
  files: SettingsFiles,
  sources: readonly ReadFile[],
): Promise<string | undefined> {
  const path = ['configuration', 'keep']
  const keep = await files.pathToWrite(path, configuration.keep)
  if (sources.some(({ file }) => resolve(file) === keep)) {
    files.report(path, 'is a file of the configuration itself; write the path of another file')
  }
  return keep
}

async function compileStore({ store }: Settings, files: SettingsFiles): Promise<StoreConfig> {
  if (store === 'memory') return store
  const tls = await readTls(files, store.redis.tls, ['store', 'redis', 'tls'])
  const overridesFile = await files.pathToWrite(['store', 'overridesFile'], store.overridesFile)
  return { ...store, redis: { ...store.redis, tls }, overridesFile }
}

/** Checks the files with the keys of issuers, and the keys of clients. */
async function checkKeys({ tokens, clients }: Settings, files: SettingsFiles): Promise<void> {
  for (const [i, { jwks }] of asList(tokens ?? []).entries()) {
    const path = Array.isArray(tokens) ? ['tokens', i, 'jwks'] : ['tokens', 'jwks']
    if (jwks !== undefined && 'file' in jwks) await files.read(path, jwks.file, keySetMistake)
  }
  for (const [i, { jwks, requestObjectSigningAlg }] of clients.entries()) {
    if (jwks === undefined || (await hasKey(jwks, requestObjectSigningAlg))) continue
    const message = 'have no usable key; write RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519'
    files.report(['clients', i, 'jwks', 'keys'], message)
  }
}

function compileUpstreams({ upstreams, routes }: Settings, files: SettingsFiles, given: Given) {
  const pushed = new Set(
    routes.filter(({ authenticate }) => authenticate === 'par').map(({ upstream }) => upstream),
  )
  return Promise.all(
    upstreams.map(async ({ errors, ...rest }) => ({
      ...rest,
      errors: errors ?? (pushed.has(rest.name) ? ('oauth' as const) : ('problem' as const)),
      tls: await readUpstreamTls(rest, files, given),
    })),
  )
}

/** Reads the certificates of an upstream; returns those in force, if there are any, in place of files with mistakes. */
async function readUpstreamTls(
  { name, tls, folder }: Settings['upstreams'][number],
  files: SettingsFiles,
  { tlsInForce }: Given,
) {
  const read = await readTls(files, tls, ['upstreams', name, 'tls'], folder)
  const kept = tlsInForce.get(name)
  return files.mistakes.some((one) => upstreamOf(one) === name) ? (kept ?? read) : read
}

/** Returns the name of the upstream that an issue is in. */
const upstreamOf = ({ path: [section, name] }: Issue): string | undefined =>
  section === 'upstreams' ? String(name) : undefined

function compileIssuer({ jwks, realm, ...rest }: Issuers[number], files: SettingsFiles): Tokens {
  return {
    ...rest,
    realm: realm ?? realmOf(rest.issuer),
    jwks: jwks !== undefined && 'file' in jwks ? { file: files.pathOf(jwks.file) } : jwks,
  }
}

/** Gives each limit the settings of its counter, and says whether it counts points. */
function compileLimits({ limits, routes }: Settings): readonly Limit[] {
  const named = byName(limits)
  const countersInPoints = new Set<string>()
  for (const route of routes)
    for (const limit of route.limits.map((name) => named.get(name)!))
      if (!limit.isConcurrent && takesPoints(route, limit)) countersInPoints.add(counterNameOf(limit))
  return limits.map((limit) => {
    const counter = named.get(counterNameOf(limit))!
    const { name, together, countsSuccess, onOutage } = counter
    const unit = countersInPoints.has(name) && { inPoints: true }
    return { ...limit, together, countsSuccess, onOutage, ...unit }
  })
}

/** The settings that routes name. */
interface Named {
  readonly limits: ReadonlyMap<string, Limit>
  readonly upstreams: ReadonlyMap<string, Settings['upstreams'][number]>
  /** Returns a copy of a limit with a route's own values, which all routes with the same ones share. */
  copyOf(limit: Limit, own: Partial<Limit>): Limit
}

function createLimitCopies(): Named['copyOf'] {
  const copies = new Map<string, Limit>()
  return (limit, own) => {
    const id = JSON.stringify([limit.name, own])
    const copy = copies.get(id) ?? { ...limit, ...own }
    copies.set(id, copy)
    return copy
  }
}

function compileRoute(route: ServedRoute, settings: Settings, named: Named) {
  const { listen, par, cors } = settings
  const own = route.limits.map((name) => named.limits.get(name)!)
  return {
    ...route,
    hosts: route.host === undefined ? listen.hosts : undefined,
    maxBody: isGuarded(route) ? par!.maxBody : route.maxBody,
    cors: isGuarded(route) || route.cors === 'none' ? undefined : (route.cors ?? cors),
    limits: own
      .filter((limit) => costOf(route, limit) > 0)
      .map((limit) => {
        if (limit.isConcurrent) return named.copyOf(limit, { windowMs: leaseMsOf(route, settings, named) })
        if (limit.inPoints !== true) return limit
        return named.copyOf(limit, { cost: costOf(route, limit), actual: actualOf(route, limit) })
      }),
  }
}

/** Returns the length of the leases of a route's calls: its timeout, and several of Redis's, within bounds. */
function leaseMsOf(
  { timeoutMs, upstream = '' }: ServedRoute,
  { store }: Settings,
  { upstreams }: Named,
): number {
  const storeMs = store === 'memory' ? 0 : store.timeoutMs
  const ofUpstream = upstreams.get(upstream)?.timeoutMs
  const wantedMs = Math.max(MIN_LEASE_MS, 4 * storeMs, timeoutMs ?? ofUpstream ?? 0)
  return Math.min(MAX_LEASE_MS, wantedMs)
}
