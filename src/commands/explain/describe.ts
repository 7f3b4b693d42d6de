import type { Config } from '../../config/schema.ts'
import {
  formatDuration,
  formatList,
  formatParagraphs,
  formatRows,
  formatSize,
  formatTable,
} from '../format.ts'
import type { Explained } from './explain.ts'

/** An explanation for people: what the request gets, its limits, and the routes that do not take it. */
export function describeExplained(explained: Explained, config: Config): string {
  const { at, request, path, refusal, route, client, limits, passedOver } = explained
  const { method, host, target } = request
  const changed = path === target.split('?', 1)[0] ? 'as it came' : 'as it is matched and forwarded'
  return formatParagraphs([
    formatTable([
      ['request', `${method} ${host}${target}`, `at ${at}`],
      ...(path === null ? [] : [['path', path, changed]]),
      ...(refusal === null ? [] : [['refused', `${refusal.status} ${refusal.code}`, refusal.message]]),
      ...(route === null ? [] : describeRoute(route, limits, config)),
      ...(client === null ? [] : [['client', client.id, describeClient(client, route, config)]]),
    ]),
    formatRows(
      ['LIMIT', 'CALLS', 'WINDOW', 'MODE', 'KEY', 'BECAUSE'],
      limits.map(({ name, limit, windowMs, shadow, key, lacking, because, next }) => [
        name,
        String(limit),
        formatDuration(windowMs),
        shadow ? 'shadow' : 'live',
        key ?? `needs ${formatList(lacking.map((part) => `--${part}`))}`,
        `${because}${limit === 0 ? '; refuses every call' : ''}${next ? `; ${next.limit} from ${next.from} on` : ''}`,
      ]),
    ),
    formatRows(
      ['PASSED OVER', 'BECAUSE IT'],
      passedOver.map(({ match, because }) => [match, because]),
    ),
  ])
}

function describeRoute(
  { match, index, params, authenticate, scope, upstream, ...route }: NonNullable<Explained['route']>,
  limits: Explained['limits'],
  { tokens, par }: Config,
): readonly (readonly string[])[] {
  const named = Object.entries(params).map(([name, value]) => `:${name} is ${value}`)
  const asked = {
    none: 'no authentication',
    par: `the form, the client's authentication and the request object are checked for ${par?.issuer}; no limit is asked`,
    bearer: [
      `401 without a token of ${tokens.map(({ issuer }) => issuer).join(' or ')}`,
      ...(scope.length > 0 ? [`403 without the scope ${scope.join(' ')}`] : []),
      ...(limits.some(({ per }) => per.includes('user')) ? ['403 where it names no user'] : []),
    ].join(', '),
  }
  const answer =
    upstream === null
      ? ['gateway', `the caller's own ${route.respond}`]
      : [
          upstream,
          `at ${formatList(route.origins)}, within ${formatDuration(route.timeoutMs!)}, bodies up to ${formatSize(route.maxBody)}`,
        ]
  return [
    ['route', match, [`routes[${index}]`, ...named].join(', ')],
    ['identify', authenticate, asked[authenticate]],
    ['answer', ...answer],
  ]
}

function describeClient(
  { name, listed, requestObjectSigningAlg: alg, authentication }: NonNullable<Explained['client']>,
  route: Explained['route'],
  { par }: Config,
): string {
  const known = listed ? (name ?? 'one of "clients"') : 'not one of "clients"'
  if (route?.authenticate !== 'par') return known
  if (!listed) {
    return `${known}: ${par?.unknownClients === 'refuse' ? 'refused' : 'the form alone is checked'}`
  }
  return [
    known,
    (alg ?? 'none') === 'none' ? 'need not sign request objects' : `signs request objects with ${alg}`,
    ...(authentication === null ? [] : [`authenticates by ${authentication}`]),
  ].join(', ')
}
