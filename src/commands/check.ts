import { metadataPath } from '../authenticate/token/resource-metadata.ts'
import { Document, type Node, visit } from 'yaml'
import { readText } from '../config/text.ts'
import { overridden } from '../config/main-file.ts'
import type { Config } from '../config/config.ts'
import type { Loaded } from '../config/load.ts'
import { teamJsonSchema } from '../config/schema.ts'
import { shownSettings } from '../config/shown-settings.ts'
import { readTexts } from '../config/teams/read-teams.ts'
import { teamNameOf } from '../config/teams/team.ts'
import { variablesOf } from '../config/teams/variables.ts'
import { changesBetween, type TeamText } from '../config/texts.ts'
import { problemLine } from '../config/yaml/issue.ts'
import { mapTexts, readSource, substitute } from '../config/yaml/source.ts'
import { describeTopology } from '../limit/redis/options.ts'
import { formatList, formatParagraphs, formatTable, formatWindow, pluralize } from './format.ts'
import { type Args, textOf, UsageError } from './args.ts'
import { load, overridesOf } from './configuration.ts'
import { type Io, print } from './io.ts'
import { assertTracingPackages } from './tracing-packages.ts'

/**
 * Prints a summary and the settings of a configuration without secrets, with `--offline` also what is not here, the results of `--connect`,
 * the changes of `--against`, or the sentences of `--outage`.
 */
export async function run(args: Args, io: Io): Promise<number> {
  const isOffline = args['offline'] === true
  const loaded = await load(args, io, { offline: isOffline })
  // The packages that are installed here need not be those where the gateway runs.
  if (!isOffline) assertTracingPackages(loaded)
  const { config, file, text, notes } = loaded
  if (args['connect'] === true) return (await import('./connect.ts')).run(config, args, io)
  if (args['outage'] !== true && textOf(args, 'gateways') !== undefined)
    throw new UsageError('--gateways needs --outage.')
  if (args['outage'] === true) return (await import('./outage/command.ts')).run(config, args, io)
  const { value } = readSource(text, file)
  const other = textOf(args, 'against')
  if (other !== undefined) {
    const before = await readText(other)
    const { include } = readSource(before, other).value
    const changes = changesBetween(await readTexts(before, other, include, io.env), loaded, other, value)
    print(io, args, { changes }, () => changes.join('\n') || `No differences from ${other}.`)
    return 0
  }
  const substituted = mapTexts(value, (written) => substitute(written, io.env))
  const shown = shownSettings(overridden(substituted, overridesOf(args)))
  const names = loaded.teams.map(({ path }) => teamNameOf(path))
  const teams = loaded.teams.map((team) => ({ path: team.path, shown: shownTeam(team, names, io) }))
  const described = () =>
    formatParagraphs([
      summary(loaded),
      settingsText(shown),
      ...teams.map(({ path, shown }) => `# ${path}\n${settingsText(shown)}`),
    ])
  const ofTeams = Object.fromEntries(teams.map(({ path, shown }) => [teamNameOf(path), shown.settings]))
  const all = {
    ...shown.settings,
    ...(teams.length > 0 && { teams: ofTeams }),
    warnings: config.warnings,
    ...(isOffline && { notes }),
  }
  print(io, args, all, described)
  return 0
}

function shownTeam({ path, text }: TeamText, names: readonly string[], { env }: Io) {
  const own = variablesOf(teamNameOf(path), env, names)
  const value = mapTexts(readSource(text, path).value, (written) => substitute(written, own))
  return shownSettings(value, teamJsonSchema())
}

function summary({ config, file, notes }: Loaded): string {
  const { listen, forwardAuth, admin, store, tokens, upstreams, clients, routes } = config
  const name = file === '-' ? 'standard input' : file
  // A route without a host serves any host, unless `listen.hosts` is set.
  const servesAny = routes.some(({ host, hosts }) => (host ?? hosts) === undefined)
  const hosts = shortList(servesAny ? ['any host'] : listen.hosts)
  const open = routes.filter(({ authenticate }) => authenticate === 'none').map(({ match }) => match)
  const limits = config.limits.map(({ name, limit, per, windowMs, calendar, shadow, isConcurrent }) => {
    const window = formatWindow(isConcurrent ? undefined : windowMs, calendar)
    const whom = per.length === 0 ? 'for all callers together' : `per ${per.join(', ')}`
    return `${name} ${limit} (${window}, ${whom}${shadow ? ', shadow' : ''})`
  })
  const teams = config.teams.map(({ match, file }) => `${match} by ${file}`)
  const rows = [
    ['file', `${name} is valid, with ${pluralize(config.warnings.length, 'warning')}`],
    ['callers', `at ${addressOf(listen)}${listen.tls ? ' by TLS' : ''}, for ${hosts}`],
    ['proxy', forwardAuth && `${forwardAuth.from} asks at ${addressOf(forwardAuth)}`],
    ['operators', operatorsText(admin)],
    ['tokens', shortList(tokens.map(({ issuer }) => `of ${issuer}`))],
    ['keys', config.keys && keysText(config, config.keys)],
    ['upstreams', shortList(upstreams.map((one) => `${one.name} at ${one.origins.join(' ')}`))],
    ['limits', shortList(limits, '; ')],
    ['counted', store === 'memory' ? 'in this process' : describeTopology(store.redis.topology)],
    ['clients', `${clients.length} in "clients", ${config.clientLimits.size} with own limits`],
    ['routes', String(routes.filter(({ respond }) => respond !== 'resource').length)],
    ['teams', teams.length === 0 ? undefined : shortList(teams)],
    [
      'resource',
      config.resource && `${config.resource}; ${metadataPath(config.resource)} is served before the routes`,
    ],
    ['open', shortList(open)],
    ...config.warnings.map((warning) => ['warning', problemLine(warning)]),
    ...notes.map((note) => ['not here', problemLine(note)]),
  ]
  return formatTable(rows.map(([name, text]) => text !== undefined && [`# ${name}`, text]))
}

/** Describes the API keys: how many there are, where, and in which field callers send them. */
function keysText({ apiKeys }: Config, { file, field }: NonNullable<Config['keys']>): string {
  const clients = new Set(apiKeys.map(({ client }) => client)).size
  return `${pluralize(apiKeys.length, 'key')} of ${pluralize(clients, 'client')} in ${file}, sent in ${field}`
}

/** Formats a host and a port: an IPv6 address is in brackets. */
const addressOf = ({ host, port }: { readonly host: string; readonly port: number }): string =>
  `${host.includes(':') ? `[${host}]` : host}:${port}`

/** Maximum words of a list in the summary; the settings below have all. */
const MAX_WORDS = 20

function shortList(words: readonly string[], separator = ', '): string {
  const more = words.length - MAX_WORDS
  const shown = words.slice(0, MAX_WORDS).join(separator) || '-'
  return more > 0 ? `${shown} and ${more} more` : shown
}

/** Describes the admin listener: its address, and who may do what. */
function operatorsText({ host, port, tls, token, tokens }: Config['admin']): string {
  const named = tokens.map(
    ({ name, may }) => `${name} may ${typeof may === 'string' ? may : `set ${formatList(may)}`}`,
  )
  const all = token === undefined ? named : ['with a token', ...named]
  return `at ${addressOf({ host, port })}${tls ? ' by TLS' : ''}${all.map((one) => `, ${one}`).join('')}`
}

/**
 * Formats settings as YAML with `# default` at each default of a section. Items of a section, such
 * as routes, are on one line each.
 */
function settingsText({ settings, defaults }: ReturnType<typeof shownSettings>): string {
  const document = new Document(settings)
  // The ancestors of a section are the document, its mapping and a pair.
  visit(document, {
    Map(_, map, ancestors) {
      if (ancestors.length > 3) map.flow = true
    },
  })
  for (const path of defaults.filter(({ length }) => length <= 2))
    (document.getIn(path, true) as Node).comment = ' default'
  return document.toString({ lineWidth: 0 }).trimEnd()
}
