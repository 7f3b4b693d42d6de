import { describeActual } from '../actual/actual.ts'
import type { Explained } from '../admin/requests/explained.ts'
import { PARAMETERS, type RequestLine } from '../admin/requests/operator-api.ts'
import { hashOf } from '../config/texts.ts'
import { type WordName, wordOf } from '../policy/words.ts'
import { explain } from '../admin/requests/explain.ts'
import { parseQuestion } from '../admin/requests/parsed-question.ts'
import { ask, findAdmin, NoAnswer } from './admin-client.ts'
import { formatList, formatParagraphs, formatRows, formatTable, formatWindow, pluralize } from './format.ts'
import { type Args, positionals, textOf } from './args.ts'
import { load } from './configuration.ts'
import { type Io, print, writeLines } from './io.ts'

/**
 * Prints what a request gets, and why, from the running gateway, or from the file with `--offline`
 * or if the gateway does not answer; with `--token`, what an access token gets by the file; with
 * `--request-id`, what a logged request got.
 */
export async function run(args: Args, io: Io): Promise<void> {
  if (textOf(args, 'request-id') !== undefined)
    return await (await import('./past/explain-past.ts')).run(args, io)
  if (textOf(args, 'token') !== undefined) return await (await import('./explain-token.ts')).run(args, io)
  const flags = PARAMETERS.map((name) => [name, textOf(args, name)] as const)
  const given = Object.fromEntries(flags.filter(([, text]) => text !== undefined))
  const question: RequestLine = { ...given, request: positionals(args).join(' ') }
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
    // `configuration` is the SHA-256 of the file in force; null if the gateway was started without a file, as the sandbox is.
    const explained = await ask<Explained & { readonly configuration: string | null }>(admin, path)
    const hash = source && hashOf(source)
    if (hash !== undefined && explained.configuration !== hash) {
      const problem = `${source!.file} is not the configuration in force at ${admin.url}`
      const reason = 'it was not reloaded or was rejected, or another gateway has that port'
      const remedy = '--offline explains the file, --admin-port names the port of its gateway'
      writeLines(io.stderr, `warning: ${problem}: ${reason}; ${remedy}`)
    }
    return explained
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error
    const text = 'explaining only the file, without overrides and current counts'
    writeLines(io.stderr, `note: ${error.message}; ${text}`)
    return undefined
  }
}

function describeExplained(explained: Explained): string {
  const { at, request, path, readings, refusal, route, client, cors, limits, passedOver } = explained
  const { method, host, target } = request
  const live = limits.filter(({ leftOut, shadow }) => leftOut === null && !shadow)
  // The lowest limit of a counter decides.
  const [full] = live
    .filter(({ limit, remaining, cost = 1 }) => limit === 0 || (remaining ?? cost) < cost)
    .toSorted((a, b) => a.limit - b.limit)
  const unit = full?.cost === undefined ? 'calls' : 'points'
  const state = full?.windowMs === undefined ? 'in progress' : 'used'
  const here = full?.part == null ? '' : `; without Redis, this gateway admits ${full.part}`
  const used = full && `${full.used ?? 0} of ${full.limit} ${unit} are ${state}${here}`
  const counted = limits.some(({ cost }) => cost !== undefined) ? 'POINTS' : 'CALLS'
  const head = ['LIMIT', counted, 'USED', 'WINDOW', 'KIND', 'KEY', 'BECAUSE']
  const others = passedOver.map(({ match, because }) => [match, because])
  return formatParagraphs([
    formatTable([
      ['request', `${method} ${host}${target}`, `at ${at}`],
      path !== null && ['path', path, 'as it is matched, counted and logged'],
      refusal !== null && ['refused', `${refusal.status} ${refusal.code}`, refusal.message],
      ...(route === null ? [] : describeRoute(route, limits)),
      full !== undefined && ['refused', 'now', `by the limit "${full.name}": ${used}`],
      client !== null && ['client', client.id, describeClient(client, route)],
      cors !== null && ['cors', formatList(cors.origins), describeCors(cors)],
    ]),
    formatRows(
      ['SERVERS COULD READ IT AS', 'WHICH LEADS TO'],
      readings.map(({ path, leadsTo }) => [path, leadsTo]),
    ),
    formatRows(head, limits.map(describeLimit)),
    formatRows(['PASSED OVER', 'BECAUSE IT'], others),
  ])
}

/** The flags that give `explain` the values of a word. */
const FLAGS: Partial<Record<WordName, string>> = {
  client: '--client',
  user: '--user',
  ip: '--ip',
  header: '--headers',
  claim: '--claims',
}

/** Returns the flag that gives `explain` a part of `per`; the part itself if there is none. */
function flagFor(part: string): string {
  const flag = FLAGS[wordOf(part).word]
  if (flag === undefined) return part
  return part.includes(':') ? `${part} in ${flag}` : flag
}

function describeLimit(row: Explained['limits'][number]) {
  const { name, limit, used, windowMs, calendar, shadow, lacking, leftOut, counts } = row
  const key = row.key ?? `needs ${formatList(lacking.map(flagFor))}`
  const next = row.next ? `; ${row.next.limit} from ${row.next.from} on` : ''
  const of = counts === undefined ? '' : `; a share of "${counts}"`
  const because = `${row.because}${of}${describeCost(row)}${limit === 0 ? '; refuses every call' : ''}${next}`
  const why = leftOut === null ? because : `left out: ${leftOut}`
  return [name, limit, used, formatWindow(windowMs, calendar), shadow ? 'shadow' : 'live', key, why]
}

/** Describes what the call takes, and what calls in progress reserve. */
function describeCost({ cost, actual, reserved }: Explained['limits'][number]): string {
  if (cost === undefined) return ''
  if (actual === undefined) return `; this call takes ${pluralize(cost, 'point')}`
  const held = reserved ? `; calls in progress at this gateway hold ${reserved} of the used points` : ''
  return `; this call reserves ${pluralize(cost, 'point')}, and is charged by ${describeActual(actual)}${held}`
}

function describeRoute(route: NonNullable<Explained['route']>, limits: Explained['limits']) {
  const { match, index, params, authenticate, keyField, upstream, respond, origins, name, labels, team } =
    route
  const named = Object.entries(params).map(([name, value]) => `:${name} is ${value}`)
  const required = [
    ...route.issuers.map((issuer) => `issuer ${issuer}`),
    ...route.scope.map((scope) => `scope ${scope}`),
    ...(keyField === null ? [] : [`a key in ${keyField}`]),
    ...limits.flatMap(refusalsOf),
  ]
  const place = `routes[${index}]${team === undefined ? '' : ` of the team ${team}`}`
  return [
    ['route', match, formatList([respond === 'resource' ? 'tokens.resource' : place, ...named])],
    ...describeMetrics(name, labels),
    ['identify', authenticate, formatList([...new Set(required)])],
    ['answer', upstream ?? respond ?? 'forwardAuth', formatList(origins)],
  ]
}

/** Returns the row of a route's name and labels in the metrics, if it has any. */
function describeMetrics(name: string | null, labels: Readonly<Record<string, string>> | null) {
  if (name === null && labels === null) return []
  const pairs = Object.entries(labels ?? {}).map(([label, value]) => `${label}="${value}"`)
  return [['named', name, `in metrics, spans and the log; labels ${formatList(pairs)}`]]
}

function refusalsOf({ per, leftOut, missing }: Explained['limits'][number]): readonly string[] {
  if (leftOut !== null || missing === 'skip') return []
  const lackable = per.filter((part) => wordOf(part).mayLack)
  return lackable.map((part) => `${wordOf(part).from === 'header' ? 400 : 403} without ${part}`)
}

/** Describes what a page of another origin gets. */
function describeCors({ allowed, credentials, maxAgeMs }: NonNullable<Explained['cors']>): string {
  if (allowed === false)
    return 'a page of the origin in --headers is none of these: it cannot read the response'
  const reads = `may read the response${credentials ? ', and send cookies' : ''}`
  return `${reads}; preflights get a 204, without a token or a charge, kept for ${formatWindow(maxAgeMs)}`
}

/** Describes a client by its settings for pushed requests, in the words of the file. */
function describeClient(client: NonNullable<Explained['client']>, route: Explained['route']): string {
  const { listed, name, plan, keys, mustBeListed, requestObjectSigningAlg, authentication, pushed } = client
  const ofPlan = plan === null ? '' : `, plan ${plan}`
  const isUnknown = keys === 0 && route?.authenticate === 'key'
  const rest = isUnknown ? `${ofPlan}; it has no key, so that all its calls get a 401` : ofPlan
  if (!listed) return `without settings in "clients"${mustBeListed ? ', which par refuses' : ''}${rest}`
  const settings = Object.entries({ requestObjectSigningAlg, authentication, pushed })
  const given = settings.flatMap(([key, value]) => (value === null ? [] : `${key}: ${value}`))
  return formatList([name ?? 'one of "clients"', ...given]) + rest
}
