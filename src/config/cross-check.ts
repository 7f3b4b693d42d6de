import { z } from 'zod'
import { hides, parsePattern, type Pattern } from '../route.ts'
import type { Path } from './locate.ts'
import type { Mistake } from './source.ts'
import { durationMs } from './values.ts'
import { dangling } from './wording.ts'

const word = z.string().optional().catch(undefined)
const number = z.number().optional().catch(undefined)
const names = z.array(z.string().optional().catch(undefined)).catch([])

/** As much of a file as has the right shape, so that one mistake does not keep others from being found. */
const outline = z.object({
  listen: z
    .object({ host: word, port: number, headersTimeout: word, requestTimeout: word })
    .catch({})
    .default({}),
  admin: z.object({ host: word, port: number }).catch({}).default({}),
  upstreams: z.record(z.string(), z.unknown()).nullable().catch(null),
  tokens: z.unknown().optional(),
  limits: z
    .record(z.string(), z.object({ per: names.default([]) }).catch({ per: [] }))
    .nullable()
    .default({})
    .catch(null),
  routes: z
    .array(
      z
        .object({ match: word, upstream: word, authenticate: word, limits: names.default([]) })
        .catch({ limits: [] }),
    )
    .catch([])
    .default([]),
})
type Outline = z.output<typeof outline>
type OutlinedRoute = Outline['routes'][number]

/** The mistakes that no value makes alone: names that lead nowhere, routes that hide others, and the like. */
export function crossCheck(value: Readonly<Record<string, unknown>>): readonly Mistake[] {
  const file = outline.parse(value)
  return [...listeners(file), ...repeatedParts(file), ...routes(file), ...missingTokens(file)]
}

function* listeners({ listen, admin }: Outline): Generator<Mistake> {
  const [host, port] = [listen.host ?? '0.0.0.0', listen.port ?? 8080]
  const [adminHost, adminPort] = [admin.host ?? '127.0.0.1', admin.port ?? 9090]
  const wildcard = [host, adminHost].some((one) => one === '0.0.0.0' || one === '::')
  if (port === adminPort && port !== 0 && (wildcard || host === adminHost)) {
    const path = admin.port === undefined ? ['listen', 'port'] : ['admin', 'port']
    yield { path, message: `is ${port} for both "listen" and "admin"; give each its own port` }
  }
  const headers = durationMs(listen.headersTimeout ?? '15s')
  const request = durationMs(listen.requestTimeout ?? '60s')
  if (headers <= request) return
  if (listen.requestTimeout === undefined) {
    const message = 'must be at most requestTimeout (60s), of which it is part'
    yield { path: ['listen', 'headersTimeout'], message }
  } else {
    const message = `must be at least headersTimeout (${listen.headersTimeout ?? '15s'}), which is part of it`
    yield { path: ['listen', 'requestTimeout'], message }
  }
}

function* repeatedParts({ limits }: Outline): Generator<Mistake> {
  for (const [name, { per }] of Object.entries(limits ?? {})) {
    yield* repeated(per, ['limits', name, 'per'])
  }
}

function* repeated(words: readonly (string | undefined)[], path: Path): Generator<Mistake> {
  for (const [i, word] of words.entries()) {
    if (word !== undefined && words.indexOf(word) < i) {
      yield { path: [...path, i], message: `stands twice; take one "${word}" out` }
    }
  }
}

function* routes(file: Outline): Generator<Mistake> {
  const earlier: { pattern: Pattern; match: string; i: number }[] = []
  for (const [i, route] of file.routes.entries()) {
    const { match, upstream } = route
    const parsed = match === undefined || match === '' ? undefined : parsePattern(match)
    const pattern = typeof parsed === 'string' ? undefined : parsed
    if (typeof parsed === 'string')
      yield { path: ['routes', i, 'match'], message: `is not a pattern: ${parsed}` }
    if (upstream && file.upstreams && !Object.hasOwn(file.upstreams, upstream)) {
      const message = dangling('upstream', upstream, Object.keys(file.upstreams))
      yield { path: ['routes', i, 'upstream'], message }
    }
    yield* limitsOf(route, i, pattern, file)
    if (pattern === undefined) continue
    const hiding = earlier.find((other) => hides(other.pattern, pattern))
    if (hiding) {
      const message = `can never match: "${hiding.match}" (routes[${hiding.i}]) takes all that "${match}" would; put it first or take it out`
      yield { path: ['routes', i, 'match'], message }
    }
    earlier.push({ pattern, match: match!, i })
  }
}

function* limitsOf(
  { limits, match, authenticate }: OutlinedRoute,
  i: number,
  pattern: Pattern | undefined,
  file: Outline,
): Generator<Mistake> {
  const path = ['routes', i, 'limits']
  yield* repeated(limits, path)
  const params = pattern?.segments.flatMap((segment) => ('param' in segment ? [segment.param] : []))
  for (const [j, name] of limits.entries()) {
    if (!name || file.limits === null || limits.indexOf(name) < j) continue
    if (!Object.hasOwn(file.limits, name)) {
      yield { path: [...path, j], message: dangling('limit', name, Object.keys(file.limits)) }
      continue
    }
    for (const part of file.limits[name]!.per) {
      if (part === undefined || part === 'ip' || part.startsWith(':')) continue
      if (part === 'client' || part === 'user') {
        if (authenticate !== 'none') continue
        const message = `the limit "${name}" is per ${part}, whom nobody proves to be here; write "authenticate: bearer" or take the limit out`
        yield { path: [...path, j], message }
      } else if (params && !params.includes(part)) {
        const message = `the limit "${name}" is per ${part}, but "${match}" has no :${part}; name a segment :${part} or take the limit out`
        yield { path: [...path, j], message }
      }
    }
  }
}

function* missingTokens({ tokens, routes }: Outline): Generator<Mistake> {
  const i = routes.findIndex(({ authenticate }) => authenticate === 'bearer')
  if (tokens !== undefined || i === -1) return
  const message = `is missing; routes[${i}] says "authenticate: bearer", so write whose tokens are taken: issuer and audience`
  yield { path: ['tokens'], message }
}
