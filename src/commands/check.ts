import { Document, isCollection, isPair, type Node, type YAMLMap } from 'yaml'
import { readText } from '../config/text.ts'
import { overridden } from '../config/load.ts'
import type { Config } from '../config/compile.ts'
import { differences, shownSettings } from '../config/shown-settings.ts'
import { problemLine } from '../config/yaml/issue.ts'
import { readSource } from '../config/yaml/source.ts'
import { describeTopology } from '../limit/redis/options.ts'
import { formatList, formatTable, formatWindow, pluralize } from './format.ts'
import { type Args, type Io, load, overridesOf, print, textOf } from './io.ts'
import { assertTracingPackages } from './tracing-packages.ts'

/** Maximum warnings in the output for people: each of 100,000 clients may give one. */
const MAX_WARNINGS = 20
/** Sections whose items are printed on one line each, with their defaults in a comment. */
const ON_A_LINE: readonly string[] = ['limits', 'clients', 'routes']

/**
 * Prints a summary and the settings of a configuration without secrets, the results of `--connect`,
 * or the changes of `--against`.
 */
export async function run(args: Args, io: Io): Promise<number> {
  const loaded = await load(args, io)
  assertTracingPackages(loaded)
  const { config, file, text } = loaded
  if (args['connect'] === true) return (await import('./connect.ts')).run(config, args, io)
  const other = textOf(args, 'against')
  if (other !== undefined) {
    const changes = differences(await readText(other), text, other)
    print(io, args, { changes }, () => changes.join('\n') || `No differences from ${other}.`)
    return 0
  }
  const value = overridden(readSource(text, io.env).value!, overridesOf(args))
  const shown = shownSettings(value)
  const described = () => `${summary(config, file)}\n\n${settingsText(shown)}`
  print(io, args, { ...shown.settings, warnings: config.warnings }, described)
  return 0
}

function summary(config: Config, file: string): string {
  const { listen, forwardAuth, admin, store, tokens, upstreams, clients, routes } = config
  const name = file === '-' ? 'standard input' : file
  // A route without a host serves any host, unless `listen.hosts` is set.
  const servesAny = routes.some(({ host, hosts }) => (host ?? hosts) === undefined)
  const hosts = formatList(servesAny ? ['any host'] : listen.hosts)
  const kinds = [...new Set(routes.map(({ authenticate }) => authenticate))].map((kind) => {
    const count = routes.filter(({ authenticate }) => authenticate === kind).length
    return `${count} with authenticate: ${kind}`
  })
  const open = routes.filter(({ authenticate }) => authenticate === 'none').map(({ match }) => match)
  const limits = config.limits.map((rule) => {
    const calls = rule.claim ? `${rule.limit} (or by the claim ${rule.claim.name})` : rule.limit
    const whom = rule.per.length === 0 ? 'for all callers together' : `per ${rule.per.join(', ')}`
    const window = `in ${rule.calendar ? 'a calendar ' : ''}${formatWindow(rule.windowMs, rule.calendar)}`
    const unit = rule.cost === undefined ? '' : ' points'
    const of = rule.counts === undefined ? '' : ` of "${rule.counts}"`
    const when = rule.isConcurrent ? 'at once' : window
    return `${rule.name} ${calls}${unit}${of} ${when} ${whom}${rule.shadow ? ' (shadow)' : ''}`
  })
  const counted =
    store === 'memory'
      ? 'in the memory of the process'
      : `in ${describeTopology(store.redis.topology).replace(/^The/, 'the')}; without it, ${store.onOutage}`
  const some = `${clients.length} in the file, ${config.clientLimits.size} of them with own limits`
  const ofClients = clients.length === 0 ? 'none in the file: all have the limits above' : some
  const warnings = config.warnings.map(problemLine)
  const more = warnings.splice(MAX_WARNINGS).length
  if (more > 0) warnings.push(`${more} more; --json lists all`)
  const rows = [
    ['file', `${name} is valid, with ${pluralize(config.warnings.length, 'warning')}`],
    ['callers', `at ${listen.host}:${listen.port}${listen.tls ? ' by TLS' : ''}, for ${hosts}`],
    ['proxy', forwardAuth && `${forwardAuth.from} asks at ${forwardAuth.host}:${forwardAuth.port}`],
    ['operators', `at ${admin.host}:${admin.port}${admin.token ? ', with a token' : ''}`],
    ['tokens', formatList(tokens.map(({ issuer }) => `of ${issuer}`))],
    ['upstreams', formatList(upstreams.map(({ name, origins }) => `${name} at ${origins.join(' ')}`))],
    ['limits', limits.join('; ') || '-'],
    ['counted', counted],
    ['clients', ofClients],
    ['routes', kinds.join(', ')],
    ['open', formatList(open)],
    ...warnings.map((warning) => ['warning', warning]),
  ]
  return formatTable(rows.map(([name, text]) => text !== undefined && [`# ${name}`, text]))
}

/** Formats settings as YAML with `# default` at each default. An item on one line lists its own defaults at its end. */
function settingsText({ settings, defaults }: ReturnType<typeof shownSettings>): string {
  const document = new Document(settings)
  for (const section of ON_A_LINE) {
    const items = document.get(section)
    for (const item of isCollection(items) ? items.items : [])
      (isPair<unknown, YAMLMap>(item) ? item.value! : (item as YAMLMap)).flow = true
  }
  for (const path of defaults) {
    const isInItem = ON_A_LINE.includes(String(path[0]))
    // For an item on one line, only its own settings, not nested ones.
    if (isInItem && path.length !== 3) continue
    const node = document.getIn(isInItem ? path.slice(0, 2) : path, true) as Node
    if (!isInItem) node.comment = ' default'
    else node.comment = node.comment ? `${node.comment}, ${path[2]}` : ` default: ${path[2]}`
  }
  return document.toString({ lineWidth: 0 }).trimEnd()
}
