import { createHash } from 'node:crypto'
import type { Explained } from '../admin/explained.ts'
import type { RequestLine } from '../admin/operator-api.ts'
import { explain, parseQuestion } from '../process/explain.ts'
import { ask, findAdmin, NoAnswer } from './admin-client.ts'
import { formatDuration, formatList, formatParagraphs, pluralize } from './format.ts'
import { formatRows, formatSize, formatTable, formatWindow } from './format.ts'
import { type Args, type Io, load, positionals, print, textOf, writeLines } from './io.ts'

const CALLER_FLAGS = ['host', 'client', 'user', 'ip', 'headers', 'claims', 'at']

/**
 * Prints what a request gets, and why, from the running gateway, or from the file with `--offline`
 * or if the gateway does not answer.
 */
export async function run(args: Args, io: Io): Promise<void> {
  const flags = CALLER_FLAGS.map((name) => [name, textOf(args, name)] as const)
  const given = Object.fromEntries(flags.filter(([, text]) => text !== undefined))
  const question: RequestLine = { request: positionals(args).join(' '), ...given }
  parseQuestion(question)
  let explained = args['offline'] === true ? undefined : await explainLive(question, args, io)
  // Only with `--config`: here, `--host` is the host that the caller addresses.
  explained ??= explain((await load({ config: args['config'] }, io)).config, question).explained
  print(io, args, explained, describeExplained)
}

/**
 * Asks the running gateway, and warns if the file is not its configuration. Returns undefined if
 * the gateway does not answer.
 */
async function explainLive(question: RequestLine, args: Args, io: Io): Promise<Explained | undefined> {
  const admin = await findAdmin(args, io)
  const { source } = admin
  const path = `/explain?${new URLSearchParams({ ...question }).toString()}`
  try {
    // `configuration` is the SHA-256 of the file in force; null if the gateway was started without a file.
    const explained = await ask<Explained & { readonly configuration: string | null }>(admin, path)
    const hash = source && createHash('sha256').update(source.text).digest('hex')
    if (hash !== undefined && ![hash, null].includes(explained.configuration)) {
      const problem = `${source!.file} is not the configuration in force at ${admin.url}`
      const reason = 'it was not reloaded, or was rejected; --offline explains the file'
      writeLines(io.stderr, `warning: ${problem}: ${reason}`)
    }
    if (question.at === undefined && explained.limits.some(({ key, used }) => key !== null && used === null))
      writeLines(io.stderr, 'warning: the store does not respond; the used calls are unknown')
    return explained
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error
    const text = 'explaining only the file, without overrides and current counts'
    writeLines(io.stderr, `note: ${error.message}; ${text}`)
    return undefined
  }
}

function describeExplained(explained: Explained): string {
  const { at, request, path, refusal, route, client, limits, passedOver } = explained
  const { method, host, target } = request
  const changed = path === target.split('?', 1)[0] ? 'unchanged' : 'as it is matched and forwarded'
  const live = limits.filter(({ leftOut, shadow }) => leftOut === null && !shadow)
  // The lowest limit of a counter decides.
  const [full] = live
    .filter(({ limit, used, cost = 1 }) => limit === 0 || (used ?? -1) + cost > limit)
    .toSorted((a, b) => a.limit - b.limit)
  const unit = full?.cost === undefined ? 'calls' : 'points'
  const state = full?.windowMs === undefined ? 'in progress' : 'used'
  const counts =
    full?.used === null ? 'allows no calls' : `${full?.used} of ${full?.limit} ${unit} are ${state}`
  const hasPoints = limits.some(({ cost }) => cost !== undefined)
  return formatParagraphs([
    formatTable([
      ['request', `${method} ${host}${target}`, `at ${at}`],
      path !== null && ['path', path, changed],
      refusal !== null && ['refused', `${refusal.status} ${refusal.code}`, refusal.message],
      ...(route === null ? [] : describeRoute(route, limits)),
      full !== undefined && ['refused', 'now', `by the limit "${full.name}": ${counts}`],
      client !== null && ['client', client.id, describeClient(client, route)],
    ]),
    formatRows(
      ['LIMIT', hasPoints ? 'POINTS' : 'CALLS', 'USED', 'WINDOW', 'KIND', 'KEY', 'BECAUSE'],
      limits.map(describeLimit),
    ),
    formatRows(
      ['PASSED OVER', 'BECAUSE IT'],
      passedOver.map(({ match, because }) => [match, because]),
    ),
  ])
}

function describeLimit(row: Explained['limits'][number]) {
  const { name, limit, used, windowMs, calendar, shadow, lacking, leftOut, counts, cost } = row
  const key = row.key ?? `needs ${formatList(lacking.map(flagOf))}`
  const next = row.next ? `; ${row.next.limit} from ${row.next.from} on` : ''
  const takes = cost === undefined ? '' : `; this call takes ${pluralize(cost, 'point')}`
  const of = counts === undefined ? '' : `; a share of "${counts}"`
  const because = `${row.because}${of}${takes}${limit === 0 ? '; refuses every call' : ''}${next}`
  const why = leftOut === null ? because : `left out: ${leftOut}`
  return [name, limit, used, formatWindow(windowMs, calendar), shadow ? 'shadow' : 'live', key, why]
}

/** Formats a part of a key as the flag that names it; an access token must not be a flag. */
function flagOf(part: string): string {
  const [of, name] = part.split(/:(.*)/s)
  if (name !== undefined) return `${name} in --${of}s`
  return part === 'token' ? 'an access token' : `--${part}`
}

function describeRoute(route: NonNullable<Explained['route']>, limits: Explained['limits']) {
  const { match, index, params, authenticate, issuers, scope, upstream, respond } = route
  const { origins, timeoutMs, maxBody } = route
  const refusals = new Set(limits.flatMap(refusalsOf))
  const named = Object.entries(params).map(([name, value]) => `:${name} is ${value}`)
  const checks = {
    none: ['no authentication', ...refusals].join(', '),
    par: `form, client authentication and request object checked for ${issuers.join()}; no limits`,
    authorization: 'listed clients that must sign or push requests are checked; no limits',
    bearer: [
      `401 without a token of ${issuers.join(' or ')}`,
      ...(scope.length > 0 ? [`403 without the scope ${scope.join(' ')}`] : []),
      ...refusals,
    ].join(', '),
  }
  const bounds = `within ${formatDuration(timeoutMs ?? 0)}, bodies up to ${formatSize(maxBody)}`
  const forwarded = `at ${formatList(origins)}, ${bounds}`
  const unserved = 'to a proxy that asks forwardAuth; callers of the gateway itself get 404'
  const own = respond === null ? unserved : `the caller's own ${respond}`
  return [
    ['route', match, [`routes[${index}]`, ...named].join(', ')],
    ['identify', authenticate, checks[authenticate]],
    ['answer', upstream ?? 'gateway', upstream === null ? own : forwarded],
  ]
}

/** Describes the refusals of requests that lack a part of a limit's key. */
function refusalsOf({ per, leftOut, missing }: Explained['limits'][number]): readonly string[] {
  if (leftOut !== null || missing === 'skip') return []
  return per.flatMap((part) => {
    const [kind, name] = part.split(/:(.*)/s)
    if (kind === 'header') return `400 if the header field ${name} is missing or malformed`
    if (kind === 'claim') return `403 if the claim ${name} of the token is missing or malformed`
    return kind === 'user' ? '403 for a token without a user' : []
  })
}

function describeClient(client: NonNullable<Explained['client']>, route: Explained['route']) {
  const { listed, pushed, authentication, requestObjectSigningAlg: alg } = client
  const name = listed ? (client.name ?? 'one of "clients"') : 'not one of "clients"'
  const signs = alg !== null && alg !== 'none'
  if (route?.authenticate === 'authorization')
    return `${name}: ${pushed !== null || signs ? 'must push or sign its requests' : 'not checked'}`
  if (route?.authenticate !== 'par') return name
  if (!listed) return `${name}: ${client.mustBeListed ? 'refused' : 'only the form is checked'}`
  const signing = signs ? `signs request objects with ${alg}` : 'need not sign request objects'
  return `${name}, ${signing}${authentication ? `, authenticates by ${authentication}` : ''}`
}
