import { METHODS } from 'node:http'
import { isIP } from 'node:net'
import { instantMs } from '../../config/sections/limits.ts'
import type { Config } from '../../config/schema.ts'
import {
  formatDuration,
  formatList,
  formatParagraphs,
  formatRows,
  formatSize,
  formatTable,
} from '../format.ts'
import { type Given, idOf, type Io, load, print, textOf, UsageError, wordsOf } from '../io.ts'
import { explain, type Explained } from './explain.ts'

/** A request to explain; without a host where it is left open. */
export type Question = ReturnType<typeof readQuestion>

const WORDS = /^(?:([A-Za-z-]+)\s+)?(\S.*)$/
const URL = /^https?:\/\/([^/?#]*)(.*)$/i

/** Prints which route, authentication, limits and upstream a request gets, and why. */
export async function run(given: Given, io: Io): Promise<void> {
  const question = readQuestion(wordsOf(given).join(' '), textOf(given, 'host'))
  const asker = { client: idOf(given, 'client'), user: idOf(given, 'user'), ip: textOf(given, 'ip') }
  if (asker.ip !== undefined && isIP(asker.ip) === 0)
    throw new UsageError('--ip must be an address such as 192.0.2.7 or 2001:db8::7.')
  const at = textOf(given, 'at')
  const nowMs = at === undefined ? Date.now() : instantMs(at)
  if (Number.isNaN(nowMs)) throw new UsageError('--at must be an instant such as 2027-01-31T00:00:00Z.')
  // `--host` is the caller's here, not that of `start`.
  const { config } = await load({ config: given['config'] }, io)
  const explained = explain(config, question, asker, nowMs)
  print(io, given, explained, () => describeExplained(explained, config))
}

/** Parses `[METHOD] [host]/path`, or a URL in place of the host and path (path and query as in the request line); throws a UsageError. */
export function readQuestion(text: string, host: string | undefined) {
  const [, word = 'GET', where = ''] = WORDS.exec(text.trim()) ?? []
  const method = word.toUpperCase()
  if (!METHODS.includes(method))
    throw new UsageError(`"${word}" is no method of HTTP that the gateway reads: it answers 400 to it.`)
  const slash = where.indexOf('/')
  const [, named = where.slice(0, slash), target = where.slice(slash)] = URL.exec(where) ?? []
  if (slash === -1)
    throw new UsageError('Which request? Write "[METHOD] [host]/path", such as "POST /v3/sync/abc".')
  if (named !== '' && host !== undefined && host.toLowerCase() !== named.toLowerCase())
    throw new UsageError(`The request is to "${named}", and --host says "${host}".`)
  return { method, host: named || host, target: target.startsWith('/') ? target : `/${target}` }
}

/** An explanation for people: what the request gets, its limits, and the routes that do not take it. */
function describeExplained(explained: Explained, config: Config): string {
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
      ['LIMIT', 'CALLS', 'WINDOW', 'KIND', 'KEY', 'BECAUSE'],
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
    client !== null && limits.length > 0 && config.store !== 'memory'
      ? `Overrides in Redis are not read here: "sluice limits show ${client.id}" shows them.`
      : '',
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
    authorization: `listed clients that must sign or push their requests are held to that; no limit is asked`,
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
  { name, listed, requestObjectSigningAlg: alg, authentication, pushed }: NonNullable<Explained['client']>,
  route: Explained['route'],
  { par }: Config,
): string {
  const known = listed ? (name ?? 'one of "clients"') : 'not one of "clients"'
  if (route?.authenticate === 'authorization') {
    if (pushed !== null) return `${known}, sends a request_uri of the PAR endpoint`
    if ((alg ?? 'none') === 'none') return `${known}: passes unchecked`
    return `${known}, sends a request_uri of the PAR endpoint, or a request object signed with ${alg}`
  }
  if (route?.authenticate !== 'par') return known
  if (!listed)
    return `${known}: ${par?.unknownClients === 'refuse' ? 'refused' : 'the form alone is checked'}`
  return [
    known,
    (alg ?? 'none') === 'none' ? 'need not sign request objects' : `signs request objects with ${alg}`,
    ...(authentication === null ? [] : [`authenticates by ${authentication}`]),
  ].join(', ')
}
