import yargs, { type Argv } from 'yargs'
import { VERSION } from '../observe/version.ts'
import { reportFailure, wordUsage } from './failure.ts'
import { configured, text, withConfig, withJson } from './flags.ts'
import { type Given, type Io, UsageError, writeLines } from './io.ts'

const WHICH_OF_LIMITS = 'Which command? One of limits show, limits set, limits reset.'

/** Flags of `start` that change nothing for `limits`, which takes them so that both can be called alike. */
const IDLE_FOR_LIMITS = ['host', 'port', 'log-level', 'log-format']

/** The commands, whose packages are imported when they run: so help is quick. */
const COMMANDS = {
  start: ['serve', started, () => import('./start.ts')],
  init: ['write a configuration for your addresses', initiated, () => import('./init/command.ts')],
  check: ['say what a configuration means, or list all its mistakes', checked, () => import('./check.ts')],
  explain: ['say what a request gets, and why', explained, () => import('./explain/command.ts')],
  limits: [
    'read or reset what Redis counts of one client, or set its limits',
    asking,
    () => import('./limits.ts'),
  ],
  replay: ['say what limits would have done to logged calls', replayed, () => import('./replay/replay.ts')],
  sandbox: ['serve with backends, to try it out', sandboxed, () => import('./sandbox/sandbox.ts')],
  schema: ['print the JSON Schema of the configuration, for editors', described, () => import('./schema.ts')],
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
    return reportFailure(error, argv, io)
  }
}

/** `onFailed` gets the exit code of a command that has printed itself what failed. */
function commandLine(argv: readonly string[], io: Io, onFailed: (code: number) => void): Argv {
  const program = yargs()
  for (const [name, [describe, build, load]] of Object.entries(COMMANDS)) {
    const run = async (given: Given): Promise<void> => {
      const code: unknown = await (await load()).run(given, io)
      if (typeof code === 'number') onFailed(code)
    }
    program.command(name, describe, (command) => build(command, run), name === 'limits' ? undefined : run)
  }
  return program
    .command('worker', false, {}, () => work(io))
    .completion('completion', 'print a script that completes commands and flags in bash or zsh')
    .scriptName('sluice')
    .locale('en')
    .usage('$0 <command>\n\nA rate-limiting gateway: authenticates callers, limits them, forwards the rest.')
    .parserConfiguration({
      'duplicate-arguments-array': false,
      'boolean-negation': false,
      'parse-positional-numbers': false,
    })
    .example('$0 start --config config/sluice.yaml', 'serve')
    .example('$0 init', 'write sluice.yaml')
    .example('$0 check --config config/sluice.yaml', 'which routes and limits are in effect?')
    .example('$0 check --config config/sluice.yaml --connect', 'does all that it names answer?')
    .example('$0 start --config sluice.yaml --port 80 --redis redis://10.0.0.7', 'flags beat the file')
    .example('$0 explain "POST /v3/sync/abc" --client acme', 'which route and limits does this get?')
    .example('$0 limits show acme --config config/sluice.yaml', 'how much has this client used?')
    .example('$0 replay access.log --config new.yaml', 'whom would these limits refuse?')
    .example('$0 sandbox --limit 5', 'see the sixth call in a minute refused')
    .epilogue(EPILOGUE)
    .version(VERSION)
    .alias({ help: 'h', version: 'V' })
    .demandCommand(1, 1, WHICH)
    .strict()
    .recommendCommands()
    .exitProcess(false)
    .fail((message: string | null, error: Error | undefined) => {
      if (error !== undefined && error.name !== 'YError') throw error
      const [first, second] = argv
      const words =
        first === 'limits'
          ? wordUsage(message, argv, second, WHICH_OF_LIMITS)
          : wordUsage(message, argv, first, WHICH)
      throw new UsageError(words ?? error?.message)
    })
}

async function work(io: Io): Promise<void> {
  if (io.send === undefined) throw new UsageError('Workers are started by "sluice start --workers N".')
  ;(await import('../process/workers/worker.ts')).runWorker(io.send.bind(io))
  // The worker ends its process itself.
  await new Promise<never>(() => {})
}

function started(command: Argv): Argv {
  const describe =
    'processes that share the port and the limits, which must be in Redis; auto: one for each usable core'
  return text(configured(command), 'workers', describe, '1')
}

function initiated(command: Argv): Argv {
  text(command, 'identity', 'where the identity backend answers: scheme, host and port')
  text(command, 'data', 'where the Data API answers: scheme, host and port')
  text(command, 'issuer', 'the issuer of the access tokens, exactly as in them')
  text(command, 'audience', 'the audience of the access tokens, such as the URL of the API')
  text(command, 'redis', 'URL of the Redis that counts; redis://127.0.0.1:6379, unless given')
  text(command, 'output', 'the file that is written, or - for standard output', 'sluice.yaml')
  return command
    .option('force', { type: 'boolean', describe: 'overwrite the file' })
    .epilogue('On a terminal, it asks for what is not given.')
}

function described(command: Argv): Argv {
  return text(command, 'output', 'the file that is written, or - for standard output', '-')
}

function checked(command: Argv): Argv {
  const describe = 'try Redis, upstreams, issuers and certificates too; exit code 1 if one fails'
  return withJson(configured(command)).option('connect', { type: 'boolean', describe })
}

function asking(command: Argv, run: (given: Given) => Promise<void>): Argv {
  return command
    .command('show [client]', 'what the client has used; all overrides, if none is given', ofClient, run)
    .command('set [client]', 'set LIMIT=N, or end that by LIMIT=default', setting, run)
    .command('reset [client]', 'free all that is counted of the client', ofClient, run)
    .demandCommand(1, 1, WHICH_OF_LIMITS)
}

function ofClient(command: Argv): Argv {
  const describe = 'the id of the client, as its tokens name it; id@issuer where that is not the first'
  return withJson(configured(command, IDLE_FOR_LIMITS).positional('client', { type: 'string', describe }))
}

/** Takes the words behind the command as they are: of positionals, yargs would lose `-` and all but the last. */
function withWords(command: Argv, missing: string): Argv {
  return withJson(withConfig(command)).strict(false).strictOptions().demandCommand(1, missing)
}

function setting(command: Argv): Argv {
  ofClient(command)
    .usage(
      '$0 limits set CLIENT LIMIT=N... [--until T]\n\nGive one client another limit, at every gateway within a second; LIMIT=default ends it.',
    )
    .strict(false)
    .strictOptions()
    .demandCommand(0)
  return text(command, 'until', 'such as 2027-01-31T00:00:00Z, or 2h from now; for good, unless given')
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
  const hosts = 'address or name at which callers connect to the gateway; 0.0.0.0 for every address'
  text(command, 'host', hosts, '127.0.0.1')
  text(command, 'port', 'port of the gateway; 0 takes a free one, here as below', '8080')
  text(command, 'admin-port', 'port of its admin listener', '9090')
  text(command, 'identity-port', 'port of the OpenID Provider', '0')
  text(command, 'data-port', 'port of the Data API', '0')
  return text(command, 'limit', 'calls that a client may make in a minute', '1000')
}
