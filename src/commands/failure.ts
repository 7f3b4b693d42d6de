import { LIMITS_COMMANDS } from './flags.ts'
import { type ConfigError, nearest, type LocatedIssue } from '../config/yaml/issue.ts'
import { type Io, UsageError, writeLines } from './io.ts'

/** Exit codes beside 0 and 1, as in sysexits.h. */
const WRONG_USAGE = 64
const WRONG_CONFIG = 78

/** Writes why a command failed, without a stack: one JSON object on `io.stdout` with `--json`, else lines on `io.stderr`. Returns the exit code. */
export function reportFailure(
  thrown: unknown,
  argv: readonly string[],
  io: Io,
  commands: readonly string[],
): number {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown))
  // By their names: their modules are imported by the commands that need them.
  const isConfig = error.name === 'ConfigError'
  const isUsage = error instanceof UsageError || error.name === 'InvalidQuestion'
  const exit = isUsage ? WRONG_USAGE : isConfig || error.name === 'StoreConfigError' ? WRONG_CONFIG : 1
  const message = error.message || error.name
  if (argv.includes('--json')) {
    const problems = isConfig ? (error as ConfigError).problems.map(locatedOf) : undefined
    writeLines(io.stdout, JSON.stringify({ error: { exit, message }, problems }, undefined, 2))
  } else {
    const hint = isUsage ? `\nSee "${['sluice', ...commandOf(argv, commands), '--help'].join(' ')}".` : ''
    writeLines(io.stderr, isConfig ? message : `sluice: ${message}${hint}`)
  }
  return exit
}

/** Returns the words of a command line that name its command, as far as there is such a command. */
function commandOf(
  [command = '', action = '']: readonly string[],
  commands: readonly string[],
): readonly string[] {
  if (!commands.includes(command)) return []
  return command === 'limits' && LIMITS_COMMANDS.includes(action) ? [command, action] : [command]
}

/** A problem with the parts of its place apart: a file, with line and column unless it is all of it, or a flag. */
function locatedOf({ where, path, message }: LocatedIssue) {
  if (where.startsWith('--')) return { flag: where, path, message }
  const [, file = where, line, column] = /^(.*):(\d+):(\d+)$/s.exec(where) ?? []
  const place = line === undefined ? {} : { line: Number(line), column: Number(column) }
  return { file, ...place, path, message }
}

/** Words what yargs found, without possible secrets; `which` asks for a command where `command` is none, nor like one. */
export function describeUsageError(
  message: string | null,
  argv: readonly string[],
  command: string | undefined,
  which: string,
  flags: readonly string[],
): string | undefined {
  const unknown = /^(Unknown arguments?: )(.*)$/s.exec(message ?? '')
  if (unknown !== null) {
    const words = unknown[2]!.split(', ')
    if (command !== undefined && !command.startsWith('-') && words.includes(command)) return which
    // What is no flag may be a password, or a URL with one.
    const isFlag = (word: string): boolean => argv.some((one) => /^--?/.test(one) && one.includes(word))
    const plain = words.map((word) => (isFlag(word) ? word : '***'))
    const meant = plain.flatMap((word) => nearest(word, flags) ?? [])[0]
    const advice = plain.includes('***')
      ? '. Give values by flags, such as --config FILE.'
      : meant === undefined
        ? ''
        : `. Did you mean --${meant}?`
    return unknown[1]! + plain.join(', ') + advice
  }
  const suggested = /^Did you mean (\S+)\?$/.exec(message ?? '')?.[1]
  if (suggested === undefined || argv.some((word) => nearest(word, [suggested]) !== undefined))
    return message ?? undefined
  return which
}
