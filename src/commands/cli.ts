import { existsSync } from 'node:fs'
import type { Argv } from 'yargs'
import { type ConfigError, type LocatedIssue, nearest } from '../config/yaml/issue.ts'
import { VERSION } from '../runtime/package.ts'
import { REVISION } from '../runtime/revision.ts'
import * as flags from './flags.ts'
import { type Args, UsageError } from './args.ts'
import { type Io, writeLines } from './io.ts'

/** The commands. Their modules are imported when they run, so that `--help` is fast. */
const COMMANDS = {
  start: ['Start the gateway', flags.startFlags, () => import('./start.ts')],
  init: ['Write a configuration', flags.initFlags, () => import('./init/command.ts')],
  check: ['Show a configuration, or its mistakes', flags.checkFlags, () => import('./check.ts')],
  health: ['Ask a gateway whether it is up', flags.healthFlags, () => import('./health.ts')],
  explain: ['Show what a request gets, and why', flags.explainFlags, () => import('./explain.ts')],
  limits: ['Control the limits of callers', flags.limitsFlags, () => import('./limits/command.ts')],
  keys: ['Create, list and revoke API keys', flags.keysFlags, () => import('./keys/command.ts')],
  replay: ['Apply limits to logged calls', flags.replayFlags, () => import('./replay/replay.ts')],
  sandbox: ['Start with sample backends', flags.sandboxFlags, () => import('./sandbox/sandbox.ts')],
  schema: ['Print the JSON Schema of the configuration', flags.schemaFlags, () => import('./schema.ts')],
  completion: ['Print a completion script', {}, () => import('./completion.ts')],
} as const
/** The words that a command accepts. */
const WORDS: Readonly<Record<string, string>> = {
  explain: '("[METHOD] [host]/path" | --token FILE | --request-id ID ACCESS-LOG...)',
  replay: 'ACCESS-LOG... (files of Sluice or another proxy, or - for standard input)',
  completion: '[bash | zsh | fish]',
}
const EPILOGUE = 'Exit codes: 0 done, 1 failed, 64 wrong usage, 78 wrong configuration.'
const UNKNOWN_COMMAND = 'Unknown command or argument.'
/** Replaces messages of yargs. `%c` leaves out the given value, which may be a password. */
const MESSAGES = {
  'Not enough arguments following: %s': 'The flag "%s" needs a value.',
  'Arguments %s and %s are mutually exclusive': '--%s cannot be combined with --%s; remove one.',
  'Argument: %s, Given: %s, Choices: %s': '--%s%c must be one of %s.',
  'Did you mean %s?': 'Unknown command; did you mean %s?',
}

/** Exit codes of sysexits.h. */
const EX_USAGE = 64
const EX_CONFIG = 78

/** A command with its flags. Thrown, as yargs would lay out the help of a command that returns: a fifth of the time of short ones. */
class Parsed extends Error {
  readonly run: () => Promise<unknown>
  constructor(run: () => Promise<unknown>) {
    super()
    this.run = run
  }
}

export async function main(argv: readonly string[], io: Io): Promise<number> {
  try {
    // Without yargs, which takes 0.1 s: a replaced worker must serve soon, the image starts a gateway
    // without flags, and a container engine calls `health` every few seconds.
    if (argv[0] === 'worker') return await work(io)
    if (argv[0] === 'start' && argv.length === 1)
      await (await COMMANDS.start[2]()).run({ workers: flags.startFlags.workers.default }, io)
    else if (argv[0] === 'health' && argv.slice(1).every((flag) => flag === '--ready'))
      await (await COMMANDS.health[2]()).run({ ready: argv.length > 1 }, io)
    else return await runCommand(argv, io)
    return 0
  } catch (error) {
    return reportFailure(error instanceof Error ? error : new Error(String(error)), argv, io)
  }
}

async function runCommand(argv: readonly string[], io: Io): Promise<number> {
  const { default: yargs } = await import('yargs')
  const program: Argv = yargs()
  for (const [name, [describe, options, load]] of Object.entries(COMMANDS)) {
    const run = (args: Args): never => {
      throw new Parsed(async () => await (await load()).run(args, io))
    }
    const build = (command: Argv): Argv => {
      if (typeof options === 'function') return options(command, run)
      const words = WORDS[name]
      if (words !== undefined) flags.withWords(command, `${name} ${words}`, `${describe}.`)
      return command.options(options)
    }
    program.command(name, describe, build, run)
  }
  program
    .scriptName('sluice')
    .updateStrings(MESSAGES)
    .usage('$0 <command>\n\nA rate-limiting gateway: authenticates, limits and forwards calls.')
    .parserConfiguration({ 'parse-positional-numbers': false })
    .example('$0 check --connect', 'does every server in it respond?')
    .example('$0 explain "POST /v3/sync/abc" --client acme', 'which route and limits does this get?')
    .example('$0 explain --token FILE', 'why is this access token refused?')
    .example('$0 explain --request-id ID access.log', 'why did this past call get its answer?')
    .example('$0 limits show acme', 'how much has this client used?')
    .example('$0 limits top', 'which callers use most of their limits now?')
    .example('$0 keys create acme --plan pro', 'a new API key, which is shown once')
    .example('$0 replay access.log --config new.yaml', 'which calls would these limits refuse?')
    .example('$0 replay access.log --plan acme=pro', 'what would the plan pro do to acme?')
    .example('$0 sandbox --limit 5', 'see the sixth call in a minute refused')
    .epilogue(EPILOGUE)
    .version(`${VERSION} (commit ${REVISION})`)
    .alias({ help: 'h', version: ['v', 'V'] })
    .demandCommand(1, 'Which command?')
    .recommendCommands()
    .strictCommands()
    .strictOptions()
    .exitProcess(false)
    .fail((message: string | null, error: Error | undefined) => {
      if (error !== undefined && error.name !== 'YError') throw error
      const names = Object.keys(program.parsed ? program.parsed.aliases : {})
      throw new UsageError(usageMessage(message ?? error?.message ?? '', names, argv))
    })
  try {
    // With a callback, yargs does not print help and version itself.
    await program.parseAsync(asFlags(argv), {}, (_error: unknown, _args: unknown, output: string) => {
      if (output !== '') writeLines(io.stdout, output)
    })
    return 0
  } catch (error) {
    if (!(error instanceof Parsed)) throw error
    const code = await error.run()
    return typeof code === 'number' ? code : 0
  }
}

/** Replaces the words `help` and `version` by the flags; without words, asks for the help. */
function asFlags([first = 'help', ...rest]: readonly string[]): string[] {
  if (first === 'version') return ['--version']
  // yargs would read `-cFILE` as a flag for each letter.
  if (first !== 'help')
    return [first, ...rest.flatMap((word) => (/^-c[^=]/.test(word) ? ['-c', word.slice(2)] : word))]
  if (commandOf(rest).length < rest.length) throw new UsageError(UNKNOWN_COMMAND)
  return [...rest, '--help']
}

function commandOf([command = '', action = '']: readonly string[]): readonly string[] {
  if (!Object.hasOwn(COMMANDS, command)) return []
  const hasAction = flags.ACTIONS[command]?.includes(action) === true
  return hasAction ? [command, action] : [command]
}

/**
 * Rewrites a message of yargs that repeats words, which may be passwords, or URLs with passwords.
 * Only names of flags are repeated, and of configurations. `names` are those of all flags, and their aliases.
 */
function usageMessage(message: string, names: readonly string[], argv: readonly string[]): string {
  if (/^Unknown commands?:/.test(message)) return `${UNKNOWN_COMMAND}${fileHint(argv)}`
  const [, unknown] = /^Unknown arguments?: ([^,\s]+)/.exec(message) ?? []
  if (unknown === undefined) return message.trim()
  // Neither letters, nor aliases in camel case, nor the unknown flag itself.
  const others = names.filter((name) => /^[a-z-]{2,}$/.test(name) && name !== unknown)
  const similar = nearest(unknown, others)
  const remedy = similar === undefined ? '.' : `; did you mean --${similar}?`
  return `Unknown flag ${unknown.length === 1 ? '-' : '--'}${unknown}${remedy}`
}

/** Suggests the flag if a word is an existing file, as other programs take it. */
function fileHint(words: readonly string[]): string {
  const file = words.slice(1).find((word) => /\.(?:ya?ml|json)$/i.test(word) && existsSync(word))
  return file === undefined ? '' : ` Did you mean --config ${file}?`
}

/**
 * Writes a failure without its stack: as a JSON object on `stdout` with `--json`, else as lines on
 * `stderr`. Returns the exit code.
 */
function reportFailure(error: Error, argv: readonly string[], io: Io): number {
  // Compares names, since the commands import the classes only when they need them.
  const isConfig = error.name === 'ConfigError'
  const isUsage = error instanceof UsageError || error.name === 'InvalidQuestion'
  const exit = isUsage ? EX_USAGE : isConfig || error.name === 'StoreConfigError' ? EX_CONFIG : 1
  const message = error.message || error.name
  if (argv.includes('--json')) {
    const problems = isConfig ? (error as ConfigError).problems.map(withPosition) : undefined
    writeLines(io.stdout, JSON.stringify({ error: { exit, message }, problems }, undefined, 2))
  } else {
    const hint = isUsage ? `\nSee "${['sluice', ...commandOf(argv)].join(' ')} --help".` : ''
    writeLines(io.stderr, isConfig ? message : `sluice: ${message}${hint}`)
  }
  return exit
}

/** Splits the position of an issue into a flag, or a file with line and column unless it concerns the whole file. */
function withPosition({ where, path, message }: LocatedIssue) {
  if (where.startsWith('--')) return { flag: where, path, message }
  const [, file = where, line, column] = /^(.*):(\d+):(\d+)$/s.exec(where) ?? []
  return { file, ...(line && { line: Number(line), column: Number(column) }), path, message }
}

async function work(io: Io): Promise<never> {
  if (io.send === undefined) throw new UsageError('Workers are started by "start --workers N".')
  ;(await import('../process/workers/worker.ts')).runWorker(io.send.bind(io))
  // The worker ends its process itself.
  return await new Promise<never>(() => {})
}
