#!/usr/bin/env node
import { isIP } from 'node:net'
import yargs, { type Argv } from 'yargs'
import { hideBin } from 'yargs/helpers'
import { nearest } from '../src/config/checks/nearest.ts'
import { FLAGS, overridesOf } from '../src/config/flags.ts'
import type { Loaded, LoadOptions } from '../src/config/load.ts'
import { escaped } from '../src/observe/pretty.ts'
import { VERSION } from '../src/observe/version.ts'

const FAILURE = 1
const USAGE = 64
const CONFIG = 78

const MOST_PORTS = 65_535
const MOST_WORKERS = 256
const MOST_ROWS = 100_000

const WHICH = 'Which command? One of start, check, explain, limits, replay, sandbox.'
const WHICH_OF_LIMITS = 'Which command? One of limits show, limits reset.'

/** Tells people or programs: callers and logs choose some words, and none of them moves a cursor. */
function say(tell: (text: string) => void, text: string): void {
  tell(text.split('\n').map(escaped).join('\n'))
}

/** A command line that asks for something that there is not. */
class UsageError extends Error {}

/** What `--config` and the flags beside it ask for. */
function configOf(given: Record<string, unknown>): LoadOptions {
  const file = given['config'] ?? process.env['SLUICE_CONFIG']
  if (typeof file !== 'string' || file === '') {
    throw new UsageError('Which configuration? Give --config FILE, or set SLUICE_CONFIG.')
  }
  return { file, overrides: overridesOf(given) }
}

/** Packages are loaded by the command that needs them, so help is quick. */
async function load(given: Record<string, unknown>): Promise<Loaded> {
  return (await import('../src/config/load.ts')).loadConfig(configOf(given))
}

async function start(given: Record<string, unknown>): Promise<void> {
  const workers = whole(given, 'workers', MOST_WORKERS, 1)
  await (await import('../src/commands/start.ts')).runGateway(configOf(given), workers)
  // Whatever may still be under way, such as a log line that nobody takes.
  process.exit(0)
}

async function work(): Promise<void> {
  if (process.send === undefined) {
    throw new UsageError('Workers are started by "sluice start --workers N".')
  }
  ;(await import('../src/process/workers/worker.ts')).runWorker(process.send.bind(process))
}

async function check(given: Record<string, unknown>): Promise<void> {
  const { config } = await load(given)
  if (given['json'] === true) {
    say(console.log, (await import('../src/commands/check-json.ts')).configAsJson(config))
  } else {
    say(console.log, (await import('../src/commands/check.ts')).describeConfig(config))
  }
}

async function showLimits(given: Record<string, unknown>): Promise<void> {
  const client = clientOf(given)
  const { config } = await load(given)
  const { describeUsage, withCounters } = await import('../src/commands/limits.ts')
  const usage = await withCounters(config, client, ({ ofClient }) => ofClient(client))
  say(console.log, given['json'] === true ? JSON.stringify(usage, undefined, 2) : describeUsage(usage))
}

async function resetLimits(given: Record<string, unknown>): Promise<void> {
  const client = clientOf(given)
  const { config } = await load(given)
  const { withCounters } = await import('../src/commands/limits.ts')
  const freed = await withCounters(config, client, ({ free }) => free(client))
  const words = `Freed ${freed} ${freed === 1 ? 'key' : 'keys'} of the client "${client}".`
  say(console.log, given['json'] === true ? JSON.stringify({ client, freed }) : words)
}

function clientOf(given: Record<string, unknown>): string {
  return idOf(given, 'client')
}

function idOf(given: Record<string, unknown>, whose: 'client' | 'user'): string {
  const id = given[whose]
  if (typeof id === 'string' && id !== '') return id
  throw new UsageError(`Which ${whose}? Give its id.`)
}

async function explain(given: Record<string, unknown>): Promise<void> {
  const text = (name: string): string | undefined =>
    typeof given[name] === 'string' ? given[name] : undefined
  const { readQuestion } = await import('../src/commands/explain/question.ts')
  const question = readQuestion(wordsOf(given).join(' '), text('host'))
  if (typeof question === 'string') throw new UsageError(question)
  const client = text('client') === undefined ? undefined : idOf(given, 'client')
  const user = text('user') === undefined ? undefined : idOf(given, 'user')
  const ip = addressOf(text('ip'))
  const atMs = await instantOf(text('at'))
  const { config } = await load({ config: given['config'] })
  const { explain } = await import('../src/commands/explain/explain.ts')
  const asker = { client, user, ip }
  const explained = explain(config, question, asker, atMs)
  if (given['json'] === true) say(console.log, JSON.stringify(explained, undefined, 2))
  else {
    const { describeExplained } = await import('../src/commands/explain/describe.ts')
    say(console.log, describeExplained(explained, config))
  }
}

function addressOf(text: string | undefined): string | undefined {
  if (text === undefined || isIP(text) !== 0) return text
  throw new UsageError(`--ip must be an address such as 192.0.2.7 or 2001:db8::7.`)
}

async function instantOf(text: string | undefined): Promise<number> {
  if (text === undefined) return Date.now()
  const ms = (await import('../src/config/compile/instant.ts')).instantMs(text)
  if (!Number.isNaN(ms)) return ms
  throw new UsageError(`--at must be an instant such as 2027-01-31T00:00:00Z.`)
}

/** What stands freely behind the command. */
function wordsOf(given: Record<string, unknown>): readonly string[] {
  return (given['_'] as readonly unknown[]).slice(1).map(String)
}

async function replay(given: Record<string, unknown>): Promise<void> {
  const logs = wordsOf(given)
  const again = logs.find((log, i) => logs.indexOf(log) < i)
  if (again !== undefined) throw new UsageError(`The log "${again}" is given twice.`)
  if (logs.includes('-') && given['config'] === '-') {
    throw new UsageError('Standard input is the log or the configuration, not both.')
  }
  const top = whole(given, 'top', MOST_ROWS, 1)
  const client = given['client'] === undefined ? undefined : clientOf(given)
  const config = await load(given)
  const { replay } = await import('../src/commands/replay/replay.ts')
  const report = await replay({ logs, config, top, client, screen: process.stderr })
  if (given['json'] === true) say(console.log, JSON.stringify(report, undefined, 2))
  else say(console.log, (await import('../src/commands/replay/describe.ts')).describeReport(report, client))
}

async function sandbox(given: Record<string, unknown>): Promise<void> {
  const options = {
    port: whole(given, 'port', MOST_PORTS),
    adminPort: whole(given, 'admin-port', MOST_PORTS),
    identityPort: whole(given, 'identity-port', MOST_PORTS),
    dataPort: whole(given, 'data-port', MOST_PORTS),
    limit: whole(given, 'limit', Number.MAX_SAFE_INTEGER),
  }
  await (await import('../src/commands/sandbox/sandbox.ts')).runSandbox(options)
}

function whole(given: Record<string, unknown>, flag: string, most: number, least = 0): number {
  const text = String(given[flag])
  if (/^\d{1,16}$/.test(text) && Number(text) >= least && Number(text) <= most) return Number(text)
  throw new UsageError(`--${flag} must be a whole number from ${least} to ${most}.`)
}

/** A message of yargs, which also suggests commands that are nothing like what was written. */
function likely(message: string | null): string | undefined {
  const words = hideBin(process.argv)
  const unknown = /^(Unknown arguments?: )(.*)$/s.exec(message ?? '')
  if (unknown !== null) {
    // What is no flag may be a password, or a URL with one.
    const isFlag = (word: string): boolean => words.some((one) => /^--?/.test(one) && one.includes(word))
    const plain = unknown[2]!.split(', ').map((word) => (isFlag(word) ? word : '***'))
    return unknown[1]! + plain.join(', ')
  }
  const suggested = /^Did you mean (\S+)\?$/.exec(message ?? '')?.[1]
  if (suggested === undefined || words.some((word) => nearest(word, [suggested]) !== undefined))
    return message ?? undefined
  return words[0] === 'limits' ? WHICH_OF_LIMITS : WHICH
}

/** Ends the process with words for the operator, never with a stack trace. */
function fail(error: unknown): never {
  const { name, message } = error instanceof Error ? error : new Error(String(error))
  if (error instanceof UsageError) {
    say(console.error, `sluice: ${message}\nSee "sluice --help".`)
    process.exit(USAGE)
  }
  if (name === 'StoreConfigError') {
    say(console.error, `sluice: ${message}`)
    process.exit(CONFIG)
  }
  if (name === 'ConfigError') {
    say(console.error, message)
    process.exit(CONFIG)
  }
  say(console.error, `sluice: ${message || name}`)
  process.exit(FAILURE)
}

function withConfig(command: Argv): Argv {
  return command.option('config', {
    type: 'string',
    requiresArg: true,
    describe: 'the YAML file, or - for standard input; SLUICE_CONFIG, unless given',
  })
}

/** The options of the commands that read a configuration, of which flags may say another thing; `idle` ones do nothing there. */
function configured(command: Argv, idle: readonly string[] = []): Argv {
  withConfig(command)
  for (const [name, { describe }] of Object.entries(FLAGS)) {
    command.option(name, {
      type: 'string',
      requiresArg: true,
      describe,
      hidden: idle.includes(name),
      group: 'In place of what the file says:',
    })
  }
  return command.conflicts('store', 'redis')
}

function started(command: Argv): Argv {
  return configured(command).option('workers', {
    type: 'string',
    requiresArg: true,
    default: '1',
    describe: 'processes that share the port and the limits, which must be in Redis',
  })
}

function ofClient(command: Argv): Argv {
  // Taken as `start` takes them, so that both can be called alike.
  return configured(command, ['host', 'port', 'log-level', 'log-format'])
    .positional('client', {
      type: 'string',
      describe: 'the id of the client, as its tokens name it; id@issuer where that is not the first',
    })
    .option('json', { type: 'boolean', describe: 'as JSON' })
}

function limited(command: Argv): Argv {
  return command
    .command('show [client]', 'what the client has used of each limit', ofClient, showLimits)
    .command('reset [client]', 'free all that is counted of the client', ofClient, resetLimits)
    .demandCommand(1, 1, WHICH_OF_LIMITS)
}

/** Takes what stands freely as it is: of positionals, yargs would lose `-` and all but the last. */
function withWords(command: Argv, missing: string): Argv {
  return withConfig(command).strict(false).strictOptions().demandCommand(1, missing)
}

function explained(command: Argv): Argv {
  const option = (name: string, describe: string) =>
    command.option(name, { type: 'string', requiresArg: true, describe })
  withWords(command, 'Which request? Write "[METHOD] [host]/path", such as "POST /v3/sync/abc".').usage(
    '$0 explain "[METHOD] [host]/path"\n\nSay which route, authentication, limits and upstream a request gets, and why.',
  )
  option('host', 'the host that the caller addresses')
  option('client', 'the id of the client that calls')
  option('user', 'the user for whom it calls, as `sub` of its token')
  option('ip', 'the address from which it calls')
  option('at', 'when it calls, such as 2027-01-31T00:00:00Z; now, unless given')
  return command.option('json', { type: 'boolean', describe: 'as JSON' })
}

function replayed(command: Argv): Argv {
  return withWords(command, 'Which access log? Give its files, or - for standard input.')
    .usage(
      '$0 replay ACCESS-LOG...\n\nSay what limits would have done to the calls of an access log: files, plain or gzip, or - for standard input.',
    )
    .option('top', {
      type: 'string',
      requiresArg: true,
      default: '50',
      describe: 'most clients that are listed, those with the most refused first',
    })
    .option('client', { type: 'string', requiresArg: true, describe: 'the id of the one client to tell of' })
    .option('json', { type: 'boolean', describe: 'as JSON' })
}

function sandboxed(command: Argv): Argv {
  const option = (name: string, otherwise: string, describe: string) =>
    command.option(name, { type: 'string', requiresArg: true, default: otherwise, describe })
  option('port', '8080', 'port of the gateway; 0 takes a free one, here as below')
  option('admin-port', '9090', 'port of its admin listener')
  option('identity-port', '0', 'port of the OpenID Provider')
  option('data-port', '0', 'port of the Data API')
  return option('limit', '1000', 'calls that a client may make in a minute')
}

const commandLine = yargs(hideBin(process.argv))
  .scriptName('sluice')
  .locale('en')
  .usage(
    '$0 <command>\n\nA rate-limiting gateway: authenticates callers, holds them to their limits, forwards the rest.',
  )
  .parserConfiguration({
    'duplicate-arguments-array': false,
    'boolean-negation': false,
    'parse-positional-numbers': false,
  })
  .command('start', 'serve', started, start)
  .command('worker', false, (command) => command, work)
  .command(
    'check',
    'say what a configuration means, or list all its mistakes',
    (command) => configured(command).option('json', { type: 'boolean', describe: 'as JSON' }),
    check,
  )
  .command('explain', 'say what a request gets, and why', explained, explain)
  .command('limits', 'read or reset what Redis counts of one client', limited)
  .command('replay', 'say what limits would have done to the calls of an access log', replayed, replay)
  .command(
    'sandbox',
    'serve with an OpenID Provider and a Data API behind, to try it out',
    sandboxed,
    sandbox,
  )
  .example('$0 start --config config/sluice.yaml', 'serve')
  .example('$0 check --config config/sluice.yaml', 'which routes and limits are in effect?')
  .example('$0 start --config sluice.yaml --port 80 --redis redis://10.0.0.7', 'flags beat the file')
  .example('$0 explain "POST /v3/sync/abc" --client acme', 'which route and limits does this get?')
  .example('$0 limits show acme --config config/sluice.yaml', 'how much has this client used?')
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
    throw new UsageError(likely(message) ?? error?.message)
  })

// A reader that leaves early, such as `head`, is no failure.
process.stdout.on('error', () => process.exit(0))

try {
  await commandLine.parseAsync()
} catch (error) {
  fail(error)
}
