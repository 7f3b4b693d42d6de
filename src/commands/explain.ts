import { createHash } from 'node:crypto'
import { explain, type Explained, parseQuestion, type Question } from '../process/explain.ts'
import { type Admin, ask, findAdmin, NoAnswer } from './ask-admin.ts'
import {
  formatDuration,
  formatList,
  formatParagraphs,
  formatRows,
  formatSize,
  formatTable,
} from './format.ts'
import { type Args, type Io, load, print, textOf, positionals, writeLines } from './io.ts'

/** An explanation of a running gateway, with the SHA-256 of the file that is in force there; null where it was started without. */
type Live = Explained & { readonly configuration: string | null }

/**
 * Prints which route, authentication, limits and upstream a request gets, and why: as the running gateway says, with overrides
 * and what is used now, or, with `--offline` or if none answers, by the file.
 */
export async function run(args: Args, io: Io): Promise<void> {
  const parts = ['host', 'client', 'user', 'ip', 'at'].flatMap((name) => {
    const text = textOf(args, name)
    return text === undefined ? [] : [[name, text] as const]
  })
  const question: Question = { request: positionals(args).join(' '), ...Object.fromEntries(parts) }
  parseQuestion(question)
  const explained = args['offline'] === true ? undefined : await explainLive(question, args, io)
  print(io, args, explained ?? (await explainFile(question, args, io)), describeExplained)
}

/** Asks the running gateway; undefined if none answers. */
async function explainLive(question: Question, args: Args, io: Io): Promise<Explained | undefined> {
  const admin = await findAdmin(args, io)
  try {
    const parameters = new URLSearchParams({ ...question })
    const explained = await ask<Live>(admin, `/explain?${parameters.toString()}`)
    if (differs(admin, explained)) {
      const file = admin.source!.file
      const why = 'it was not reloaded, or was rejected; --offline explains the file'
      writeLines(io.stderr, `warning: ${file} is not the configuration in force at ${admin.url}: ${why}`)
    }
    return explained
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error
    writeLines(io.stderr, `note: ${error.message}; the file alone is explained, without overrides and use`)
    return undefined
  }
}

/** True if the file that names the gateway is not the one that is in force there. */
function differs({ source }: Admin, { configuration }: Live): boolean {
  if (source === undefined || configuration === null) return false
  return createHash('sha256').update(source.text).digest('hex') !== configuration
}

async function explainFile(question: Question, args: Args, io: Io): Promise<Explained> {
  // `--host` is the caller's here, not that of `start`.
  const { config } = await load({ config: args['config'] }, io)
  return explain(config, question)
}

/** An explanation for people: what the request gets, its limits, and the routes that do not take it. */
function describeExplained(explained: Explained): string {
  const { at, request, path, refusal, route, client, limits, passedOver } = explained
  const { method, host, target } = request
  const changed = path === target.split('?', 1)[0] ? 'as it came' : 'as it is matched and forwarded'
  return formatParagraphs([
    formatTable([
      ['request', `${method} ${host}${target}`, `at ${at}`],
      ...(path === null ? [] : [['path', path, changed]]),
      ...(refusal === null ? [] : [['refused', `${refusal.status} ${refusal.code}`, refusal.message]]),
      ...(route === null ? [] : describeRoute(route, limits)),
      ...(client === null ? [] : [['client', client.id, describeClient(client, route)]]),
    ]),
    formatRows(
      ['LIMIT', 'CALLS', 'USED', 'WINDOW', 'KIND', 'KEY', 'BECAUSE'],
      limits.map(({ name, limit, used, windowMs, shadow, key, lacking, because, next }) => [
        name,
        String(limit),
        String(used ?? '-'),
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
  { match, index, params, authenticate, issuers, scope, upstream, ...route }: NonNullable<Explained['route']>,
  limits: Explained['limits'],
): readonly (readonly string[])[] {
  const named = Object.entries(params).map(([name, value]) => `:${name} is ${value}`)
  const asked = {
    none: 'no authentication',
    par: `the form, the client's authentication and the request object are checked for ${issuers.join()}; no limit is asked`,
    authorization: `listed clients that must sign or push their requests are held to that; no limit is asked`,
    bearer: [
      `401 without a token of ${issuers.join(' or ')}`,
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
  { name, listed, mustBeListed, requestObjectSigningAlg: alg, ...client }: NonNullable<Explained['client']>,
  route: Explained['route'],
): string {
  const known = listed ? (name ?? 'one of "clients"') : 'not one of "clients"'
  if (route?.authenticate === 'authorization') {
    if (client.pushed !== null) return `${known}, sends a request_uri of the PAR endpoint`
    if ((alg ?? 'none') === 'none') return `${known}: passes unchecked`
    return `${known}, sends a request_uri of the PAR endpoint, or a request object signed with ${alg}`
  }
  if (route?.authenticate !== 'par') return known
  if (!listed) return `${known}: ${mustBeListed ? 'refused' : 'the form alone is checked'}`
  return [
    known,
    (alg ?? 'none') === 'none' ? 'need not sign request objects' : `signs request objects with ${alg}`,
    ...(client.authentication === null ? [] : [`authenticates by ${client.authentication}`]),
  ].join(', ')
}
