import { hostname, userInfo } from 'node:os'
import { afterEach, describe, expect, it } from 'vitest'
import { createKeyText, hashOfKey } from '../../src/authenticate/key/key-text.ts'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { fileOf, itEndsWrongUsage, sluice } from './run.ts'

const TOKEN = 'an-operator-s-token'
const env = { ADMIN_TOKEN: TOKEN }
const END = '2100-01-01T00:00:00.000Z'
const ME = `${userInfo().username}@${hostname()}`
const INSTANT = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g
const shortened = (text: string): string => text.replaceAll(INSTANT, (at) => (at === END ? 'END' : 'NOW'))

const LIMITS = {
  requests: {
    per: ['client'],
    limit: 10,
    window: '10m',
    changes: [{ announced: '2026-01-01T00:00:00Z', from: '2100-01-01T00:00:00Z', limit: 20 }],
  },
  sync: { per: ['client', 'connection'], limit: 1, window: '1500s' },
  trial: { per: ['client'], limit: 5, window: '10m', shadow: true },
  address: { per: ['ip'], limit: 500, window: '10m' },
}
const ROUTES = [
  {
    match: 'POST /sync/:connection',
    upstream: 'data',
    authenticate: 'bearer',
    limits: ['requests', 'sync', 'trial', 'address'],
  },
]
const CLIENTS = {
  clients: [{ id: 'acme', limits: { requests: { limit: 50, until: '2100-01-01T00:00:00Z' } } }],
}

const upstream = await startUpstream()
const redis = await startRedis({ password: 'hunter2' })
const settings = (store: object | 'memory', admin: object = { port: 0, token: TOKEN }) => ({
  ...{ data: upstream.url, store, limits: LIMITS, routes: ROUTES, more: CLIENTS, admin },
})
const gateway = await startGateway(settings({ redis: { url: redis.url, password: 'hunter2' } }))
const url = `http://127.0.0.1:${gateway.adminPort}`

/** Runs `limits` with only the address and the token of the gateway. */
const limits = (...args: string[]) => sluice(['limits', ...args, '--admin', url], { env })
const set = (...args: string[]) => limits('set', ...args)

describe('sluice limits show and reset', () => {
  it('print the counters of a caller as a table and as JSON, then free only these', async () => {
    for (const [client, connection] of [
      ['acme', 'x'],
      ['acme', 'y'],
      ['other', 'x'],
    ] as const) {
      const got = await call(gateway.port, {
        ...{ method: 'POST', path: `/sync/${connection}`, token: await token(client) },
      })
      expect(got.status).toBe(200)
    }
    const shown = await limits('show', 'acme')
    expect(shown).toMatchObject({ code: 0, stderr: '' })
    expect(shortened(shown.stdout).split(/ *\n/)).toEqual([
      expect.stringMatching(/^KEY +LIMIT +CALLS +USED +REMAINING +WINDOW +RESET +UNTIL +KIND$/),
      expect.stringMatching(/^sluice:\{acme\}:requests +requests +50 +2 +48 +10m +NOW +END +live$/),
      expect.stringMatching(/^sluice:\{acme\}:trial +trial +5 +2 +3 +10m +NOW +- +shadow$/),
      expect.stringMatching(/^sluice:\{acme\}:sync:x +sync +1 +1 +0 +25m +NOW +- +live$/),
      expect.stringMatching(/^sluice:\{acme\}:sync:y +sync +1 +1 +0 +25m +NOW +- +live$/),
      '',
      'From END on, "requests" allows 20.',
      'The file gives the client its own "requests" of 50 until END.',
      '',
    ])
    const json = JSON.parse((await limits('show', 'acme', '--json')).stdout) as unknown
    expect(json).toMatchObject({
      caller: 'client:acme',
      truncated: false,
      limits: [{ key: 'sluice:{acme}:requests', limit: 50, remaining: 48, until: END }, {}, {}, {}],
    })

    expect(await limits('reset', 'acme')).toEqual({
      code: 0,
      stdout: 'Freed 4 keys of client:acme. Recorded as "admin.token".\n',
      stderr: '',
    })
    const again = await limits('reset', 'acme', '--json')
    expect(JSON.parse(again.stdout)).toEqual({
      ...{ caller: 'client:acme', freed: 0, keepsPlaces: false, by: 'admin.token' },
    })
    const other = await limits('show', 'other', '--json')
    expect(JSON.parse(other.stdout)).toMatchObject({ limits: [{ limit: 10, remaining: 9 }, {}, {}] })
  })
})

describe('sluice limits set and overrides', () => {
  afterEach(async () => {
    const { overrides } = JSON.parse((await limits('overrides', '--json')).stdout)
    for (const { caller, name } of overrides) await set(caller, `${name}=default`)
  })

  it('override the file and its announced changes, print what they replace, and record who set them and why', async () => {
    const done = await set('acme', 'requests=5', 'trial=9', '--until', END, '--note', 'leaked "token"')
    expect(done).toMatchObject({ code: 0, stderr: '' })
    const override = `an override, until END, set at NOW by admin.token: leaked "token" (sent as ${ME})`
    expect(shortened(done.stdout).split('\n')).toEqual([
      `Set "requests" of client:acme to 5: ${override}. It replaces 50: the client's own limit of the file, until END.`,
      `Set "trial" of client:acme to 9: ${override}. It replaces 5: the limit of the file.`,
      'Every running gateway applies this within a second.',
      '',
    ])
    const got = await call(gateway.port, { method: 'POST', path: '/sync/z', token: await token('acme') })
    expect(got.headers['x-ratelimit-limit']).toBe('5')
    const listed = await limits('overrides')
    expect(shortened(listed.stdout).split(/ *\n/)).toEqual([
      expect.stringMatching(/^CALLER +LIMIT +CALLS +UNTIL +SET +BY +NOTE$/),
      expect.stringMatching(
        /^client:acme +requests +5 +END +NOW +admin\.token +leaked "token" \(sent as \S+@\S+\)$/,
      ),
      expect.stringMatching(
        /^client:acme +trial +9 +END +NOW +admin\.token +leaked "token" \(sent as \S+@\S+\)$/,
      ),
      '',
    ])
    const shown = await limits('show', 'acme')
    expect(shown.stdout).toMatch(/^sluice:\{acme\}:requests +requests +5 +.* live, override$/m)
    expect(shortened(shown.stdout)).toMatch(
      /^client:acme +requests +5 +END +NOW +admin\.token +leaked "token" \(sent as \S+@\S+\)$/m,
    )
    const ended = await set('acme', 'requests=default', 'sync=default')
    expect(shortened(ended.stdout)).toBe(
      `Set "requests" of client:acme to 50: the client's own limit of the file, until END. It replaces 5: ${override}.
Set "sync" of client:acme to 1: the limit of the file. It replaces 1: the limit of the file.
Every running gateway applies this within a second.\n`,
    )
    await limits('reset', 'acme')
  })

  it('last a day, or with --permanent without an end', async () => {
    const before = Date.now()
    const dayOf = async (...more: string[]) => {
      await set('acme', 'sync=2', ...more)
      return JSON.parse((await limits('overrides', '--json')).stdout).overrides[0]
    }
    const { until, set: since } = await dayOf()
    expect(Date.parse(until) - Date.parse(since)).toBeGreaterThan(86_399_000)
    expect(Date.parse(until) - before).toBeLessThan(86_460_000)
    expect((await dayOf('--permanent')).until).toBeNull()
    const hours = await dayOf('--until', '2h')
    expect(Date.parse(hours.until) - Date.parse(hours.set)).toBeLessThan(7_200_001)
  })

  it('overrides are removed even if the file no longer has the limit', async () => {
    const kept = ['["acme","gone"]', '{"limit":7,"setAt":1}', 'version', '999999 other']
    await redis.command('HSET', 'sluice:{}:~overrides', ...kept)
    await until('it is read', async () => (await limits('overrides')).stdout.includes('gone'))
    expect((await limits('show', 'acme')).stdout).toMatch(
      /^client:acme +gone +7 +without effect: no such limit /m,
    )
    expect((await set('acme', 'gone=5')).code).toBe(64)
    expect((await set('acme', 'gone=default')).stdout).toContain(
      'Removed the override of "gone" of client:acme, a limit that the file does not have.\n',
    )
    expect((await limits('overrides')).stdout).not.toContain('gone')
  })

  it('keep the counted calls, also beyond the limit, and the console’s values of other callers', async () => {
    const callOf = async (client: string) =>
      await call(gateway.port, { method: 'POST', path: '/sync/w', token: await token(client) })
    const shownOf = async (client: string) => {
      const { json } = await call(gateway.adminPort, {
        path: '/overview',
        headers: { Authorization: `Bearer ${TOKEN}` },
      })
      return json.activity.callers.find((caller: { client: string }) => caller.client === client)
    }
    for (const connection of ['1', '2', '3'])
      await call(gateway.port, {
        ...{ method: 'POST', path: `/sync/${connection}`, token: await token('lowered') },
      })
    await callOf('refused')
    expect((await callOf('refused')).status).toBe(429)
    await set('lowered', 'requests=2')
    expect((await limits('show', 'lowered')).stdout).toMatch(/requests +2 +3 +0 +10m/)
    expect((await shownOf('refused')).refusedNow).toMatchObject({ limit: 'sync' })
  })

  it('show that a caller without calls is written right', async () => {
    const perConnection = { sync: { per: ['client', 'connection'], limit: 1, window: '5s' } }
    const routes = [{ match: '/:connection', upstream: 'data', authenticate: 'bearer', limits: ['sync'] }]
    const single = await startGateway({ data: upstream.url, limits: perConnection, routes })
    const ask = async (...args: string[]) =>
      (await sluice(['limits', ...args, '--admin', `http://127.0.0.1:${single.adminPort}`])).stdout
    expect(await ask('show', 'acme')).toBe(
      'No calls of client:acme are counted now. If it makes some, check its spelling.\n',
    )
    await ask('set', 'acme', 'sync=5')
    expect(await ask('show', 'acme')).toMatch(/^No calls of client:acme are counted now\.\n\nCALLER +LIMIT /)
  })

  it('do not doubt the spelling of a client of the files', async () => {
    const file = fileOf(`- { id: acme, sha256: "${'a'.repeat(64)}", plan: pro }\n`)
    const more = { keys: { file }, plans: { pro: { requests: 9 } }, clients: [{ id: 'globex' }] }
    const own = await startGateway({ data: upstream.url, more })
    const ask = (...args: string[]) =>
      sluice(['limits', ...args, '--admin', `http://127.0.0.1:${own.adminPort}`])
    for (const client of ['acme', 'globex']) {
      expect((await ask('show', client)).stdout).toContain(`No calls of client:${client} are counted now.\n`)
      expect((await ask('set', client, 'requests=5')).stderr).toBe('')
    }
    expect((await ask('show', 'acme')).stdout).toContain('The plan of client:acme is pro.')
    expect((await ask('show', 'amce')).stdout).toContain(
      'are counted now. If it makes some, check its spelling.',
    )
  })

  it('do not repeat an API key that is given in place of its client', async () => {
    const key = createKeyText()
    const ofKong = 'acme12345678'
    const file = fileOf(`- { id: acme, sha256: "${hashOfKey(ofKong)}" }\n`)
    const own = await startGateway({ data: upstream.url, more: { keys: { file } } })
    const admin = `http://127.0.0.1:${own.adminPort}`
    for (const caller of [key, `client:${key}`, ofKong]) {
      const { code, stdout, stderr } = await sluice(['limits', 'show', caller, '--admin', admin])
      expect([code, stdout]).toEqual([64, ''])
      expect(stderr).toContain('The caller is an API key; name its client instead')
      expect(stderr).not.toMatch(/slk_|acme1/)
    }
  })

  it('overrides are kept for a client whose id looks like an address', async () => {
    await set('client:192.0.2.7', 'requests=3')
    expect((await limits('overrides')).stdout).toMatch(/^client:192\.0\.2\.7 +requests +3 /m)
    expect((await limits('show', 'client:192.0.2.7')).stdout).toMatch(/ +requests +3 .* live, override$/m)
  })

  it('print as JSON the limits in force before and after', async () => {
    const { stdout } = await set('acme', 'requests=5', '--until', END, '--json')
    expect(JSON.parse(stdout)).toMatchObject({
      caller: 'client:acme',
      limits: [
        {
          name: 'requests',
          before: { limit: 50, decidedBy: 'client' },
          after: { limit: 5, decidedBy: 'override' },
        },
      ],
      seen: true,
    })
  })

  it('question an unknown caller', async () => {
    expect((await set(' acmee', 'requests=0')).stderr).toBe(
      'note: no calls of client: acmee are counted now, and it is not a client of the file; check its spelling\n',
    )
    expect((await set('acmee', 'requests=default')).stderr).toBe('')
    expect((await set('acme', 'requests=7')).stderr).toBe('')
    await call(gateway.port, { method: 'POST', path: '/sync/q', token: await token('caller') })
    expect((await set('caller', 'requests=0')).stderr).toBe('')
  })

  it.for([
    [['b'], 'Which limit? Write LIMIT=N with a whole number, such as requests=5000, or LIMIT=default.'],
    [
      ['b', 'requests'],
      '"requests" must be LIMIT=N with a whole number, such as requests=5000, or LIMIT=default.',
    ],
    ...['-1', '1.5', '', '1e3', '9007199254740992'].map((number) => [
      ['b', `requests=${number}`],
      `"requests=${number}" must be LIMIT=N with a whole number, such as requests=5000, or LIMIT=default.`,
    ]),
    [
      ['b', 'reqests=1'],
      'There is no limit "reqests" that counts by "client:b" first; those that can be set are: requests, sync, trial.',
    ],
    [
      ['b', 'nonsense=1'],
      'There is no limit "nonsense" that counts by "client:b" first; those that can be set are: requests, sync, trial.',
    ],
    ...['192.0.2.7', '2001:db8::7'].map((caller) => [
      [caller, 'requests=1'],
      `Which caller: ip:${caller}, or client:${caller}?`,
    ]),
    ...['IP:192.0.2.7', 'Header:x-api-key=abc', 'header:x-api-key'].map((caller) => [
      [caller, 'requests=1'],
      'Which caller: client:ID, ip:192.0.2.7, header:x-api-key=VALUE or token:SHA256?',
    ]),
    [
      ['b', 'address=1'],
      'There is no limit "address" that counts by "client:b" first; those that can be set are: requests, sync, trial.',
    ],
    [['a\nb', 'requests=1'], 'The caller must have 1 to 1024 characters, without control characters.'],
    [
      ['b', 'requests=1', '--note', 'x'.repeat(501)],
      '"note" must have 1 to 500 characters, without control characters.',
    ],
    [['b', 'requests=1', '--until', '2020-01-01T00:00:00Z'], '"until" has passed; give an instant to come.'],
    ...['tomorrow', '2100-01-01', '2', '0s', '4000d'].map((text) => [
      ['b', 'requests=1', '--until', text],
      '"until" must be an instant such as 2027-01-31T00:00:00Z, or null.',
    ]),
    ...[['--until', '2h'], ['--permanent'], ['--note', 'x']].map((more) => [
      ['b', 'requests=default', ...more],
      '--until, --permanent and --note need a number, not only "default".',
    ]),
  ] as [string[], string][])('exit with 64 for wrong usage: %j', async ([args, message]) => {
    expect(await set(...args)).toEqual({
      code: 64,
      stdout: '',
      stderr: `sluice: ${message}\nSee "sluice limits set --help".\n`,
    })
  })

  it('exit with 1 while the store is unavailable', async () => {
    redis.freeze()
    const ended = await set('b', 'requests=1')
    redis.thaw()
    expect(ended).toMatchObject({ code: 1, stdout: '' })
    expect(ended.stderr).toBe(
      `sluice: The gateway at ${url} cannot do this: The counters are unavailable. The change may not be in force; until Redis answers, write it to clients[].limits of the file.\n`,
    )
    await until('it answers again', async () => (await limits('show', 'acme')).code === 0)
  })

  it('limits set and overrides also work with counters in memory', async () => {
    const single = await startGateway(settings('memory', { port: 0 }))
    const ask = (...args: string[]) =>
      sluice(['limits', ...args, '--admin', `http://127.0.0.1:${single.adminPort}`])
    const { stdout } = await ask('set', 'acme', 'requests=0')
    expect(stdout).toMatch(/\nThis process keeps it until it exits\.\n$/)
    const got = await call(single.port, { method: 'POST', path: '/sync/z', token: await token('acme') })
    expect(got.status).toBe(429)
    expect((await ask('overrides')).stdout).toContain('acme')
  })
})

describe('sluice limits finds the gateway', () => {
  it('sluice limits finds the gateway by the admin section of a file that is otherwise invalid, with its token there or in a file', async () => {
    const secret = fileOf(`${TOKEN}\n`)
    for (const where of [TOKEN, `"file:${secret}"`]) {
      const file = fileOf(`admin: { port: ${gateway.adminPort}, token: ${where} }
store: { redis: { url: "redis://\${NOT_SET}" } }
`)
      expect(await sluice(['limits', 'show', 'acme', '--config', file])).toMatchObject({ code: 0 })
    }
    const wrong = fileOf(`admin: { port: ${gateway.adminPort}, token: "\${NOT_SET}" }`)
    expect((await sluice(['limits', 'show', 'acme', '--config', wrong])).stderr).toContain(
      'refuses the request: set ADMIN_TOKEN',
    )
    expect(await sluice(['limits', 'show', 'acme', '--config', wrong], { env })).toMatchObject({ code: 0 })
  })

  it('sluice limits finds the gateway by its flags', async () => {
    const args = ['limits', 'show', 'acme', '--admin-port', String(gateway.adminPort)]
    expect(await sluice(args, { env })).toMatchObject({ code: 0 })
  })
})

describe('sluice limits', () => {
  it('lists no flag without effect', async () => {
    const { stdout } = await sluice(['limits', 'show', '--help'])
    expect(stdout).toMatch(/^ +--admin .*$/m)
    expect(stdout).not.toMatch(/--(host|port|redis|store|log-level|log-format)\b/)
  })

  const PARTS = 'Further words must be parts such as user:SUB; quote an id with blanks.'
  itEndsWrongUsage([
    [['limits', 'shw', 'acme'], 'Unknown command; did you mean show?'],
    [['limits', 'show', 'client:acme', 'connection:7'], PARTS],
    [['limits', 'reset', 'acme', 'user-1'], PARTS],
    [['limits', 'show'], 'Which caller? Give a client id, or a caller such as ip:192.0.2.7.'],
    [['limits', 'set'], 'Which caller? Give a client id, or a caller such as ip:192.0.2.7.'],
    [['limits', 'show', ''], 'Which caller? Give a client id, or a caller such as ip:192.0.2.7.'],
    [['limits', 'reset'], 'Which caller? Give a client id, or a caller such as ip:192.0.2.7.'],
  ])
})
