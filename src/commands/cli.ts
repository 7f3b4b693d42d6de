import yargs, { type Argv } from 'yargs'
import { nearest } from '../config/yaml/problem.ts'
import { VERSION } from '../observe/version.ts'
import { FLAGS, type Given, type Io, writeLines, UsageError } from './io.ts'

/** Exit codes beside 0 and 1, as in sysexits.h. */
const WRONG_USAGE = 64
const WRONG_CONFIG = 78

const WHICH_OF_LIMITS = 'Which command? One of limits show, limits reset, limits top.'

/** Flags of `start` that change nothing for `limits`, which takes them so that both can be called alike. */
const IDLE_FOR_LIMITS = ['host', 'port', 'log-level', 'log-format']

/** The commands, whose packages are imported when they run: so help is quick. */
const COMMANDS = {
  start: ['serve', started, () => import('./start.ts')],
  check: ['say what a configuration means, or list all its mistakes', checked, () => import('./check.ts')],
  explain: ['say what a request gets, and why', explained, () => import('./explain/command.ts')],
  limits: [
    'read or reset what Redis counts of one client, or see who uses most',
    asking,
    () => import('./limits.ts'),
  ],
  replay: ['say what limits would have done to logged calls', replayed, () => import('./replay/replay.ts')],
  sandbox: ['serve with backends, to try it out', sandboxed, () => import('./sandbox/sandbox.ts')],
} as const
const WHICH = `Which command? One of ${Object.keys(COMMANDS).join(', ')}.`

/** Runs a command line and returns its exit code; failures are written to `io.stderr`, without a stack. */
export async function main(argv: readonly string[], io: Io): Promise<number> {
  try {
    // Has yargs return help and version in place of printing them.
    const print = (_error: unknown, _given: unknown, output: string): void => {
      if (output !== '') writeLines(io.stdout, output)
    }
    await commandLine(argv, io).parseAsync([...argv], {}, print)
    return 0
  } catch (error) {
    const { name, message } = error instanceof Error ? error : new Error(String(error))
    if (error instanceof UsageError) {
      writeLines(io.stderr, `sluice: ${message}\nSee "sluice --help".`)
      return WRONG_USAGE
    }
    writeLines(io.stderr, name === 'ConfigError' ? message : `sluice: ${message || name}`)
    return name === 'ConfigError' || name === 'StoreConfigError' ? WRONG_CONFIG : 1
  }
}

function commandLine(argv: readonly string[], io: Io): Argv {
  const program = yargs()
  for (const [name, [describe, build, load]] of Object.entries(COMMANDS)) {
    const run = async (given: Given): Promise<void> => (await load()).run(given, io)
    program.command(name, describe, (command) => build(command, run), name === 'limits' ? undefined : run)
  }
  return program
    .command('worker', false, {}, () => work(io))
    .scriptName('sluice')
    .locale('en')
    .usage('$0 <command>\n\nA rate-limiting gateway: authenticates callers, limits them, forwards the rest.')
    .parserConfiguration({
      'duplicate-arguments-array': false,
      'boolean-negation': false,
      'parse-positional-numbers': false,
    })
    .example('$0 start --config config/sluice.yaml', 'serve')
    .example('$0 check --config config/sluice.yaml', 'which routes and limits are in effect?')
    .example('$0 start --config sluice.yaml --port 80 --redis redis://10.0.0.7', 'flags beat the file')
    .example('$0 explain "POST /v3/sync/abc" --client acme', 'which route and limits does this get?')
    .example('$0 limits show acme --config config/sluice.yaml', 'how much has this client used?')
    .example('$0 limits top --config config/sluice.yaml', 'who uses most of their limits now?')
    .example('$0 replay access.log --config new.yaml', 'whom would these limits refuse?')
    .example('$0 sandbox --limit 5', 'see the sixth call in a minute refused')
    .epilogue('Exit codes: 0 done, 1 failed (such as a port in use), 64 wrong usage, 78 wrong configuration.')
    .version(VERSION)
    .alias({ help: 'h', version: 'V' })
    .demandCommand(1, 1, WHICH)
    .strict()
    .recommendCommands()
    .exitProcess(false)
    .fail((message: string | null, error: Error | undefined) => {
      if (error !== undefined && error.name !== 'YError') throw error
      throw new UsageError(reworded(message, argv) ?? error?.message)
    })
}

async function work(io: Io): Promise<void> {
  if (io.send === undefined) throw new UsageError('Workers are started by "sluice start --workers N".')
  ;(await import('../process/workers/worker.ts')).runWorker(io.send.bind(io))
  // The worker ends its process itself.
  await new Promise<never>(() => {})
}

/** A message of yargs without possible secrets, and without suggestions of commands that are nothing like what was written. */
function reworded(message: string | null, argv: readonly string[]): string | undefined {
  const unknown = /^(Unknown arguments?: )(.*)$/s.exec(message ?? '')
  if (unknown !== null) {
    // What is no flag may be a password, or a URL with one.
    const isFlag = (word: string): boolean => argv.some((one) => /^--?/.test(one) && one.includes(word))
    const plain = unknown[2]!.split(', ').map((word) => (isFlag(word) ? word : '***'))
    const advice = plain.includes('***') ? '. Give values by flags, such as --config FILE.' : ''
    return unknown[1]! + plain.join(', ') + advice
  }
  const suggested = /^Did you mean (\S+)\?$/.exec(message ?? '')?.[1]
  if (suggested === undefined || argv.some((word) => nearest(word, [suggested]) !== undefined))
    return message ?? undefined
  return argv[0] === 'limits' ? WHICH_OF_LIMITS : WHICH
}

function text(command: Argv, name: string, describe: string, otherwise?: string): Argv {
  const option = { type: 'string', requiresArg: true, describe } as const
  return command.option(name, otherwise === undefined ? option : { ...option, default: otherwise })
}

function withJson(command: Argv): Argv {
  return command.option('json', { type: 'boolean', describe: 'as JSON' })
}

function withConfig(command: Argv): Argv {
  return text(command, 'config', 'the YAML file, or - for standard input; SLUICE_CONFIG, unless given')
}

/** The options of the commands that read a configuration, in which flags override the file; hides those in `idle`. */
function configured(command: Argv, idle: readonly string[] = []): Argv {
  withConfig(command)
  for (const [name, { describe }] of Object.entries(FLAGS)) {
    const group = 'In place of what the file says:'
    command.option(name, { type: 'string', requiresArg: true, describe, hidden: idle.includes(name), group })
  }
  return command.conflicts('store', 'redis')
}

function started(command: Argv): Argv {
  const describe =
    'processes that share the port and the limits, which must be in Redis; auto: one for each usable core'
  return text(configured(command), 'workers', describe, '1')
}

function checked(command: Argv): Argv {
  return withJson(configured(command))
}

function asking(command: Argv, run: (given: Given) => Promise<void>): Argv {
  return command
    .command('show [client]', 'what the client has used of each limit', ofClient, run)
    .command('reset [client]', 'free all that is counted of the client', ofClient, run)
    .command('top', 'who uses most of which limit at a running gateway', watched, run)
    .demandCommand(1, 1, WHICH_OF_LIMITS)
}

function ofClient(command: Argv): Argv {
  const describe = 'the id of the client, as its tokens name it; id@issuer where that is not the first'
  return withJson(configured(command, IDLE_FOR_LIMITS).positional('client', { type: 'string', describe }))
}

function watched(command: Argv): Argv {
  text(withJson(withConfig(command)), 'admin', 'URL of the admin listener, in place of the one in the file')
  return command
    .option('once', { type: 'boolean', describe: 'show it once, as without a terminal' })
    .epilogue('The token is that of SLUICE_ADMIN_TOKEN, or admin.token of the file.')
}

/** Takes the words behind the command as they are: of positionals, yargs would lose `-` and all but the last. */
function withWords(command: Argv, missing: string): Argv {
  return withJson(withConfig(command)).strict(false).strictOptions().demandCommand(1, missing)
}

function explained(command: Argv): Argv {
  withWords(command, 'Which request? Write "[METHOD] [host]/path", such as "POST /v3/sync/abc".').usage(
    '$0 explain "[METHOD] [host]/path"\n\nSay which route, authentication, limits and upstream a request gets, and why.',
  )
  text(command, 'host', 'the host that the caller addresses')
  text(command, 'client', 'the id of the client that calls')
  text(command, 'user', 'the user for whom it calls, as `sub` of its token')
  text(command, 'ip', 'the address from which it calls')
  return text(command, 'at', 'when it calls, such as 2027-01-31T00:00:00Z; now, unless given')
}

function replayed(command: Argv): Argv {
  withWords(command, 'Which access log? Give its files, or - for standard input.').usage(
    '$0 replay ACCESS-LOG...\n\nSay what limits would have done to the calls of an access log: files, plain or gzip, or - for standard input.',
  )
  text(command, 'top', 'most clients that are listed, those with the most refused first', '50')
  return text(command, 'client', 'the id of the one client to report')
}

function sandboxed(command: Argv): Argv {
  text(command, 'port', 'port of the gateway; 0 takes a free one, here as below', '8080')
  text(command, 'admin-port', 'port of its admin listener', '9090')
  text(command, 'identity-port', 'port of the OpenID Provider', '0')
  text(command, 'data-port', 'port of the Data API', '0')
  return text(command, 'limit', 'calls that a client may make in a minute', '1000')
}
