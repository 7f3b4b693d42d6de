import type { Config } from '../../config/schema.ts'
import { rows, several, table } from '../table.ts'
import { duration, size } from '../units.ts'
import type { Explained, ExplainedClient, ExplainedRoute } from './explain.ts'
import type { ExplainedLimit } from './quotas.ts'

/** An explanation for people: what the request gets, its limits, and the routes that do not take it. */
export function describeExplained(explained: Explained, config: Pick<Config, 'tokens' | 'par'>): string {
  const { at, request, path, refusal, route, client, limits, passedOver } = explained
  const { method, host, target } = request
  return [
    table([
      ['request', `${method} ${host}${target}`, `at ${at}`],
      ...(path === null
        ? []
        : [['path', path, path === pathOf(target) ? 'as it came' : 'as it is matched and forwarded']]),
      ...(refusal === null ? [] : [['refused', `${refusal.status} ${refusal.code}`, refusal.message]]),
      ...(route === null ? [] : rowsOf(route, limits, config)),
      ...(client === null ? [] : [['client', client.id, aboutClient(client, route, config)]]),
    ]),
    rows(
      ['LIMIT', 'CALLS', 'WINDOW', 'MODE', 'KEY', 'BECAUSE'],
      limits.map((limit) => [
        limit.name,
        String(limit.limit),
        duration(limit.windowMs),
        limit.shadow ? 'shadow' : 'live',
        limit.key ?? `needs ${several(limit.lacking.map((part) => `--${part}`))}`,
        because(limit),
      ]),
    ),
    rows(
      ['PASSED OVER', 'BECAUSE IT'],
      passedOver.map(({ match, because }) => [match, because]),
    ),
  ]
    .filter(Boolean)
    .join('\n\n')
}

function rowsOf(
  route: ExplainedRoute,
  limits: readonly ExplainedLimit[],
  config: Pick<Config, 'tokens' | 'par'>,
): readonly (readonly [string, string, string])[] {
  const { match, index, params, upstream, origins, respond, timeoutMs, maxBody } = route
  const named = Object.entries(params).map(([name, value]) => `:${name} is ${value}`)
  const answered =
    upstream === null
      ? ['gateway', `tells the caller its own ${respond}`]
      : [upstream, `at ${several(origins)}, within ${duration(timeoutMs!)}, bodies up to ${size(maxBody)}`]
  return [
    ['route', match, `routes[${index}]${named.length > 0 ? `, ${named.join(', ')}` : ''}`],
    ['identify', route.authenticate, identified(route, limits, config)],
    ['answer', answered[0]!, answered[1]!],
  ]
}

function identified(
  { authenticate, scope }: ExplainedRoute,
  limits: readonly ExplainedLimit[],
  { tokens, par }: Pick<Config, 'tokens' | 'par'>,
): string {
  if (authenticate === 'none') return 'nobody is asked who calls'
  if (authenticate === 'par') {
    return `the form, the client's authentication and the request object are checked for ${par?.issuer}; no limit is asked`
  }
  const needsUser = limits.some(({ per }) => per.includes('user'))
  return [
    `401 without a token of ${tokens.map(({ issuer }) => issuer).join(' or ')}`,
    ...(scope.length > 0 ? [`403 without the scope ${scope.join(' ')}`] : []),
    ...(needsUser ? ['403 where it names no user'] : []),
  ].join(', ')
}

function aboutClient(
  { name, listed, requestObjectSigningAlg, authentication }: ExplainedClient,
  route: ExplainedRoute | null,
  { par }: Pick<Config, 'par'>,
): string {
  const known = listed ? (name ?? 'one of "clients"') : 'not one of "clients"'
  if (route?.authenticate !== 'par') return known
  if (!listed)
    return `${known}: ${par?.unknownClients === 'refuse' ? 'refused' : 'the form alone is checked'}`
  const signs = requestObjectSigningAlg === 'none' ? null : requestObjectSigningAlg
  return [
    known,
    signs === null ? 'need not sign request objects' : `signs request objects with ${signs}`,
    ...(authentication === null ? [] : [`authenticates by ${authentication}`]),
  ].join(', ')
}

function because({ because, next, limit }: ExplainedLimit): string {
  const blocked = limit === 0 ? '; refuses every call' : ''
  return `${because}${blocked}${next === null ? '' : `; ${next.limit} from ${next.from} on`}`
}

function pathOf(target: string): string {
  return target.split('?', 1)[0]!
}
