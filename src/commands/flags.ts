import type { ArgumentsCamelCase, Argv } from 'yargs'
import { KINDS, LOG_FORMATS, LOG_LEVELS, PROVIDERS } from './choices.ts'

/** The further words of commands. */
export const ACTIONS: Readonly<Record<string, readonly string[]>> = {
  limits: ['show', 'set', 'reset', 'overrides', 'top'],
  keys: ['create', 'list', 'revoke', 'set'],
}

const text = (describe: string, fallback?: string, choices?: readonly string[]) =>
  ({ type: 'string', requiresArg: true, describe, default: fallback, choices }) as const
const yes = (describe: string) => ({ type: 'boolean', describe }) as const

/** The flags that override the file, each with the path of the key that it sets. */
export const OVERRIDES = {
  host: override('listen.host', 'address that callers connect to'),
  port: override('listen.port', 'port that callers connect to; 0 picks a free port'),
  'admin-host': override('admin.host', 'address of the admin listener'),
  'admin-port': override('admin.port', 'port of the admin listener'),
  store: { ...override('store', 'memory counts in this process', ['memory']), conflicts: 'redis' },
  redis: override('store.redis.url', 'URL of Redis, with its credentials; replaces store.redis'),
  keep: override('configuration.keep', 'file that keeps the last valid configuration'),
  'log-level': override('log.level', 'lowest level that is logged', LOG_LEVELS),
  'log-format': override('log.format', 'pretty is for people', ['json', 'pretty']),
}

function override(path: string, describe: string, choices?: readonly string[]) {
  return { ...text(describe, undefined, choices), group: 'Override the file:', path }
}

const JSON_FLAG = { json: yes('as JSON') }
const CONFIG_FLAG = {
  config: {
    ...text('the YAML file, or - for standard input; else SLUICE_CONFIG, then ./sluice.yaml'),
    alias: 'c',
  },
}
const OUTPUT = 'file to write, or - for standard output'
const GATEWAY_FLAGS = {
  ...CONFIG_FLAG,
  ...JSON_FLAG,
  admin: text('URL of the admin listener, overrides the file; your token is read from ADMIN_TOKEN'),
  'admin-host': text(OVERRIDES['admin-host'].describe),
  'admin-port': text(OVERRIDES['admin-port'].describe),
  ca: text('PEM file with the authorities of an https admin listener; else ADMIN_CA'),
  cert: text('PEM file with your client certificate for it, instead of a token; else ADMIN_CERT'),
  key: text('PEM file with the key of that certificate; else ADMIN_KEY'),
}
export const startFlags = {
  ...CONFIG_FLAG,
  ...OVERRIDES,
  workers: text('worker processes; more than one requires Redis; auto: one per usable core', '1'),
}

export const initFlags = {
  for: text('limit by token (open-banking), address (api) or key (api-keys)', undefined, KINDS),
  identity: text('URL of the identity backend without a path, if it is behind the gateway'),
  data: text('URL of the API without a path, such as http://data.internal:4000'),
  provider: text(
    'the identity provider, whose access tokens are accepted; other, unless given',
    undefined,
    PROVIDERS,
  ),
  issuer: text('the issuer of the access tokens, exactly as in iss'),
  audience: text('the audience of the access tokens, such as the URL of the API'),
  api: text('URL at which callers reach the API; by default the audience, if that is a URL'),
  open: text('requests to the API that need no token, such as "GET /v3/status; GET /v3/terms"'),
  redis: text('URL of the Redis that counts, or memory; redis://127.0.0.1:6379, unless given'),
  output: text(OUTPUT, 'sluice.yaml'),
  ...JSON_FLAG,
  force: yes('overwrite the file'),
}

export const schemaFlags = {
  ...JSON_FLAG,
  team: yes('of the file of a team, which "include" names'),
  output: text(OUTPUT, '-'),
}

const OFFLINE = yes(
  'where the gateway does not run: accept variables that are not set, and files that are not here',
)

export const checkFlags = {
  ...CONFIG_FLAG,
  ...OVERRIDES,
  ...JSON_FLAG,
  offline: { ...OFFLINE, conflicts: 'connect' },
  connect: yes('also try servers and certificates; exit code 1 if one fails'),
  against: { ...text('another file; prints the differences from it'), conflicts: 'connect' },
  outage: { ...yes('what callers get while Redis is out of reach'), conflicts: ['connect', 'against'] },
  gateways: text('with --outage: the number of gateways; else store.instances'),
}

export const healthFlags = { ...GATEWAY_FLAGS, ready: yes('also ask whether it is ready: /readyz') }

export function limitsFlags(command: Argv, run: (args: ArgumentsCamelCase) => void): Argv {
  const topFlags = { ...GATEWAY_FLAGS, once: yes('show them once, as without a terminal') }
  return command
    .command('show', 'Show what a caller has used, and its overrides', ofCaller('show'), run)
    .command('set', "Set a caller's limits while the gateways run", setting, run)
    .command('reset', "Reset a caller's counters", ofCaller('reset'), run)
    .command('overrides', 'List the limits that were set while the gateways run', GATEWAY_FLAGS, run)
    .command('top', 'Watch which callers use most of their limits', topFlags, run)
    .demandCommand(1, 'Which command?')
}

export function keysFlags(command: Argv, run: (args: ArgumentsCamelCase) => void): Argv {
  const fileFlags = {
    ...CONFIG_FLAG,
    ...JSON_FLAG,
    file: text('the file with the hashes of the keys; else keys.file of the configuration'),
  }
  const plan = text('the plan of the client, for all its keys; none removes it')
  const stdin = yes('read a key from standard input: one that the client already has')
  const short = yes('with --stdin: add also a key of less than 20 characters, which can be found by its hash')
  const until = text('when the key ends, such as 2027-01-31T00:00:00Z, or 30d from now; else never')
  const key = text('the key, by the first digits of its SHA-256, as "keys list" shows it')
  const all = { ...yes('revoke all keys of the client'), conflicts: ['key', 'stdin'] }
  const of = (usage: string, describe: string, options: object) => (one: Argv) =>
    withWords(one, `keys ${usage}`, describe).options({ ...fileFlags, ...options })
  const created = 'Prints a new key once, and adds its SHA-256 to the file.'
  return command
    .command(
      'create',
      'Create a key of a client',
      of('create ID', created, { plan, until, stdin, 'allow-short': short }),
      run,
    )
    .command('list', 'List the keys', of('list [ID]', 'Lists the keys, by their SHA-256.', {}), run)
    .command(
      'revoke',
      'Revoke a key',
      of('revoke (ID | --stdin)', 'Revokes a key.', { key, all, stdin }),
      run,
    )
    .command('set', 'Set the plan of a client', of('set ID --plan PLAN', 'Sets the plan.', { plan }), run)
    .demandCommand(1, 'Which command?')
}

/** Accepts any words after the command: of declared positionals, yargs would drop `-` and all but the last. */
export const withWords = (command: Argv, usage: string, describe: string): Argv =>
  command.strictCommands(false).usage(`$0 ${usage}\n\n${describe}`)

const CALLER = `CALLER: a client id (id@issuer unless its issuer is the first), or some of user:SUB
ip:192.0.2.7 header:x-api-key=VALUE claim:NAME=VALUE token:SHA256 (of a JWT without its signature)`

const ofCaller = (name: string) => (command: Argv) =>
  withWords(command, `limits ${name} CALLER`, CALLER).options(GATEWAY_FLAGS)

const setting = (command: Argv): Argv =>
  withWords(command, 'limits set CALLER LIMIT=N...', CALLER)
    .example('$0 limits set acme requests=5000 --until 2h', 'more calls for two hours')
    .example('$0 limits set acme requests=0 --note "leaked token"', 'block a client for a day')
    .example('$0 limits set acme requests=default', 'back to the limit of the file')
    .options({
      ...GATEWAY_FLAGS,
      until: text('such as 2027-01-31T00:00:00Z, or 2h from now; by default 24h'),
      note: text('the reason, for other operators'),
      permanent: { ...yes('without an end'), conflicts: 'until' },
    })

/** The flags about a request, or a running gateway, which `explain` of a token or a past call does not ask. */
const OF_REQUESTS = ['admin', 'admin-host', 'admin-port', 'ca', 'cert', 'key'].concat([
  'host',
  'client',
  'user',
  'ip',
  'headers',
  'claims',
  'at',
])

export const explainFlags = {
  ...GATEWAY_FLAGS,
  token: {
    ...text(
      'instead of a request: file with an access token, or - for standard input; says if it is accepted',
    ),
    conflicts: OF_REQUESTS,
  },
  'request-id': {
    ...text('instead of a request: the id of a past one, which is explained from access logs'),
    conflicts: [...OF_REQUESTS, 'token', 'offline'],
  },
  host: text('the host of the request'),
  client: text('the id of the calling client'),
  user: text('the user, as `sub` of the token'),
  ip: text('the IP address of the caller'),
  headers: text('header fields of the request, such as {"psu-ip-address":"192.0.2.7"}'),
  claims: text('claims of the token, such as {"plan":"gold"}'),
  offline: yes('use only the file, without asking a gateway; with --token, without asking its issuer'),
  at: text('time of the call, such as 2027-01-31T00:00:00Z; by default now'),
}

export const replayFlags = {
  ...CONFIG_FLAG,
  ...JSON_FLAG,
  offline: OFFLINE,
  top: text('maximum number of listed clients; the most refused come first', '50'),
  client: text('the id of a client to report on, instead of all clients'),
  plan: text(
    'CLIENT=PLAN: what would this plan do to this client? May be repeated; none means without a plan',
  ),
  format: text('format of the logs; auto recognises it by the first lines', 'auto', LOG_FORMATS),
}

export const sandboxFlags = {
  host: text('address or name at which callers connect; 0.0.0.0 for every address', '127.0.0.1'),
  port: text('port of the gateway; for every port, 0 picks a free port', '8080'),
  'admin-port': text('port of its admin listener', '9090'),
  'identity-port': text('port of the OpenID Provider', '0'),
  'data-port': text('port of the Data API', '0'),
  'log-level': text('info also logs each request', 'warn', LOG_LEVELS),
  limit: text('calls that a client may make in a minute', '1000'),
  load: yes('also send calls of four clients; some are refused'),
  gateways: text('URLs of running gateways, separated by ","; serve only their backends, on --host'),
}
