import { dirname, resolve } from 'node:path'
import { type Pattern, parsePattern } from '../../downstream/pattern.ts'
import { type Parameters, secretParts } from '../../policy/parameter-kinds.ts'
import { partOf } from '../../policy/words.ts'
import type { Settings, TeamSettings } from '../schema.ts'
import { type Cost, isReserve } from '../sections/costs.ts'
import { folderOf } from './own-files.ts'

type Route = TeamSettings['routes'][number]
type Upstream = TeamSettings['upstreams'][number]

/** Settings that a team adds to those of the main file. */
export type Addition = Pick<Settings, 'routes' | 'limits' | 'upstreams'>

/**
 * Returns the routes, limits and upstreams of a team as those of the whole configuration. The names
 * of its own limits, upstreams and routes, which no other file can have, begin with the team's name:
 * `payments/requests`. Other names are those of the main file.
 */
export function scoped(settings: TeamSettings, team: string, file: string, main: Settings): Addition {
  const ownLimits = new Set(settings.limits.map(({ name }) => name))
  const ownUpstreams = new Set(settings.upstreams.map(({ name }) => name))
  const limitName = (name: string): string => (ownLimits.has(name) ? `${team}/${name}` : name)
  const upstreamName = (name: string): string => (ownUpstreams.has(name) ? `${team}/${name}` : name)
  const parameters = withOwnKinds(main.parameters, settings.parameters)
  return {
    routes: settings.routes.map((route) => ({
      ...onHost(route, settings.host),
      limits: route.limits.map(limitName),
      ...(route.upstream !== undefined && { upstream: upstreamName(route.upstream) }),
      ...(route.name !== undefined && { name: `${team}/${route.name}` }),
      ...(route.cost !== undefined && { cost: renamedCost(route.cost, limitName) }),
      team,
      parameters,
    })),
    limits: settings.limits.map((limit) => ({
      ...limit,
      name: limitName(limit.name),
      ...(limit.counts !== undefined && { counts: limitName(limit.counts) }),
      parameters,
    })),
    upstreams: settings.upstreams.map((one) => ({
      ...one,
      name: upstreamName(one.name),
      folder: folderOf(resolve(file)),
      tls: one.tls && resolvedFiles(one.tls, dirname(resolve(file))),
    })),
  }
}

/**
 * Returns the rules of both files: the kinds of the team replace those of the main file. Only the main
 * file says what is a secret.
 */
function withOwnKinds(shared: Parameters, own: Parameters): Parameters {
  const secrets = secretParts(shared)
  const parts = new Set(Object.keys(own).map(partOf))
  const others = Object.entries(shared).filter(([name]) => !parts.has(partOf(name)))
  const kinds = Object.entries(own).map(
    ([name, { kind }]) => [name, { kind, secret: secrets.has(partOf(name)) }] as const,
  )
  return Object.fromEntries([...kinds, ...others])
}

/** Adds the host of the team to a route, whose pattern is its name in logs and metrics. */
function onHost(route: Route, host: string | undefined): Route {
  if (host === undefined || route.host !== undefined) return route
  const match = route.match.replace(/^([A-Za-z,-]+ +)?/, `$1${host}`)
  return { ...route, ...(parsePattern(match) as Pattern), match }
}

function renamedCost(cost: Cost, nameOf: (name: string) => string): Cost {
  if (typeof cost === 'number' || isReserve(cost)) return cost
  return Object.fromEntries(Object.entries(cost).map(([name, points]) => [nameOf(name), points]))
}

/** Returns the settings of TLS with absolute paths: those in the file are relative to it. */
function resolvedFiles(tls: NonNullable<Upstream['tls']>, folder: string) {
  const { ca, cert, key } = tls
  const absolute = (path: string | undefined) => (path === undefined ? undefined : resolve(folder, path))
  return { ...tls, ca: absolute(ca), cert: absolute(cert), key: absolute(key) }
}
