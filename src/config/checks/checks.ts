import { covers } from '../../downstream/router.ts'
import type { Settings } from '../schema.ts'
import { type Issue, oneOf, undefinedName } from '../yaml/issue.ts'
import {
  keyPartIssues,
  limitConflicts,
  requestIdIssues,
  tokenIssues,
  unusedParameters,
} from './limit-checks.ts'

/** Yields mistakes that involve several sections, such as undefined names and unreachable routes. */
export function* crossCheck(settings: Settings): Generator<Issue> {
  const checks = [
    portConflicts,
    clientIssues,
    keyPartIssues,
    tokenIssues,
    unusedParameters,
    requestIdIssues,
    routeIssues,
    missingSections,
  ]
  for (const check of checks) yield* check(settings)
}

function* portConflicts({ listen, admin, forwardAuth }: Settings): Generator<Issue> {
  const listeners = Object.entries({ listen, ...(forwardAuth && { forwardAuth }), admin })
  for (const [i, [name, { host, port }]] of listeners.entries())
    for (const [other, { host: otherHost, port: otherPort }] of listeners.slice(i + 1)) {
      const isShared = [host, otherHost].some((one) => one === '0.0.0.0' || one === '::')
      if (port !== otherPort || port === 0 || !(isShared || host === otherHost)) continue
      const path = [other === 'admin' && port === 9090 ? name : other, 'port']
      yield { path, message: `is ${port} for both "${name}" and "${other}"; give each its own port` }
    }
}

/** Yields duplicate clients, undefined issuers, and own limits that replace no limit per client. */
function* clientIssues({ clients, limits, tokens }: Settings): Generator<Issue> {
  const issuers = [tokens ?? []].flat().map(({ issuer }) => issuer)
  const firsts = new Map<string, number>()
  for (const [i, { id, issuer = issuers[0], limits: own }] of clients.entries()) {
    if (issuer !== undefined && !issuers.includes(issuer)) {
      const hint = issuers.length === 0 ? 'remove it' : `write ${oneOf(issuers)}, or remove it`
      yield { path: ['clients', i, 'issuer'], message: `is not an issuer of "tokens"; ${hint}` }
    }
    const key = JSON.stringify([issuer, id])
    const first = firsts.get(key)
    if (first === undefined) firsts.set(key, i)
    else yield { path: ['clients', i, 'id'], message: `is also in clients[${first}]; merge the two` }
    for (const [name, { windowMs }] of Object.entries(own)) {
      const limit = limits.find((limit) => limit.name === name)
      const path = ['clients', i, 'limits', name]
      const notPerClient = 'is not counted per client; add client to its "per" or remove this'
      if (limit === undefined)
        yield { path, message: undefinedName('limit', name, namesOf(limits)), key: true }
      else if (!limit.per.includes('client')) yield { path, message: notPerClient, key: true }
      else if (windowMs === undefined) continue
      else if (limit.calendar !== undefined)
        yield { path: [...path, 'window'], message: `does not apply to the calendar of "${name}"; remove it` }
      else if (typeof limit.together === 'number' && limit.together > windowMs)
        yield {
          path: [...path, 'window'],
          message: `is shorter than "together" of "${name}"; write at least that`,
        }
    }
  }
}

const namesOf = (items: readonly { readonly name: string }[]): readonly string[] =>
  items.map(({ name }) => name)

/** Yields undefined sections that a route needs. */
function* missingSections({ tokens, par, routes }: Settings): Generator<Issue> {
  const needed = [
    ['bearer', tokens, 'tokens', 'the issuer and the audience of the tokens'],
    ['par', par, 'par', 'the issuer that is the audience of assertions'],
    ['authorization', par, 'par', 'the issuer that is the audience of request objects'],
  ] as const
  for (const [kind, section, key, what] of needed) {
    const i = routes.findIndex(({ authenticate }) => authenticate === kind)
    const message = `is missing; routes[${i}] has "authenticate: ${kind}", so write ${what}`
    if (section === undefined && i !== -1) yield { path: [key], message }
  }
}

/** Yields undefined upstreams and limits, limits that conflict, and unreachable routes. */
function* routeIssues(settings: Settings): Generator<Issue> {
  const { listen, routes } = settings
  const [upstreams, limits] = [namesOf(settings.upstreams), namesOf(settings.limits)]
  const patterns = routes.map((route) => ({ ...route, hosts: listen.hosts }))
  for (const [i, route] of routes.entries()) {
    const { match, upstream, respond } = route
    if (upstream === undefined && respond === undefined && settings.forwardAuth === undefined) {
      const message = 'is missing; write the name of an upstream, or "respond: limits"'
      yield { path: ['routes', i, 'upstream'], message, key: true }
    }
    if (upstream !== undefined && !upstreams.includes(upstream))
      yield { path: ['routes', i, 'upstream'], message: undefinedName('upstream', upstream, upstreams) }
    for (const [j, name] of route.limits.entries())
      if (!limits.includes(name))
        yield { path: ['routes', i, 'limits', j], message: undefinedName('limit', name, limits) }
    yield* limitConflicts(route, ['routes', i, 'limits'], settings)
    const hosts = route.host === undefined ? (listen.hosts ?? [undefined]) : [route.host]
    const earlier = patterns.slice(0, i)
    const covering = new Set(
      hosts.map((host) => earlier.findIndex((pattern) => covers(pattern, { ...route, host }))),
    )
    if (covering.has(-1)) continue
    const names = [...covering].map((j) => `"${routes[j]!.match}" (routes[${j}])`).join(' and ')
    const isByHost = [...covering].some((j) => routes[j]!.host !== route.host)
    const where = isByHost && route.host === undefined ? ' at the hosts of "listen.hosts"' : ''
    const verb = covering.size > 1 ? 'match' : 'matches'
    const message = `can never match: ${names} ${verb} everything that "${match}" would${where}; put it first or remove it`
    yield { path: ['routes', i, 'match'], message }
  }
}
