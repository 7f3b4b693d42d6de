import yargs, { type Argv } from 'yargs'
import { VERSION } from '../observe/version.ts'
import { reportFailure, describeUsageError } from './failure.ts'
import * as flags from './flags.ts'
import { type Args, type Io, UsageError, writeLines } from './io.ts'

/** The commands, whose packages are imported when they run: so help is quick. */
const COMMANDS = {
  start: ['Start the gateway', flags.start, () => import('./start.ts')],
  init: ['Write a configuration for your addresses', flags.init, () => import('./init/command.ts')],
  check: [
    'Say what a configuration means, or list all its mistakes',
    flags.check,
    () => import('./check.ts'),
  ],
  health: ['Ask a running gateway whether it is up', flags.health, () => import('./health.ts')],
  explain: ['Show what a request gets, and why', flags.explain, () => import('./explain.ts')],
  limits: [
    "Show, set or reset a client's limits, or watch who uses most",
    flags.limits,
    () => import('./limits/command.ts'),
  ],
  replay: [
    'Show what limits would have done to logged calls',
    flags.replay,
    () => import('./replay/replay.ts'),
  ],
  sandbox: [
    'Start the gateway and backends, to try it out',
    flags.sandbox,
    () => import('./sandbox/sandbox.ts'),
  ],
  schema: [
    'Print the JSON Schema of the configuration, for editors',
    flags.schema,
    () => import('./schema.ts'),
  ],
} as const
const EPILOGUE = `Exit codes: 0 done, 1 failed (such as a port in use), 64 wrong usage, 78 wrong configuration.

With --json, a failure is one JSON object on standard output: "error" with "exit" and "message" and, for a wrong configuration, "problems", each with "file", "line", "column" (or "flag"), "path" and "message".

Completion: sluice completion >> ~/.bashrc, or >> ~/.zshrc.`
const WHICH = `Which command? One of ${Object.keys(COMMANDS).join(', ')}.`

/** Runs a command line and returns its exit code. */
export async function main(argv: readonly string[], io: Io): Promise<number> {
  try {
    // Has yargs return help and version in place of printing them.
    const print = (_error: unknown, _given: unknown, output: string): void => {
      if (output !== '') writeLines(io.stdout, output)
    }
    let code = 0
    await commandLine(argv, io, (failed) => (code = failed)).parseAsync([...argv], {}, print)
    return code
  } catch (error) {
    return reportFailure(error, argv, io, Object.keys(COMMANDS))
  }
}

/** `onFailed` gets the exit code of a command that has printed itself what failed. */
function commandLine(argv: readonly string[], io: Io, onFailed: (code: number) => void): Argv {
  const program = yargs()
  for (const [name, [describe, build, load]] of Object.entries(COMMANDS)) {
    const run = async (args: Args): Promise<void> => {
      const code: unknown = await (await load()).run(args, io)
      if (typeof code === 'number') onFailed(code)
    }
    program.command(name, describe, (command) => build(command, run), name === 'limits' ? undefined : run)
  }
  return program
    .command('worker', false, {}, () => work(io))
    .completion('completion', 'Print a script that completes commands and flags in bash or zsh')
    .scriptName('sluice')
    .locale('en')
    .usage('$0 <command>\n\nA rate-limiting gateway: authenticates callers, limits them, forwards the rest.')
    .parserConfiguration({
      'duplicate-arguments-array': false,
      'boolean-negation': false,
      'parse-positional-numbers': false,
    })
    .example('$0 start --config config/sluice.yaml', 'start the gateway')
    .example('$0 init', 'write sluice.yaml')
    .example('$0 check', 'what does ./sluice.yaml mean?')
    .example('$0 check --connect', 'does all that it names answer?')
    .example('$0 start --config sluice.yaml --port 80 --redis redis://10.0.0.7', 'flags beat the file')
    .example('$0 explain "POST /v3/sync/abc" --client acme', 'which route and limits does this get?')
    .example('$0 limits show acme', 'how much has this client used?')
    .example('$0 limits set acme requests=5000 --until 2h', 'give it more for two hours')
    .example('$0 limits top', 'who uses most of their limits now?')
    .example('$0 replay access.log --config new.yaml', 'whom would these limits refuse?')
    .example('$0 sandbox --limit 5', 'see the sixth call in a minute refused')
    .epilogue(EPILOGUE)
    .version(VERSION)
    .alias({ help: 'h', version: 'V' })
    .demandCommand(1, 1, WHICH)
    .strict()
    .recommendCommands()
    .exitProcess(false)
    .fail((message: string | null, error: Error | undefined, { help }: Argv) => {
      if (error !== undefined && error.name !== 'YError') throw error
      const [first, second] = argv
      const words =
        first === 'limits'
          ? describeUsageError(message, argv, second, flags.WHICH_OF_LIMITS, flagsIn(help))
          : describeUsageError(message, argv, first, WHICH, flagsIn(help))
      throw new UsageError(words ?? error?.message)
    })
}

/** Returns the flags that a help text lists. */
const flagsIn = (help: unknown): readonly string[] =>
  [...(help as () => string)().matchAll(/ --([a-z-]+)/g)].map(([, flag]) => flag!)

async function work(io: Io): Promise<void> {
  if (io.send === undefined) throw new UsageError('Workers are started by "sluice start --workers N".')
  ;(await import('../process/workers/worker.ts')).runWorker(io.send.bind(io))
  // The worker ends its process itself.
  await new Promise<never>(() => {})
}
