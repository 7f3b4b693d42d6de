import { execFileSync } from 'node:child_process'
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { loadConfig, type LoadOptions } from '../../src/config/load.ts'
import { ConfigError, problemLine } from '../../src/config/yaml/issue.ts'
import { createFolder } from '../helpers/folder.ts'
import { BESIDE, completed } from './load-text.ts'

let folder: string
beforeEach(() => {
  folder = createFolder()
})

function write(name: string, text: string): void {
  mkdirSync(dirname(join(folder, name)), { recursive: true })
  writeFileSync(join(folder, name), text)
}
const PAYMENTS = `prefix: /payments
upstreams:
  data: { url: http://payments.internal:4000 }
limits:
  requests: { per: [client], limit: 5, window: 1m }
parameters: { id: uuid }
routes:
  - { match: "GET /payments/:id", upstream: data, authenticate: bearer, limits: [requests], cost: { requests: 2 } }
`
const ACCOUNTS = `prefix: /accounts
parameters: { id: integer }
limits:
  each: { per: [client, id], limit: 5, window: 1m }
routes:
  - { match: "/accounts/:id", upstream: data, authenticate: bearer, limits: [requests, each] }
`
const MAIN = completed('include: teams/*.yaml')

/** Loads the main file, and those of teams by their names. */
async function load(teams: Readonly<Record<string, string>>, main = MAIN, more: Partial<LoadOptions> = {}) {
  write('sluice.yaml', main)
  for (const [name, text] of Object.entries(teams)) write(`teams/${name}.yaml`, text)
  return await loadConfig({ file: join(folder, 'sluice.yaml'), env: {}, ...more })
}
async function mistakes(...given: Parameters<typeof load>): Promise<readonly string[]> {
  try {
    await load(...given)
    return []
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    return error.message.replaceAll(`${folder}/`, '').split('\n')
  }
}

describe('included files', () => {
  it('have their own limits, upstreams and kinds of parameters, and may use those of the main file', async () => {
    const { config } = await load({ payments: PAYMENTS, accounts: ACCOUNTS })
    const own = config.routes.filter(({ team }) => team !== undefined)
    expect(own.map(({ match, team, upstream }) => [match, team, upstream])).toEqual([
      ['/accounts/:id', 'accounts', 'data'],
      ['GET /payments/:id', 'payments', 'payments/data'],
    ])
    expect(own.map(({ limits }) => limits.map(({ name }) => name))).toEqual([
      ['requests', 'accounts/each'],
      ['payments/requests'],
    ])
    expect(own.map(({ parameters }) => parameters)).toEqual([
      { id: { kind: 'integer', secret: false } },
      { id: { kind: 'uuid', secret: false } },
    ])
    expect(own[1]!.limits[0]).toMatchObject({ cost: 2, limit: 5 })
    expect(config.teams.map(({ name, match, state }) => [name, match, state])).toEqual([
      ['accounts', '/accounts/*', 'valid'],
      ['payments', '/payments/*', 'valid'],
    ])
  })

  it('have the secrets of the main file', async () => {
    const { config } = await load({ accounts: ACCOUNTS }, `${MAIN}parameters: { id: { secret: true } }\n`)
    expect(config.routes.at(-1)!.parameters).toEqual({ id: { kind: 'integer', secret: true } })
    expect(config.limits.at(-1)!.parameters).toEqual({ id: { kind: 'integer', secret: true } })
  })

  it('may be all that has routes', async () => {
    const main = MAIN.replace(/^routes:\n(?: .*\n)+/m, '')
    const { config } = await load({ payments: PAYMENTS }, main)
    expect(config.routes.map(({ match }) => match)).toEqual(['GET /payments/:id'])
    rmSync(join(folder, 'teams'), { recursive: true })
    expect(await mistakes({}, main)).toEqual([
      'sluice.yaml:1:10: include: matches no file, and the file has no "routes"; write one of them',
    ])
  })

  it('are found through the links of a mounted ConfigMap, once each, and in folders of one team each', async () => {
    write('teams/a/..1/payments.yaml', PAYMENTS)
    symlinkSync('..1', join(folder, 'teams/a/..data'))
    symlinkSync('..data/payments.yaml', join(folder, 'teams/a/payments.yaml'))
    write('teams/b/accounts.yaml', ACCOUNTS)
    write('teams/b/notes.txt', '')
    const { teams } = await load({}, completed('include: ["teams/?/*.yaml", teams/b/*.yaml]'))
    expect(teams.map(({ path }) => path)).toEqual(['teams/a/payments.yaml', 'teams/b/accounts.yaml'])
  })

  it('do not end because their folder cannot be read, unlike one that does not exist', async () => {
    // As root, a test can close no folder to itself.
    symlinkSync('teams', join(folder, 'teams'))
    for (const include of ['teams/*.yaml', '*/*/payments.yaml'])
      expect(await mistakes({}, completed(`include: "${include}"`))).toEqual([
        'sluice.yaml:1:10: include: matches files in teams, which cannot be read: ELOOP',
      ])
  })

  it('are warned of if a pattern matches none', async () => {
    const { config } = await load({}, completed('include: [teams/*.yaml]'))
    expect(config.warnings.map(({ path, message }) => `${path}: ${message}`)).toEqual([
      'include: matches no file: "teams/*.yaml"; write the files, or remove it',
    ])
  })

  const withTls = (tls: string): string =>
    PAYMENTS.replace('http://payments.internal:4000', `https://payments.internal:4000, tls: { ${tls} }`)

  it('read certificates in the folder of their team', async () => {
    expect(await mistakes({ payments: withTls('ca: payments/ca.pem') })).toEqual([
      `teams/payments.yaml:3:59: upstreams.data.tls.ca: names teams/payments/ca.pem, which does not exist`,
    ])
    write('teams/payments/ca.pem', BESIDE['cert.pem'])
    const { config } = await load({ payments: withTls('ca: ./payments/ca.pem') })
    expect(config.upstreams.at(-1)!.tls).toEqual({ ca: BESIDE['cert.pem'] })
  })

  it.for([
    'accounts/key.pem',
    '../key.pem',
    'payments/../accounts/key.pem',
    '/etc/key.pem',
    'payments2/key.pem',
  ])('cannot name a key of the gateway or of another team: %s', async (path) => {
    const text = withTls(`cert: payments/cert.pem, key: ${path}`)
    expect(await mistakes({ payments: text })).toEqual([
      expect.stringMatching(
        /^teams\/payments\.yaml:3:\d+: upstreams\.data\.tls\.key: must be in the folder "payments" beside this file, such as payments\/key\.pem$/,
      ),
    ])
  })

  it('cannot name them by a link, but links of a mounted Secret within the folder are followed', async () => {
    write('teams/accounts/key.pem', BESIDE['key.pem'])
    write('teams/payments/..1/cert.pem', BESIDE['cert.pem'])
    symlinkSync('..1', join(folder, 'teams/payments/..data'))
    symlinkSync('..data/cert.pem', join(folder, 'teams/payments/cert.pem'))
    symlinkSync('../accounts/key.pem', join(folder, 'teams/payments/key.pem'))
    const text = withTls('cert: payments/cert.pem, key: payments/key.pem')
    expect(await mistakes({ payments: text })).toEqual([
      expect.stringMatching(
        /tls\.key: names teams\/payments\/key\.pem, which is a link to a file outside teams\/payments; copy that file there$/,
      ),
    ])
  })

  it('cannot read variables of a team whose name begins with theirs', async () => {
    const text = PAYMENTS.replace('http://payments.internal', '"http://${PAYMENTS_EU_HOST}').replace(
      '4000',
      '4000"',
    )
    const env = { PAYMENTS_EU_HOST: 'eu.internal' }
    const { config, ...loaded } = await load({ payments: text }, MAIN, { env })
    expect(config.upstreams.at(-1)!.origins).toEqual(['http://eu.internal:4000'])
    const files = { payments: text, 'payments-eu': text.replaceAll('/payments', '/eu') }
    const refused =
      'teams/payments.yaml:3:16: upstreams.data.url: may not read the variable PAYMENTS_EU_HOST, which is that of the team "payments-eu"; rename it'
    expect(await mistakes(files, MAIN, { env })).toEqual([refused])
    const before = { ...loaded, upstreams: config.upstreams }
    const after = await load(files, MAIN, { env, before, isolate: true })
    expect(after.states).toEqual({ valid: 1, previous: 1, invalid: 0 })
    expect(await mistakes({ ...files, payments_eu: ACCOUNTS }, MAIN, { env })).toContainEqual(
      expect.stringContaining(
        'payments-eu.yaml:3:16: upstreams.data.url: may not read the variable PAYMENTS_EU_HOST',
      ),
    )
  })

  it('have names of routes that no other file can have', async () => {
    const named = (text: string) => text.replace('upstream: data,', 'upstream: data, name: list,')
    const { config } = await load({ payments: named(PAYMENTS), accounts: named(ACCOUNTS) })
    expect(config.routes.slice(-2).map(({ name }) => name)).toEqual(['accounts/list', 'payments/list'])
  })

  it('are warned of if they have an address of another team', async () => {
    const cards = ACCOUNTS.replaceAll('/accounts', '/cards').replace(
      'limits:',
      'upstreams: { data: { urls: ["http://cards.internal:4000", "http://PAYMENTS.internal:4000"] } }\nlimits:',
    )
    const { config } = await load({ payments: PAYMENTS, cards })
    const unless = "which is another team's; correct it unless both own that server"
    expect(config.warnings.map((warning) => problemLine(warning).replaceAll(`${folder}/`, ''))).toEqual([
      `teams/cards.yaml:3:14: upstreams.data: has an address of "payments/data", ${unless}`,
      `teams/payments.yaml:3:3: upstreams.data: has an address of "cards/data", ${unless}`,
    ])
    expect((await load({ payments: PAYMENTS, cards: ACCOUNTS })).config.warnings).toEqual([])
  })

  it('are mistakes if they are folders, or have a line feed in their names', async () => {
    mkdirSync(join(folder, 'teams/payments.yaml'), { recursive: true })
    write('teams/a\nb.yaml', PAYMENTS)
    expect(await mistakes({})).toEqual([
      'teams/a\ufffdb.yaml: has a line feed or another control character in its name; rename the file',
      'teams/payments.yaml: is a directory, not a file',
    ])
  })

  it('are mistakes, without further ones, if they or what they name is not a regular file', async () => {
    write('teams/accounts.yaml', ACCOUNTS)
    mkdirSync(join(folder, 'teams/payments'))
    execFileSync('mkfifo', [join(folder, 'teams/payments.yaml'), join(folder, 'teams/payments/pipe')])
    expect(await mistakes({})).toEqual(['teams/payments.yaml: is not a regular file; write the path of one'])
    rmSync(join(folder, 'teams/payments.yaml'))
    execFileSync('mkfifo', [join(folder, 'teams/payments/other')])
    const text = withTls('ca: payments/pipe, cert: payments/other, key: payments/other')
    const names = (await mistakes({ payments: text })).map((mistake) => mistake.replace(/^[^ ]+ /, ''))
    expect(names).toEqual([
      'upstreams.data.tls.ca: names teams/payments/pipe, which is not a regular file; write the path of one',
      'upstreams.data.tls.cert: names teams/payments/other, which is not a regular file; write the path of one',
      'upstreams.data.tls.key: names teams/payments/other, which is not a regular file; write the path of one',
    ])
  })

  it('have the host of the team in the names of their routes', async () => {
    const main = completed('include: teams/*.yaml\nlisten: { hosts: [pay.example.com, api.example.com] }')
    const text = PAYMENTS.replace('prefix: /payments', 'host: Pay.example.com')
    const { config } = await load({ payments: text }, main)
    expect(config.routes.at(-1)).toMatchObject({
      match: 'GET pay.example.com/payments/:id',
      host: 'pay.example.com',
    })
  })
})

describe('the hash of a configuration', () => {
  it('changes with each file, and is that of only the text without teams', async () => {
    const { hash } = await load({ payments: PAYMENTS })
    expect((await load({ payments: PAYMENTS })).hash).toBe(hash)
    expect((await load({ payments: PAYMENTS.replace('limit: 5', 'limit: 6') })).hash).not.toBe(hash)
  })
})

describe('changes', () => {
  it('name the file of a team', async () => {
    const before = await load({ payments: PAYMENTS, accounts: ACCOUNTS })
    rmSync(join(folder, 'teams/accounts.yaml'))
    const teams = {
      payments: PAYMENTS.replace('limit: 5', 'limit: 6'),
      cards: ACCOUNTS.replaceAll('accounts', 'cards'),
    }
    expect(
      (await load(teams, MAIN, { before: { ...before, upstreams: before.config.upstreams } })).changes,
    ).toEqual([
      'teams/accounts.yaml removed',
      'teams/cards.yaml added',
      'teams/payments.yaml: limits.requests.limit 5 → 6',
    ])
  })
})

const WRONG: readonly (readonly [title: string, from: string, to: string, line: string])[] = [
  [
    'an unknown key',
    'window: 1m',
    'windw: 1m',
    '5:40: limits.requests.windw: unknown key; did you mean "window"?',
  ],
  [
    'a route elsewhere',
    '/payments/:id',
    '/accounts/:id',
    '8:14: routes[0].match: is not below "/payments", which this file owns; correct it',
  ],
  [
    'a route that only begins alike',
    '/payments/:id',
    '/payments-2/:id',
    '8:14: routes[0].match: is not below "/payments", which this file owns; correct it',
  ],
  [
    'a route that a parameter leads elsewhere',
    '/payments/:id',
    '/:any/:id',
    '8:14: routes[0].match: is not below "/payments", which this file owns; correct it',
  ],
  [
    'a path with dots',
    '/payments/:id',
    '/payments/../:id',
    '8:14: routes[0].match: is not a pattern: the segment ".." cannot match; write plain characters, ":name" or a last "*"',
  ],
  [
    'a path with escaped dots',
    '/payments/:id',
    '/payments/%2E%2E/:id',
    '8:14: routes[0].match: is not a pattern: the segment "%2E%2E" cannot match; write it as ".."',
  ],
  [
    'a host',
    'GET /payments/:id',
    'GET other.example.com/payments/:id',
    '8:14: routes[0].match: is a route for the host "other.example.com", but this file owns no host; remove the host',
  ],
  [
    'no claim',
    'prefix: /payments\n',
    '',
    '1:1: prefix: is missing; write the path below which the team has its routes, or its "host"',
  ],
  [
    'every path',
    'prefix: /payments',
    'prefix: /',
    '1:9: prefix: takes every path; write a prefix such as /payments',
  ],
  [
    'a prefix with a parameter',
    'prefix: /payments',
    'prefix: /:tenant',
    '1:9: prefix: must be plain segments, without ":name" and "*"',
  ],
  [
    'a host that is not listed',
    'prefix: /payments',
    'host: pay.example.com',
    '1:7: host: is not one of "listen.hosts" of the main file; list it there',
  ],
  [
    'a key of the main file',
    'prefix: /payments',
    'prefix: /payments\nadmin: { port: 1 }',
    '2:1: admin: belongs in the main file; a team cannot set it',
  ],
  [
    'the store',
    'prefix: /payments',
    'prefix: /payments\nstore: memory',
    '2:1: store: belongs in the main file; a team cannot set it',
  ],
  [
    'an undefined limit',
    'limits: [requests]',
    'limits: [request]',
    '8:82: routes[0].limits[0]: there is no such limit; did you mean "requests"?',
  ],
  [
    'an upstream of another team',
    'upstream: data',
    'upstream: accounts/data',
    '8:45: routes[0].upstream: there is no such upstream; define it under "upstreams"',
  ],
  [
    'a Unix socket of the machine',
    'http://payments.internal:4000',
    'unix:/run/redis.sock',
    '3:9: upstreams.data: has a Unix socket of the gateway’s machine, which a team may not name; define the upstream in the main file',
  ],
  [
    'a limit of another team',
    'limits: [requests]',
    'limits: [accounts/each]',
    '8:82: routes[0].limits[0]: there is no such limit; define it under "limits"',
  ],
  [
    'a share of a limit of the main file',
    'limit: 5, window: 1m',
    'limit: 5, window: 1m, counts: sync',
    '5:60: limits.requests.counts: there is no such limit; define it under "limits"',
  ],
  [
    'an endpoint of identity',
    '"GET /payments/:id", upstream: data, authenticate: bearer, limits: [requests], cost: { requests: 2 }',
    '"POST /payments/:id", upstream: data, authenticate: par',
    '8:66: routes[0].authenticate: must be none or bearer: the endpoints of identity belong in the main file',
  ],
  [
    'a secret',
    'parameters: { id: uuid }',
    'parameters: { id: { secret: true } }',
    '6:19: parameters.id: can be a secret only in the main file, for all files; write it there',
  ],
  [
    'an unused kind',
    'parameters: { id: uuid }',
    'parameters: { id: uuid, other: uuid }',
    '6:25: parameters.other: no path and no "per" has it; correct it, or remove it',
  ],
  [
    'a route that another precedes',
    'routes:\n',
    'routes:\n  - { match: "/payments/*", upstream: data, authenticate: none }\n',
    '9:14: routes[1].match: never matches: its requests match "/payments/*" (routes[0]) before; put it first or remove it',
  ],
  [
    'a variable of the gateway',
    'http://payments.internal:4000',
    '"http://${ADMIN_TOKEN}.example.com"',
    '3:16: upstreams.data.url: may not read the variable ADMIN_TOKEN; those of this file begin with PAYMENTS_',
  ],
  ['text that is not YAML', 'limits:', 'limits: {', '6:1: '],
]

describe('mistakes in included files', () => {
  it.for(WRONG)('are shown at their place: %s', async ([, from, to, line]) => {
    expect(PAYMENTS).toContain(from)
    const found = await mistakes({ payments: PAYMENTS.replace(from, to) }, MAIN, {
      env: { ADMIN_TOKEN: 'x' },
    })
    expect(found[0]).toContain(`teams/payments.yaml:${line}`)
  })

  it('are shown of all files at once, first those of the main file', async () => {
    const teams = {
      payments: PAYMENTS.replace('window', 'windw'),
      accounts: ACCOUNTS.replace('window', 'windw'),
    }
    const found = await mistakes(teams)
    expect(found.map((line) => line.slice(0, line.indexOf(': ')))).toEqual(
      ['teams/accounts.yaml:4:49', 'teams/payments.yaml:5:39'].map(
        (place) => expect.stringContaining(place.replace(/:\d+$/, '')) as string,
      ),
    )
    expect(await mistakes(teams, MAIN.replace('memory', 'memry'))).toEqual([
      expect.stringMatching(/^sluice\.yaml:/),
    ])
  })

  it('name both places of claims that overlap, in each file', async () => {
    const cards = ACCOUNTS.replaceAll('/accounts', '/Payments/cards')
    expect(await mistakes({ payments: PAYMENTS, cards })).toEqual([
      expect.stringContaining('teams/cards.yaml:1:9: prefix: overlaps with "/payments/*", which '),
      expect.stringContaining('teams/payments.yaml:1:9: prefix: overlaps with "/Payments/cards/*", which '),
    ])
  })

  it('are two files of the same name, and a name that is none', async () => {
    write('teams/more/payments.yaml', ACCOUNTS)
    const main = completed('include: [teams/*.yaml, teams/more/*.yaml]')
    expect(
      await mistakes({ payments: PAYMENTS, Cards: ACCOUNTS.replaceAll('accounts', 'cards') }, main),
    ).toEqual([
      expect.stringContaining('teams/Cards.yaml: the file gives the team its name, and "Cards" is not one'),
      expect.stringContaining('teams/more/payments.yaml:1:1: the team "payments" has another file, '),
      expect.stringContaining('teams/payments.yaml:1:1: the team "payments" has another file, '),
    ])
  })

  it('are claims of what routes of the main file have for themselves', async () => {
    const main = MAIN.replace(
      'routes:\n',
      'routes:\n  - { match: "POST /payments/login", upstream: data, authenticate: none }\n',
    )
    expect(await mistakes({ payments: PAYMENTS }, main)).toEqual([
      'teams/payments.yaml:1:9: prefix: takes the route "POST /payments/login" of the main file; write another, or remove that route',
    ])
  })

  it('are spellings of a field that differ between files', async () => {
    const by = (field: string) => PAYMENTS.replace('per: [client]', `per: ["header:${field}"]`)
    const other = by('X_Team').replaceAll('/payments', '/others')
    expect(await mistakes({ payments: by('X-Team'), others: other })).toEqual([
      expect.stringContaining(
        'teams/payments.yaml:5:3: limits.requests: names x-team, another spelling of x_team',
      ),
    ])
  })

  it('are patterns that mean nothing', async () => {
    for (const glob of ['/etc/*.yaml', 'teams/**/*.yaml', 'teams/'])
      expect(await mistakes({}, completed(`include: ${glob}`))).toHaveLength(1)
  })
})
