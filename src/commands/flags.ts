import type { Argv } from 'yargs'
import { FLAGS, type Args } from './io.ts'

export const LIMITS_COMMANDS: readonly string[] = ['show', 'set', 'reset', 'overrides', 'top']
export const WHICH_OF_LIMITS = `Which command? One of ${LIMITS_COMMANDS.map((name) => `limits ${name}`).join(', ')}.`

/** Declares a flag that takes a text. */
function text(command: Argv, name: string, describe: string, otherwise?: string): Argv {
  const option = { type: 'string', requiresArg: true, describe } as const
  return command.option(name, otherwise === undefined ? option : { ...option, default: otherwise })
}

/** Declares `--json`. */
function withJson(command: Argv): Argv {
  return command.option('json', { type: 'boolean', describe: 'as JSON' })
}

/** Declares `--config`. */
function withConfig(command: Argv): Argv {
  return text(
    command,
    'config',
    'the YAML file, or - for standard input; unless given, SLUICE_CONFIG, then ./sluice.yaml',
  )
}

/** Declares the flags by which a running gateway is found. */
function asking(command: Argv): Argv {
  withJson(withConfig(command))
  text(
    command,
    'admin',
    'URL of the admin listener, in place of the one in the file; its token is that of ADMIN_TOKEN',
  )
  for (const name of ['admin-host', 'admin-port']) text(command, name, FLAGS[name]!.describe)
  return command
}

/** Declares the flags of the commands that read a configuration, in which flags override the file. */
function configured(command: Argv): Argv {
  withConfig(command)
  for (const [name, { describe }] of Object.entries(FLAGS)) {
    const group = 'In place of what the file says:'
    command.option(name, { type: 'string', requiresArg: true, describe, group })
  }
  return command.conflicts('store', 'redis')
}

export function start(command: Argv): Argv {
  const describe =
    'processes that share the port and the limits, which must be in Redis; auto: one for each usable core'
  return text(configured(command), 'workers', describe, '1')
}

export function init(command: Argv): Argv {
  text(
    command,
    'identity',
    'where the identity backend answers, if callers reach it through the gateway: scheme, host and port',
  )
  text(command, 'data', 'where the Data API answers: scheme, host and port')
  text(command, 'issuer', 'the issuer of the access tokens, exactly as in them')
  text(command, 'audience', 'the audience of the access tokens, such as the URL of the API')
  text(command, 'api', 'URL of the API as callers reach it; the audience, where that is a URL')
  text(
    command,
    'open',
    'requests to the API that need no token, such as "GET /v3/status; GET /v3/terms"; none, unless given',
  )
  text(command, 'redis', 'URL of the Redis that counts; redis://127.0.0.1:6379, unless given')
  text(command, 'output', 'the file that is written, or - for standard output', 'sluice.yaml')
  return withJson(command)
    .option('force', { type: 'boolean', describe: 'overwrite the file' })
    .epilogue('On a terminal, it asks for what is not given.')
}

export function schema(command: Argv): Argv {
  return text(withJson(command), 'output', 'the file that is written, or - for standard output', '-')
}

export function check(command: Argv): Argv {
  const describe = 'try Redis, upstreams, issuers and certificates too; exit code 1 if one fails'
  withJson(configured(command)).option('connect', { type: 'boolean', describe })
  return text(command, 'against', 'another file, from which the differences are printed').conflicts(
    'connect',
    'against',
  )
}

export function health(command: Argv): Argv {
  return asking(command).option('ready', {
    type: 'boolean',
    describe: 'also whether it should get requests: /readyz',
  })
}

export function limits(command: Argv, run: (args: Args) => Promise<void>): Argv {
  return command
    .command('show <client>', 'Show what a client has used, and its overrides', ofClient, run)
    .command('set <client>', "Set a client's limits while the gateways run", setting, run)
    .command('reset <client>', 'Free all that is counted of a client', ofClient, run)
    .command('overrides', 'List the limits that were set while the gateways run', asking, run)
    .command('top', 'Watch who uses most of which limit', watched, run)
    .demandCommand(1, 1, WHICH_OF_LIMITS)
}

function ofClient(command: Argv): Argv {
  const describe = 'the id of the client, as its tokens name it; id@issuer where that is not the first'
  return asking(command.positional('client', { type: 'string', describe }))
}

function watched(command: Argv): Argv {
  return asking(command).option('once', { type: 'boolean', describe: 'show it once, as without a terminal' })
}

/** Takes the words behind the command as they are: of positionals, yargs would lose `-` and all but the last. */
function withPositionals(command: Argv, missing: string): Argv {
  return command.strict(false).strictOptions().demandCommand(1, missing)
}

function setting(command: Argv): Argv {
  ofClient(command)
    .usage(
      '$0 limits set CLIENT LIMIT=N... [--until T | --permanent] [--note TEXT]\n\nGive one client another limit, at every gateway within a second; LIMIT=default ends it.',
    )
    .example('$0 limits set acme requests=5000 --until 2h', 'more calls for two hours')
    .example('$0 limits set acme requests=0 --note "leaked token"', 'block a client for a day')
    .example('$0 limits set acme requests=default', 'back to what the file says')
    .strict(false)
    .strictOptions()
    .demandCommand(0)
  text(command, 'until', 'such as 2027-01-31T00:00:00Z, or 2h from now; 24h, unless given')
  text(command, 'note', 'why, for other operators')
  return command
    .option('permanent', { type: 'boolean', describe: 'without an end' })
    .conflicts('until', 'permanent')
}

export function explain(command: Argv): Argv {
  withPositionals(
    asking(command),
    'Which request? Write "[METHOD] [host]/path", such as "POST /v3/sync/abc".',
  ).usage(
    '$0 explain "[METHOD] [host]/path"\n\nSay which route, authentication, limits and upstream a request gets, and why.',
  )
  text(command, 'host', 'the host that the caller addresses')
  text(command, 'client', 'the id of the client that calls')
  text(command, 'user', 'the user for whom it calls, as `sub` of its token')
  text(command, 'ip', 'the address from which it calls')
  command.option('offline', { type: 'boolean', describe: 'by the file alone, without asking a gateway' })
  return text(command, 'at', 'when it calls, such as 2027-01-31T00:00:00Z; now, unless given')
}

export function replay(command: Argv): Argv {
  withPositionals(
    withJson(withConfig(command)),
    'Which access log? Give its files, or - for standard input.',
  ).usage(
    '$0 replay ACCESS-LOG...\n\nSay what limits would have done to the calls of an access log: files, plain or gzip, or - for standard input.',
  )
  text(command, 'top', 'most clients that are listed, those with the most refused first', '50')
  return text(command, 'client', 'the id of the one client to report')
}

export function sandbox(command: Argv): Argv {
  const hosts = 'address or name at which callers connect to the gateway; 0.0.0.0 for every address'
  text(command, 'host', hosts, '127.0.0.1')
  text(command, 'port', 'port of the gateway; 0 takes a free one, here as below', '8080')
  text(command, 'admin-port', 'port of its admin listener', '9090')
  text(command, 'identity-port', 'port of the OpenID Provider', '0')
  text(command, 'data-port', 'port of the Data API', '0')
  text(command, 'log-level', 'info logs each request, too', 'warn')
  return text(command, 'limit', 'calls that a client may make in a minute', '1000')
}
