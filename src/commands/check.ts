import { metadataPath } from '../authenticate/token/resource-metadata.ts'
import { Document, type Node, visit } from 'yaml'
import { readText } from '../config/text.ts'
import { overridden } from '../config/main-file.ts'
import type { Config } from '../config/config.ts'
import { teamJsonSchema } from '../config/schema.ts'
import { shownSettings } from '../config/shown-settings.ts'
import { readTexts } from '../config/teams/read-teams.ts'
import { teamNameOf, variablesOf } from '../config/teams/team-file.ts'
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
 * Prints a summary and the settings of a configuration without secrets, the results of `--connect`,
 * the changes of `--against`, or the sentences of `--outage`.
 */
export async function run(args: Args, io: Io): Promise<number> {
  const loaded = await load(args, io)
  assertTracingPackages(loaded)
  const { config, file, text } = loaded
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
  const teams = loaded.teams.map((team) => ({ path: team.path, shown: shownTeam(team, io) }))
  const described = () =>
    formatParagraphs([
      summary(config, file),
      settingsText(shown),
      ...teams.map(({ path, shown }) => `# ${path}\n${settingsText(shown)}`),
    ])
  const ofTeams = Object.fromEntries(teams.map(({ path, shown }) => [teamNameOf(path), shown.settings]))
  const all = { ...shown.settings, ...(teams.length > 0 && { teams: ofTeams }), warnings: config.warnings }
  print(io, args, all, described)
  return 0
}

function shownTeam({ path, text }: TeamText, { env }: Io) {
  const own = variablesOf(teamNameOf(path), env)
  const value = mapTexts(readSource(text, path).value, (written) => substitute(written, own))
  return shownSettings(value, teamJsonSchema())
}

function summary(config: Config, file: string): string {
  const { listen, forwardAuth, admin, store, tokens, upstreams, clients, routes } = config
  const name = file === '-' ? 'standard input' : file
  // A route without a host serves any host, unless `listen.hosts` is set.
  const servesAny = routes.some(({ host, hosts }) => (host ?? hosts) === undefined)
  const hosts = formatList(servesAny ? ['any host'] : listen.hosts)
  const open = routes.filter(({ authenticate }) => authenticate === 'none').map(({ match }) => match)
  const limits = config.limits.map(({ name, limit, per, windowMs, calendar, shadow, isConcurrent }) => {
    const window = formatWindow(isConcurrent ? undefined : windowMs, calendar)
    const whom = per.length === 0 ? 'for all callers together' : `per ${per.join(', ')}`
    return `${name} ${limit} (${window}, ${whom}${shadow ? ', shadow' : ''})`
  })
  const rows = [
    ['file', `${name} is valid, with ${pluralize(config.warnings.length, 'warning')}`],
    ['callers', `at ${listen.host}:${listen.port}${listen.tls ? ' by TLS' : ''}, for ${hosts}`],
    ['proxy', forwardAuth && `${forwardAuth.from} asks at ${forwardAuth.host}:${forwardAuth.port}`],
    ['operators', operatorsText(admin)],
    ['tokens', formatList(tokens.map(({ issuer }) => `of ${issuer}`))],
    ['upstreams', formatList(upstreams.map((one) => `${one.name} at ${one.origins.join(' ')}`))],
    ['limits', limits.join('; ') || '-'],
    ['counted', store === 'memory' ? 'in this process' : describeTopology(store.redis.topology)],
    ['clients', `${clients.length} in the file, ${config.clientLimits.size} with own limits`],
    ['routes', String(routes.filter(({ respond }) => respond !== 'resource').length)],
    ['teams', config.teams.map(({ match, file }) => `${match} by ${file}`).join(', ') || undefined],
    [
      'resource',
      config.resource && `${config.resource}; ${metadataPath(config.resource)} is served before the routes`,
    ],
    ['open', formatList(open)],
    ...config.warnings.map((warning) => ['warning', problemLine(warning)]),
  ]
  return formatTable(rows.map(([name, text]) => text !== undefined && [`# ${name}`, text]))
}

/** Describes the admin listener: its address, and who may do what. */
function operatorsText({ host, port, tls, token, tokens }: Config['admin']): string {
  const named = tokens.map(
    ({ name, may }) => `${name} may ${typeof may === 'string' ? may : `set ${formatList(may)}`}`,
  )
  const all = token === undefined ? named : ['with a token', ...named]
  return `at ${host}:${port}${tls ? ' by TLS' : ''}${all.map((one) => `, ${one}`).join('')}`
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
