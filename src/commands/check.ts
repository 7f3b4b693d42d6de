import { Document, isMap, isPair, isSeq, type Node, type Scalar } from 'yaml'
import { readText } from '../config/files.ts'
import { overridden } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import { type Defaults, differences, pathKey, shownSettings } from '../config/shown-settings.ts'
import { type Mapping, readSource } from '../config/yaml/source.ts'
import { describeTopology } from '../limit/redis/options.ts'
import { pluralize, formatDuration, formatList, formatTable } from './format.ts'
import { type Args, type Io, load, overridesOf, print, textOf } from './io.ts'

/** Warnings that are printed for people: each of 10,000 clients may give one. */
const MAX_WARNINGS = 20
/** Sections whose items are on a line each, and so without their defaults. */
const ON_A_LINE: ReadonlySet<unknown> = new Set(['limits', 'clients', 'routes'])

/**
 * Prints what a configuration means and its settings with their defaults, without secrets; with `--connect`, what became of
 * trying it; with `--against`, what differs from another file.
 */
export async function run(args: Args, io: Io): Promise<number> {
  const { config, file, text } = await load(args, io)
  if (args['connect'] === true) return (await import('./connect/connect.ts')).run(config, args, io)
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

/** Says in ten lines what a configuration does, and then its warnings, as comments of YAML. */
function summary(config: Config, file: string): string {
  const { listen, admin, store, tokens, upstreams, limits, clients, clientLimits, routes, warnings } = config
  const hosts = routes.some(({ host, hosts }) => (host ?? hosts) === undefined) ? ['any host'] : listen.hosts
  const open = routes.filter(({ authenticate }) => authenticate === 'none').map(({ match }) => match)
  const kinds = ['bearer', 'par', 'authorization', 'none'].flatMap((kind) => {
    const some = routes.filter(({ authenticate }) => authenticate === kind)
    return some.length === 0 ? [] : [`${some.length} ${kind}`]
  })
  const rows = [
    [
      'file',
      `${file === '-' ? 'standard input' : file} is valid, with ${pluralize(warnings.length, 'warning')}`,
    ],
    ['callers', `at ${listen.host}:${listen.port}${listen.tls ? ' by TLS' : ''}, for ${formatList(hosts)}`],
    ['operators', `at ${admin.host}:${admin.port}${admin.token === undefined ? '' : ', with a token'}`],
    ['tokens', formatList(tokens.map(({ issuer }) => `of ${issuer}`))],
    ['upstreams', formatList(upstreams.map(({ name, origins }) => `${name} at ${origins.join(' ')}`))],
    [
      'limits',
      limits
        .map(
          (limit) =>
            `${limit.name} ${limit.limit} in ${formatDuration(limit.windowMs)} per ${limit.per.join(', ')}${limit.shadow ? ' (shadow)' : ''}`,
        )
        .join('; ') || '-',
    ],
    [
      'counted',
      store === 'memory'
        ? 'in the memory of the process'
        : `in ${describeTopology(store.redis.topology).replace(/^The/, 'the')}; without it, ${store.onOutage}`,
    ],
    ['clients', `${clients.length}, ${clientLimits.size} with limits of their own`],
    ['routes', kinds.join(', ')],
    ['open', formatList(open)],
    ...warnings
      .slice(0, MAX_WARNINGS)
      .map(({ where, path, message }) => ['warning', [where, path, message].filter(Boolean).join(': ')]),
    ...(warnings.length > MAX_WARNINGS
      ? [['warning', `${warnings.length - MAX_WARNINGS} more; --json lists all`]]
      : []),
  ]
  return formatTable(rows.map(([what, words]) => [`# ${what}`, words!]))
}

/** Formats settings as YAML, with `# default` where the file is silent, and the items of long sections on a line each. */
function settingsText(settings: Mapping, defaults: Defaults): string {
  const document = new Document(settings)
  markDefaults(document.contents, [], defaults)
  return document.toString({ lineWidth: 0 }).trimEnd()
}

/** Comments what is a default; an item on one line names them after its end. */
function markDefaults(node: unknown, path: readonly (string | number)[], defaults: Defaults): void {
  const isDefault = (key: string | number): boolean => defaults.has(pathKey([...path, key]))
  if (!isMap<Scalar<string>>(node) && !isSeq(node)) return
  const isItem = path.length === 2 && ON_A_LINE.has(path[0])
  node.flow = isItem || node.items.length === 0
  if (isItem && isMap<Scalar<string>>(node)) {
    const silent = node.items.map(({ key }) => key.value).filter(isDefault)
    if (silent.length > 0) node.comment = ` default: ${silent.join(', ')}`
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
