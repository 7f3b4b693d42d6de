import type { Config } from '../../config/config.ts'
import { formatParagraphs, formatRows } from '../format.ts'
import { type Args, textOf, UsageError, wholeOf } from '../args.ts'
import { type Io, print } from '../io.ts'
import { describeOutage, type OutageReport } from './report.ts'

const MAX_GATEWAYS = 100_000
const IN_MEMORY = 'store: memory has no outage: each process counts by itself.'

/** Prints what the callers of a configuration get while Redis is out of reach. */
export function run(config: Config, args: Args, io: Io): number {
  const { store } = config
  if (store === 'memory') {
    print(io, args, { store }, () => IN_MEMORY)
    return 0
  }
  const given = textOf(args, 'gateways') === undefined ? store.instances : gatewaysOf(args)
  if (given === undefined) throw new UsageError('How many gateways? Give --gateways N.')
  print(io, args, describeOutage(config, store, given, Date.now()), formatReport)
  return 0
}

const gatewaysOf = (args: Args): number => wholeOf(args, 'gateways', MAX_GATEWAYS, 1)

function formatReport({ summary, notes, routes, limits }: OutageReport): string {
  const rows = routes.map(({ match, says }) => [match, says])
  const described = limits.map(({ title, mode, says }) => {
    const others = (['local', 'allow', 'deny'] as const).filter((other) => other !== mode)
    const lines = [...says[mode], ...others.flatMap((other) => `Under ${other}: ${says[other].join(' ')}`)]
    return [title, ...lines.map((line) => `  ${line}`)].join('\n')
  })
  return formatParagraphs([
    summary.join('\n'),
    formatRows(['ROUTE', 'WITHOUT REDIS'], rows),
    ...described,
    notes.join('\n'),
  ])
}
