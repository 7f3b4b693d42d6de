import { Document, isMap, isPair, isSeq, type Node, type Scalar } from 'yaml'
import { readText } from '../config/text.ts'
import { overridden } from '../config/load.ts'
import type { Config } from '../config/compile.ts'
import { type Defaults, differences, pathKey, shownSettings } from '../config/shown-settings.ts'
import { problemLine } from '../config/yaml/issue.ts'
import { type Mapping, readSource } from '../config/yaml/source.ts'
import { describeTopology } from '../limit/redis/options.ts'
import { formatList, formatTable, formatWindow, pluralize } from './format.ts'
import { type Args, type Io, load, overridesOf, print, textOf } from './io.ts'

/** Maximum warnings in the output for people: each of 10,000 clients may give one. */
const MAX_WARNINGS = 20
/** Sections whose items are printed on one line each, with their defaults in a comment. */
const ON_A_LINE: ReadonlySet<unknown> = new Set(['limits', 'clients', 'routes'])

/** Prints a summary and the settings of a configuration without secrets, the results of `--connect`, or the changes of `--against`. */
export async function run(args: Args, io: Io): Promise<number> {
  const { config, file, text } = await load(args, io)
  if (args['connect'] === true) return (await import('./connect.ts')).run(config, args, io)
  const other = textOf(args, 'against')
  if (other !== undefined) {
    const changes = differences(await readText(other), text, other)
    print(io, args, { changes }, () => changes.join('\n') || `Nothing differs from ${other}.`)
    return 0
  }
  const value = overridden(readSource(text, io.env).value!, overridesOf(args))
  const { settings, defaults } = shownSettings(value)
  const shown = { ...settings, warnings: config.warnings }
  print(io, args, shown, () => `${summary(config, file)}\n\n${settingsText(settings, defaults)}`)
  return 0
}

/** Returns ten lines about a configuration, and its warnings, as YAML comments. */
function summary(config: Config, file: string): string {
  const {
    listen,
    forwardAuth,
    admin,
    store,
    tokens,
    upstreams,
    limits,
    clients,
    clientLimits,
    routes,
    warnings,
  } = config
  const hosts = routes.some(({ host, hosts }) => (host ?? hosts) === undefined) ? ['any host'] : listen.hosts
  const open = routes.filter(({ authenticate }) => authenticate === 'none').map(({ match }) => match)
  const kinds = ['bearer', 'par', 'authorization', 'none'].flatMap((kind) => {
    const count = routes.filter(({ authenticate }) => authenticate === kind).length
    return count === 0 ? [] : [`${count} ${kind}`]
  })
  const listed = limits.map((rule) => {
    const { name, limit, per, shadow, claim } = rule
    const calls = claim === undefined ? limit : `${limit} (or by the claim ${claim.name})`
    const whom = per.length === 0 ? 'for all callers together' : `per ${per.join(', ')}`
    const text = `${name} ${calls} in ${rule.calendar ? 'a ' : ''}${formatWindow(rule)} ${whom}`
    return shadow ? `${text} (shadow)` : text
  })
  const counted =
    store === 'memory'
      ? 'in the memory of the process'
      : `in ${describeTopology(store.redis.topology).replace(/^The/, 'the')}; without it, ${store.onOutage}`
  const messages = warnings.map((warning) => problemLine(warning))
  const more = messages.splice(MAX_WARNINGS).length
  if (more > 0) messages.push(`${more} more; --json lists all`)
  const name = file === '-' ? 'standard input' : file
  const rows = [
    ['file', `${name} is valid, with ${pluralize(warnings.length, 'warning')}`],
    ['callers', `at ${listen.host}:${listen.port}${listen.tls ? ' by TLS' : ''}, for ${formatList(hosts)}`],
    ...(forwardAuth
      ? [['proxy', `${forwardAuth.from} asks at ${forwardAuth.host}:${forwardAuth.port}`]]
      : []),
    ['operators', `at ${admin.host}:${admin.port}${admin.token === undefined ? '' : ', with a token'}`],
    ['tokens', formatList(tokens.map(({ issuer }) => `of ${issuer}`))],
    ['upstreams', formatList(upstreams.map(({ name, origins }) => `${name} at ${origins.join(' ')}`))],
    ['limits', listed.join('; ') || '-'],
    ['counted', counted],
    ['clients', `${clients.length}, ${clientLimits.size} with limits of their own`],
    ['routes', kinds.join(', ')],
    ['open', formatList(open)],
    ...messages.map((message) => ['warning', message]),
  ]
  return formatTable(rows.map(([name, ...text]) => [`# ${name}`, ...text]))
}

/** Formats settings as YAML with `# default` at each default, and the items of long sections on one line each. */
function settingsText(settings: Mapping, defaults: Defaults): string {
  const document = new Document(settings)
  markDefaults(document.contents, [], defaults)
  return document.toString({ lineWidth: 0 }).trimEnd()
}

/** Adds a comment to each default; an item on one line lists its defaults at its end. */
function markDefaults(node: unknown, path: readonly (string | number)[], defaults: Defaults): void {
  const isDefault = (key: string | number): boolean => defaults.has(pathKey([...path, key]))
  if (!isMap<Scalar<string>>(node) && !isSeq(node)) return
  const isItem = path.length === 2 && ON_A_LINE.has(path[0])
  node.flow = isItem || node.items.length === 0
  if (isItem && isMap<Scalar<string>>(node)) {
    const keys = node.items.map(({ key }) => key.value).filter(isDefault)
    if (keys.length > 0) node.comment = ` default: ${keys.join(', ')}`
    return
  }
  for (const [i, item] of node.items.entries()) {
    const [key, value] = isPair<Scalar<string>, Node>(item)
      ? [item.key.value, item.value!]
      : [i, item as Node]
    markDefaults(value, [...path, key], defaults)
    if (isDefault(key)) value.comment = ' default'
  }
}
