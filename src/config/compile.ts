import { resolve } from 'node:path'
import { createQualifier } from '../authenticate/token/bearer.ts'
import { isGuarded } from '../downstream/router.ts'
import { counterNameOf } from '../policy/key.ts'
import { type ClientLimit, type Limit, MAX_LEASE_MS, MIN_LEASE_MS } from '../policy/limit.ts'
import { foldClientId } from '../par/clients.ts'
import { asList } from '../runtime/json.ts'
import type { Client, Compiled, StoreConfig, Tokens } from './config.ts'
import type { ReadFile } from './file-stamp.ts'
import { hasKey, keySetMistake, openSettingsFiles, type SettingsFiles } from './files.ts'
import { resourceOf, resourceRoute, type ServedRoute } from './resource-route.ts'
import { type Team, unavailableRoute } from './teams/team.ts'
import type { Settings } from './schema.ts'
import { realmOf } from './sections/identity.ts'
import { costOf } from './sections/routes.ts'
import { readServerTls, readTls } from './tls-files.ts'
import type { Issue } from './yaml/issue.ts'

type Issuers = readonly Exclude<NonNullable<Settings['tokens']>, readonly unknown[]>[]

interface Given {
  /** The folder that the names of files are relative to. */
  readonly directory: string
  /** The files that the settings were read from. */
  readonly sources: readonly ReadFile[]
  /** The owners of requests; those without a valid file get a route that answers 503. */
  readonly teams: readonly Team[]
}

interface Compilation {
  /** Lacks the texts of files with mistakes. */
  readonly compiled: Compiled
  /** The files that the settings name. */
  readonly files: readonly ReadFile[]
  /** The mistakes in those files. If there are any, `compiled` must not be used. */
  readonly mistakes: readonly Issue[]
}

/** Resolves the names in settings, and reads the files that they name. */
export async function compile(settings: Settings, given: Given): Promise<Compilation> {
  const { listen, admin, log, routes } = settings
  const files = openSettingsFiles(given.directory)
  const issuers = asList(settings.tokens ?? [])
  await checkKeys(settings, files)
  const keep = await compileKeep(settings, files, given.sources)
  const store = await compileStore(settings, files)
  const limits = compileLimits(settings)
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
    upstreams: await compileUpstreams(settings, files),
    tokens: issuers.map((issuer) => compileIssuer(issuer, files)),
    ...compileClients(settings, issuers),
    resource,
    routes: served.map((route) => compileRoute(route, settings, limits)),
    limits,
  }
  return { compiled, files: files.stamps, mistakes: files.mistakes }
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
  const tls = await readTls(files, store.redis.tls, 'store', 'redis', 'tls')
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

function compileUpstreams({ upstreams, routes }: Settings, files: SettingsFiles) {
  const pushed = new Set(
    routes.filter(({ authenticate }) => authenticate === 'par').map(({ upstream }) => upstream),
  )
  return Promise.all(
    upstreams.map(async ({ errors, ...rest }) => ({
      ...rest,
      errors: errors ?? (pushed.has(rest.name) ? ('oauth' as const) : ('problem' as const)),
      tls: await readTls(files, rest.tls, 'upstreams', rest.name, 'tls'),
    })),
  )
}

function compileIssuer({ jwks, realm, ...rest }: Issuers[number], files: SettingsFiles): Tokens {
  return {
    ...rest,
    realm: realm ?? realmOf(rest.issuer),
    jwks: jwks !== undefined && 'file' in jwks ? { file: files.pathOf(jwks.file) } : jwks,
  }
}

function compileClients(settings: Settings, issuers: Issuers): Pick<Compiled, 'clients' | 'clientLimits'> {
  const qualify = createQualifier(issuers.map(({ issuer }) => issuer))
  const clientLimits = new Map<string, ReadonlyMap<string, ClientLimit>>()
  const clients = settings.clients.map(({ limits: own, jwks, jwksUri, ...client }): Client => {
    const issuer = issuers.find(({ names }) => names.includes(client.issuer ?? ''))?.issuer
    const caller = qualify(client.id, issuer)
    if (Object.keys(own).length > 0) clientLimits.set(caller, new Map(Object.entries(own)))
    const location = jwksUri === undefined ? undefined : { url: jwksUri }
    return { ...client, caller, folded: foldClientId(client.id), jwks: jwks ?? location }
  })
  return { clients, clientLimits }
}

/** Gives each limit the settings of its counter; and a cost, if calls of some route take more than one point. */
function compileLimits({ limits, routes }: Settings): readonly Limit[] {
  const hasPoints = (limit: Limit): boolean =>
    !limit.isConcurrent &&
    routes.some((route) => route.limits.includes(limit.name) && costOf(route, limit) > 1)
  const inPoints = new Set(limits.filter(hasPoints).map(counterNameOf))
  return limits.map((limit) => {
    const counter = limits.find(({ name }) => name === counterNameOf(limit))!
    const { name, together, countsSuccess, onOutage } = counter
    return { ...limit, together, countsSuccess, onOutage, ...(inPoints.has(name) && { cost: 1 }) }
  })
}

function compileRoute(route: ServedRoute, settings: Settings, limits: readonly Limit[]) {
  const { listen, par, cors } = settings
  const own = route.limits.map((name) => limits.find((limit) => limit.name === name)!)
  return {
    ...route,
    hosts: route.host === undefined ? listen.hosts : undefined,
    maxBody: isGuarded(route) ? par!.maxBody : route.maxBody,
    cors: isGuarded(route) || route.cors === 'none' ? undefined : (route.cors ?? cors),
    limits: own
      .filter((limit) => costOf(route, limit) > 0)
      .map((limit) => {
        if (limit.isConcurrent) return { ...limit, windowMs: leaseMsOf(route, settings) }
        return limit.cost === undefined ? limit : { ...limit, cost: costOf(route, limit) }
      }),
  }
}

/** Returns the length of the leases of a route's calls: its timeout, and several of Redis's, within bounds. */
function leaseMsOf({ timeoutMs, upstream }: ServedRoute, { store, upstreams }: Settings): number {
  const storeMs = store === 'memory' ? 0 : store.timeoutMs
  const ofUpstream = upstreams.find(({ name }) => name === upstream)?.timeoutMs
  const wantedMs = Math.max(MIN_LEASE_MS, 4 * storeMs, timeoutMs ?? ofUpstream ?? 0)
  return Math.min(MAX_LEASE_MS, wantedMs)
}
