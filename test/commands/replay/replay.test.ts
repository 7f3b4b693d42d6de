import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { describeReport } from '../../../src/commands/replay/replay.ts'
import { fileOf } from '../run.ts'
import { configFile, line, logFile, REFUSED, replayed, START, SYNC } from './logs.ts'

const TWO_IN_TEN_SECONDS = `  requests: { per: [client], limit: 2, window: 10s }\n${SYNC}`
const PLENTY = `  requests: { per: [client], limit: 100, window: 1m }\n${SYNC}`

describe('sluice replay decides', () => {
  it('leaves out the limits that read what the log does not contain, and names them', async () => {
    const limits = `  requests: { per: [client], limit: 1, window: 1m }
  claims: { per: [client, "claim:a"], limit: 0, window: 1m }
  value: { per: [client], limit: { claim: a, default: 0 }, window: 1m }
  fields: { per: [client], limit: 0, window: 1m, unless: { header: a, is: present } }
  tokens: { per: [token], limit: 0, window: 1m }
  accesses: { per: [client], limit: 0, window: 1m, together: token }
  posts: { per: [client, route], limit: 0, window: 1m, when: { method, is: POST } }`
    const names = 'requests, claims, value, fields, tokens, accesses, posts'
    const routes = `  - { match: "/*", upstream: data, authenticate: bearer, limits: [${names}] }`
    const lines = [line({ at: 0 }), line({ at: 1, method: 'POST' })]
    const report = await replayed(lines, configFile(limits, { routes }))
    expect(report.limits.map(({ name, unlogged, refused }) => [name, unlogged, refused])).toEqual([
      ['requests', undefined, 0],
      ['claims', 'claims', 0],
      ['value', 'claims', 0],
      ['fields', 'header fields', 0],
      ['tokens', 'tokens', 0],
      ['accesses', 'tokens', 0],
      ['posts', undefined, 1],
    ])
  })

  it('refuses exactly the calls whose window is full', async () => {
    // By hand: the calls at 0 and 1000 fill the window; the first expires before 10000, the second after 10500 and before 11000.
    const calls: [number, boolean][] = [
      [0, true],
      [1000, true],
      [2000, false],
      [9999, false],
      [10_000, true],
      [10_500, false],
      [11_000, true],
      [11_001, false],
      [40_000, true],
    ]
    const lines = calls.map(([at, admitted]) => line({ at, ...(!admitted && REFUSED) }))
    const report = await replayed(lines, configFile(TWO_IN_TEN_SECONDS))
    expect(report.totals).toEqual({
      clients: 1,
      calls: 9,
      admitted: 5,
      refused: 4,
      recorded: { admitted: 5, refused: 4, undecided: 0 },
      newlyRefused: 0,
      newlyAdmitted: 0,
    })
    expect(report.limits).toEqual([
      { name: 'requests', shadow: false, replayed: true, refused: 4, clients: 1, recordedRefused: 4 },
      { name: 'sync', shadow: false, replayed: true, refused: 0, clients: 0, recordedRefused: 0 },
    ])
    const lowered = await replayed(lines, configFile(TWO_IN_TEN_SECONDS.replace('limit: 2', 'limit: 1')))
    // Admits only 0, 10000 and 40000; the log admitted also 1000 and 11000.
    expect(lowered.totals).toMatchObject({ admitted: 3, refused: 6, newlyRefused: 2, newlyAdmitted: 0 })
    const raised = await replayed(lines, configFile(PLENTY))
    expect(raised.totals).toMatchObject({ admitted: 9, refused: 0, newlyRefused: 0, newlyAdmitted: 4 })
  })

  it('charges calls what their log says they used, when they ended, and the reserve of the file if it is unknown', async () => {
    const limits = `  tokens: { per: [client], limit: 100, window: 1m }
  volume: { per: [client], limit: 1000, window: 1m }`
    const cost =
      'cost: { tokens: { reserve: 40, actual: { json: usage.total_tokens } }, volume: { reserve: 1, actual: { bytes: both } } }'
    const routes = `  - { match: "/*", upstream: data, authenticate: bearer, limits: [tokens, volume], ${cost} }`
    const times = (count: number, call: object) => Array.from({ length: count }, () => call)
    const refusedOf = async (...calls: readonly object[]) => {
      const report = await replayed(
        calls.map((call, i) => line({ at: i * 1000, durationMs: 500, ...call })),
        configFile(limits, { routes }),
      )
      return report.totals.refused
    }
    const settled = { reserved: 40, settled: 10 }
    // 6 × 10 and a reserve of 40 are 100, then 70.
    expect(await refusedOf(...times(7, settled))).toBe(0)
    expect(await refusedOf(...times(8, settled))).toBe(1)
    // Each holds its reserve while it is in progress.
    expect(await refusedOf(...times(3, { ...settled, durationMs: 10_000 }))).toBe(1)
    // Unknown: two reserves of 40, also of calls that were logged before they were charged by that.
    expect(await refusedOf(...times(3, { reserved: 4, unsettled: 'the caller left' }))).toBe(1)
    expect(await refusedOf({}, {}, {})).toBe(1)
    // By limit; a number above the reserve is owed.
    const byLimit = { reserved: { tokens: 40, volume: 1 }, settled: { tokens: 10, volume: 3 } }
    expect(await refusedOf(...times(7, byLimit))).toBe(0)
    expect(await refusedOf({ reserved: 40, settled: { tokens: 101 } }, settled, settled)).toBe(2)
    // A value that is not a number of points is not read.
    expect(await refusedOf(...times(3, { settled: -1 }))).toBe(1)
    expect(await refusedOf(...times(3, { settled: { tokens: '1' } }))).toBe(1)
  })

  it('counts each client and each key separately, and names the refusing limit', async () => {
    const sync = { method: 'POST', path: '/sync/a', route: 'POST /sync/:connection' }
    const report = await replayed(
      [
        line({ at: 0, ...sync }),
        line({ at: 10, ...sync, path: '/sync/A' }),
        line({ at: 20, ...sync, path: '/sync/b' }),
        line({ at: 30, client: 'other' }),
        line({ at: 40 }),
        line({ at: 5010, ...sync }),
      ],
      configFile(PLENTY.replace('limit: 100', 'limit: 3')),
    )
    expect(report.clients).toMatchObject([
      { client: 'acme', calls: 5, admitted: 3, refused: 2, refusedBy: { sync: 1, requests: 1 } },
      { client: 'other', calls: 1, admitted: 1, refused: 0, refusedBy: {} },
    ])
  })

  it('skips calls whose path parameters are not of their kind', async () => {
    const sync = { method: 'POST', route: 'POST /sync/:connection' }
    const report = await replayed(
      ['/sync/1', '/sync/01', '/sync/a%', '/sync/2'].map((path, i) => line({ at: i, ...sync, path })),
      configFile(PLENTY, { more: 'parameters: { connection: integer }' }),
    )
    expect(report.lines).toMatchObject({ replayed: 2, malformed: 2 })
  })

  it('applies clients’ own limits, their ends and changes by the times of the calls', async () => {
    const limits = `  requests:
    per: [client]
    limit: 1
    window: 1s
    changes: [{ announced: 2026-11-19T00:00:00Z, from: 2026-11-20T10:01:00Z, limit: 3 }]
${SYNC}`
    const more = `clients:
  - { id: own, name: Own & Co, limits: { requests: { limit: 2, until: 2026-11-20T10:00:30Z } } }
  - { id: slow, limits: { requests: { limit: 1, window: 5s } } }`
    const burst = (client: string, from: number) =>
      [0, 1, 2, 3].map((n) => line({ at: from + n, client, lastsMs: 0 }))
    const lines = (client: string) =>
      [0, 40_000, 70_000].flatMap((from) => [...burst(client, from), ...burst(client, from + 2000)])
    const config = configFile(limits, { more })
    const admitted = async (client: string) => (await replayed(lines(client), config)).totals.admitted
    expect(await admitted('acme')).toBe(1 + 1 + 1 + 1 + 3 + 3)
    expect(await admitted('own')).toBe(2 + 2 + 1 + 1 + 3 + 3)
    expect(await admitted('slow')).toBe(3)
    expect((await replayed(lines('own'), config)).clients).toMatchObject([{ name: 'Own & Co' }])
  })

  it('applies the costs of the routes that the given configuration has', async () => {
    const routes = `  - { match: "/transactions", upstream: data, authenticate: bearer, limits: [requests], cost: 4 }
  - { match: "/free", upstream: data, authenticate: bearer, limits: [requests], cost: 0 }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }`
    const config = configFile(`  requests: { per: [client], limit: 10, window: 1m }`, { routes })
    const paths = ['/transactions', '/transactions', '/transactions', '/a', '/free', '/b', '/c']
    const report = await replayed(
      paths.map((path, i) => line({ at: i, path })),
      config,
    )
    expect(report.totals).toMatchObject({ calls: 6, admitted: 4, refused: 2 })
    expect(report.lines).toMatchObject({ unlimited: 1 })
  })

  it('bounds the counter of another limit by a share, of some routes or in shadow', async () => {
    const limits = `  requests: { per: [client], limit: 4, window: 1m }
  share: { per: [client], limit: 2, window: 1m, counts: requests }
  trial: { per: [client], limit: 3, window: 1m, counts: requests, shadow: true }`
    const routes = `  - { match: "/some", upstream: data, authenticate: bearer, limits: [share] }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests, trial] }`
    // Each call by hand: the share is full after two calls of any route, the limit after four.
    const paths = ['/some', '/a', '/some', '/a', '/a', '/a', '/some']
    const report = await replayed(
      paths.map((path, i) => line({ at: i, path })),
      configFile(limits, { routes }),
    )
    expect(report.totals).toMatchObject({ calls: 7, admitted: 4, refused: 3 })
    expect(report.clients).toMatchObject([{ refusedBy: { share: 2, requests: 1 }, shadowOver: { trial: 1 } }])
  })

  describe('of calls at once', () => {
    const routes = `  - { match: "/*", upstream: data, authenticate: bearer, limits: [exports, requests] }`
    const atOnce = () =>
      configFile(
        `  exports: { per: [client], concurrent: 1 }\n  requests: { per: [client], limit: 4, window: 1h }`,
        { routes },
      )

    it('gives each a place from its decision for as long as it took', async () => {
      // The first is in progress from 0 to 1002, as the line says; the last of another client.
      const report = await replayed(
        [
          line({ at: 500 }),
          line({ at: 0, lastsMs: 1000 }),
          line({ at: 1001 }),
          line({ at: 1002, lastsMs: 10 }),
          line({ at: 1013 }),
          line({ at: 1014, lastsMs: 1 }),
          line({ at: 1014, client: 'other' }),
        ],
        atOnce(),
      )
      expect(report.totals).toMatchObject({ calls: 7, admitted: 4, refused: 3, newlyRefused: 3 })
      expect(report.clients).toMatchObject([{ client: 'acme', refusedBy: { exports: 3 } }, {}])
      expect(report.late).toEqual({ calls: 0, byMs: 0 })
    })

    it('sorts calls of many minutes by their starts', async () => {
      const minutes = Array.from({ length: 20 }, (_, i) => line({ at: i * 60_000 + 1 }))
      const long = line({ at: 0, lastsMs: 600_000, durationMs: 600_000 })
      const report = await replayed([...minutes.slice(0, 10), long, ...minutes.slice(10)], atOnce())
      expect(report).toMatchObject({ totals: { admitted: 4, refused: 17 }, late: { calls: 0 } })
      expect(report.clients[0]!.refusedBy).toEqual({ exports: 10, requests: 7 })
    })

    it('counts what a shadow limit would have refused', async () => {
      const config = configFile(
        `  exports: { per: [client], concurrent: 1, shadow: true }\n  requests: { per: [client], limit: 4, window: 1h }`,
        { routes: routes.replace('exports, requests', 'requests, exports') },
      )
      const report = await replayed(
        [line({ at: 0, lastsMs: 100 }), line({ at: 50 }), line({ at: 200 })],
        config,
      )
      expect(report.clients).toMatchObject([{ admitted: 3, shadowOver: { exports: 1 } }])
    })

    it('lets those that the record refused, or that took no time, end at once', async () => {
      const report = await replayed(
        [
          line({ at: 0, ...REFUSED, omitted: 1 }),
          line({ at: 0, durationMs: 0 }),
          line({ at: 0 }),
          line({ at: 1 }),
        ],
        atOnce(),
      )
      expect(report.totals).toMatchObject({ calls: 5, admitted: 4, refused: 1, newlyAdmitted: 2 })
    })
  })

  it('counts the calls that shadow limits would have refused, and does not refuse them', async () => {
    const limits = `${PLENTY}\n  trial: { per: [client], limit: 1, window: 1m, shadow: true }`
    const routes =
      '  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests, trial] }\n  - { match: "POST x.example/sync/:connection", upstream: data, authenticate: bearer, limits: [sync] }'
    const config = configFile(limits, {
      routes: routes.split('\n').toReversed().join('\n'),
    })
    const report = await replayed([line({ at: 0 }), line({ at: 1 }), line({ at: 2 })], config)
    expect(report.clients).toMatchObject([
      { admitted: 3, refused: 0, refusedBy: {}, shadowOver: { trial: 2 } },
    ])
    expect(report.limits[2]).toEqual({
      name: 'trial',
      shadow: true,
      replayed: true,
      refused: 2,
      clients: 1,
      recordedRefused: 0,
    })
  })

  it('counts per address, and skips limits that count per user', async () => {
    const limits =
      '  requests: { per: [ip], limit: 1, window: 1m }\n  sync: { per: [user], limit: 1, window: 1m }'
    const routes =
      '  - { match: "/open", upstream: data, authenticate: none, limits: [requests] }\n  - { match: "/*", upstream: data, authenticate: bearer, limits: [sync, requests] }'
    const open = { path: '/open', route: '/open', client: undefined, decision: undefined, limit: undefined }
    const report = await replayed(
      [
        line({ at: 0, ...open, ip: '2001:db8::1' }),
        line({ at: 1, ...open, ip: '2001:db8::2' }),
        line({ at: 2, ...open, ip: undefined }),
        line({ at: 3, ip: '192.0.2.1' }),
        line({ at: 4, client: 'other', ip: '192.0.2.1' }),
      ],
      configFile(limits, { routes }),
    )
    expect(report.lines).toMatchObject({ replayed: 4, lacking: 1 })
    expect(report.clients).toMatchObject([
      {
        client: 'ip:2001:db8:0:0::/64',
        calls: 2,
        refused: 1,
        recorded: { admitted: 2, refused: 0, undecided: 0 },
      },
      { client: 'other', refused: 1 },
      { client: 'acme', refused: 0 },
    ])
    expect(report.limits).toMatchObject([
      { name: 'requests', replayed: true },
      { name: 'sync', replayed: false, refused: 0 },
    ])
  })
})

describe('sluice replay of the log of another proxy', () => {
  const limits = '  requests: { per: [ip], limit: 1, window: 1m }'
  const routes = '  - { match: "GET /orders/*", upstream: data, authenticate: none, limits: [requests] }'
  const combined = (user: string, request: string, status: number): string =>
    `192.0.2.1 - ${user} [20/Nov/2026:10:00:00 +0000] "${request} HTTP/1.1" ${status} 5`

  it('counts the users of an open route as its limits do', async () => {
    const lines = ['ann', 'bob', '-'].map((user) => combined(user, 'GET /orders/1', 200))
    const report = await replayed(lines, configFile(limits, { routes }))
    expect(report.clients).toMatchObject([{ client: 'ip:192.0.2.1', calls: 3, refused: 2 }])
  })

  it('counts a client without a key as unauthenticated, if the file has keys', async () => {
    const file = fileOf(`- { id: ann, sha256: "${'a'.repeat(64)}" }\n`)
    const lines = ['ann', 'bob', '-'].map((user) => combined(user, 'GET /orders/1', 200))
    const report = async (keys: string) =>
      await replayed(
        lines,
        configFile('  requests: { per: [client], limit: 9, window: 1m }', {
          routes: '  - { match: "/*", upstream: data, authenticate: key, limits: [requests] }',
          more: `keys: { file: ${keys} }`,
        }),
      )
    expect((await report(file)).lines).toMatchObject({ replayed: 1, unauthenticated: 2 })
    expect((await report(fileOf('[]'))).lines).toMatchObject({ replayed: 2, unauthenticated: 1 })
  })

  it('counts the calls of no route that had succeeded, and shows the first of them', async () => {
    const lines = [
      combined('-', 'GET /old', 404),
      combined('-', 'GET /orders-old/1?token=t0k', 200),
      combined('-', 'POST /orders/1', 201),
      combined('-', 'GET /orders/1', 200),
    ]
    const report = await replayed(lines, configFile(limits, { routes }))
    expect(report.lines.unmatched).toBe(3)
    expect(report.unmatched).toEqual({ succeeded: 2, first: 'GET /orders-old/1' })
    expect(describeReport(report)).toMatch(
      /404 or 405; 2 of these had succeeded, the first "GET \/orders-old\/1"$/m,
    )
  })

  it('has no figure of recorded refusals by a limit where the log names none', async () => {
    const lines = [200, 429].map((status) => combined('-', 'GET /orders/1', status))
    const report = await replayed(lines, configFile(limits, { routes }))
    expect(report.totals.recorded.refused).toBe(1)
    expect(report.limits).toMatchObject([{ name: 'requests', recordedRefused: null }])
    expect(describeReport(report)).toMatch(/^requests +- +1 +1 +live$/m)
  })
})

describe('sluice replay of a log without personal data', () => {
  const limits = `  requests: { per: [client], limit: 9, window: 1m }
  accounts: { per: [client, account], limit: 1, window: 1m }
  addresses: { per: [ip], limit: 1, window: 1m }`
  const routes = `  - { match: "GET /accounts/:account/all", upstream: data, authenticate: bearer, limits: [requests, accounts] }
  - { match: "/open", upstream: data, authenticate: none, limits: [addresses] }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }`
  const more = 'parameters: { account: { kind: "[A-Z]{2}[0-9]+", secret: true } }'
  const config = configFile(limits, { routes, more })
  const route = 'GET /accounts/:account/all'

  it('counts by the short form of a secret, also where another log has the whole value', async () => {
    const report = await replayed(
      [
        line({ at: 0, route, path: '/accounts/de12…48941f19/all' }),
        line({ at: 1, route, path: '/accounts/DE1234/all' }),
        line({ at: 2, route, path: '/accounts/de12…00000000/all' }),
        line({ at: 3, route, path: '/accounts/1234/all' }),
      ],
      config,
    )
    expect(report.lines).toMatchObject({ replayed: 3, malformed: 1 })
    expect(report.totals).toMatchObject({ calls: 3, refused: 1 })
  })

  it('takes the recorded route if the path has short forms in which another route could be named', async () => {
    const recorded = { route: '/*', path: '/accounts/de12…48941f19/bala…ca75286f' }
    const lines = [
      line({ at: 0, ...recorded }),
      line({ at: 1, route, path: '/acco…01234567/de12…48941f19/all' }),
    ]
    const report = await replayed(lines, config)
    expect(report.lines).toMatchObject({ replayed: 1, lacking: 1 })
  })

  it('leaves out calls whose path or address, which a limit counts by, is not in the log', async () => {
    const report = await replayed(
      [
        line({ at: 0, route, path: '/accounts/:account/all' }),
        line({ at: 1, route: '/*', path: '/*' }),
        line({ at: 2, route: '/open', path: '/open', ip: '192.0.2.0/24' }),
        line({ at: 3, route: '/open', path: '/open', ip: null }),
      ],
      config,
    )
    expect(report.lines).toMatchObject({ replayed: 1, lacking: 3 })
    expect(describeReport(report)).toMatch(
      /3 +without the client, the address, the host or the path that a limit counts by/,
    )
  })
})

describe('sluice replay', () => {
  it('replays every call that reached the limiter, and no call that was refused before', async () => {
    const own = { source: 'gateway', decision: undefined, limit: undefined }
    const anonymous = { ...own, client: undefined }
    const report = await replayed(
      [
        line({ at: 0 }),
        line({ at: 1, ...REFUSED }),
        line({ at: 2, source: 'gateway', status: 502, code: 'BadGateway' }),
        line({ at: 3, source: 'gateway', status: 499 }),
        line({ at: 4, ...own, status: 503, code: 'ServiceUnavailable' }),
        line({ at: 5, ...anonymous, status: 401, code: 'Unauthorized' }),
        line({ at: 6, ...anonymous, status: 404, route: undefined, path: '/x', code: 'NotFound' }),
        line({ at: 7, ...anonymous, status: 429, code: 'TooManyRequests' }),
        line({ at: 8, path: '/open', client: undefined, decision: undefined }),
        line({ at: 8, path: '/open', ...anonymous, status: 504, code: 'GatewayTimeout' }),
        line({ at: 9, method: 'PUT' }),
        // To a route that required no token when it was logged.
        line({ at: 10, client: undefined, decision: undefined }),
      ],
      configFile(PLENTY, {
        routes: `  - { match: "GET,POST /transactions", upstream: data, authenticate: bearer, limits: [requests] }
  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [sync] }
  - { match: "/open", upstream: data, authenticate: none }`,
      }),
    )
    expect(report.lines).toEqual({
      replayed: 5,
      refusedBefore: 3,
      malformed: 0,
      unmatched: 1,
      unauthenticated: 1,
      unlimited: 2,
      lacking: 0,
      other: 0,
    })
    expect(report.totals.recorded).toEqual({ admitted: 3, refused: 1, undecided: 1 })
  })

  it.for([
    ['a client', { status: 200 }, 'admitted'],
    ['a client', { status: 499, incomplete: 'left' }, 'admitted'],
    ['a client', { status: 413, code: 'PayloadTooLarge' }, 'admitted'],
    ['a client', { status: 408, code: 'RequestTimeout', incomplete: 'cut' }, 'admitted'],
    ['a client', { status: 503, code: 'ServiceUnavailable' }, 'undecided'],
    ['a client', { status: 500, code: 'InternalServer' }, 'undecided'],
    ['a client', { status: 403, code: 'Forbidden' }, 'refusedBefore'],
    ['a client', { source: 'upstream', status: 403 }, 'admitted'],
    ['a client', { source: 'upstream', status: 503 }, 'admitted'],
    ['anonymous', { status: 499, incomplete: 'left' }, 'admitted'],
    ['anonymous', { source: 'upstream', status: 500 }, 'admitted'],
    ['anonymous', { status: 413, code: 'PayloadTooLarge' }, 'refusedBefore'],
    ['anonymous', { status: 503, code: 'ServiceUnavailable' }, 'refusedBefore'],
    ['anonymous', { status: 503, code: 'ServiceUnavailable', mode: 'deny' }, 'undecided'],
  ] as const)(
    'classifies a call of %s without a decision by its outcome: %j is %s',
    async ([whose, members, what]) => {
      const config = configFile('  requests: { per: [ip], limit: 9, window: 1s }', {
        routes: '  - { match: "/*", upstream: data, authenticate: none, limits: [requests] }',
      })
      const client = whose === 'anonymous' ? undefined : 'acme'
      const own = {
        client,
        source: 'gateway',
        decision: undefined,
        limit: undefined,
        decidedAt: undefined,
      }
      const { lines, totals } = await replayed([line({ at: 0, ...own, ...members })], config)
      const none = { admitted: 0, refused: 0, undecided: 0 }
      const before = what === 'refusedBefore'
      expect(lines).toMatchObject({ replayed: before ? 0 : 1, refusedBefore: before ? 1 : 0 })
      expect(totals.recorded).toEqual(before ? none : { ...none, [what]: 1 })
    },
  )

  it('matches calls by host and path, or by the logged route if either is missing', async () => {
    const config = configFile(PLENTY, {
      routes: `  - { match: "id.example.com/*", upstream: data, authenticate: none }
  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }`,
    })
    const none = { client: undefined, decision: undefined }
    const cut = `/${'x'.repeat(255)}…`
    const report = await replayed(
      [
        line({ at: 0, host: 'id.example.com', ...none }),
        line({ at: 1, host: undefined, route: 'id.example.com/*', ...none }),
        line({ at: 2, host: undefined, route: '/*' }),
        line({ at: 3, path: cut, route: '/*' }),
        line({ at: 4, path: undefined, route: '/*' }),
        // The connection is not known.
        line({ at: 5, method: 'POST', path: `/sync${cut}`, route: 'POST /sync/:connection' }),
        line({ at: 6, path: cut, route: '/gone/*' }),
      ],
      config,
    )
    expect(report.lines).toMatchObject({ unlimited: 2, replayed: 3, lacking: 1, unmatched: 1 })
  })

  it('replays only lines of the access log, also after the prefix of a collector', async () => {
    const report = await replayed(
      [
        line({ at: 0 }),
        '{"level":"info","time":"2026-11-20T10:00:00.000Z","msg":"gateway started"}',
        'Killed',
        '{"msg":"request"',
        '',
        '[1]',
        line({ at: 1, time: 'soon' }),
        line({ at: 1, durationMs: -1 }),
        `2026-11-20T10:00:01.003Z stdout F ${line({ at: 1000 })}`,
        `gateway-1  | ${line({ at: 2000 })}\r`,
        line({ at: 3000, error: 'x'.repeat(300_000) }),
        line({ at: 4000, client: 'last' }),
      ],
      configFile(PLENTY),
    )
    expect(report.lines).toMatchObject({ replayed: 4, other: 4 })
    expect(report.logs).toMatchObject([
      { unreadable: 3, first: { line: 4, why: 'is a cut or damaged line' } },
    ])
    expect(report.clients.map(({ client }) => client)).toEqual(['acme', 'last'])
  })

  it('skips calls whose verified token was refused, and ignores claimed clients', async () => {
    const own = { source: 'gateway', decision: undefined, limit: undefined }
    const report = await replayed(
      [
        line({ at: 0 }),
        line({ at: 1, ...own, status: 401, code: 'Unauthorized' }),
        line({ at: 2, ...own, status: 400, code: 'BadRequest', claimed: true }),
        line({ at: 3, ...own, source: 'upstream', status: 201, path: '/open', claimed: true }),
      ],
      configFile(PLENTY),
    )
    expect(report.lines).toMatchObject({ replayed: 1, refusedBefore: 2, unlimited: 1 })
    expect(report.totals.calls).toBe(1)
  })

  it('replays refusals without a line of their own with the line that counts them', async () => {
    const lines = [
      line({ at: 0 }),
      line({ at: 1, ...REFUSED }),
      line({ at: 1002, ...REFUSED, omitted: 40 }),
      // A gateway never writes this.
      line({ at: 1003, ...REFUSED, omitted: 1e15 }),
      line({ at: 1004, client: 'other', omitted: 7 }),
    ]
    const config = configFile(`  requests: { per: [client], limit: 1, window: 10s }\n${SYNC}`)
    const report = await replayed(lines, config)
    expect(report).toMatchObject({
      omitted: 40,
      lines: { replayed: 5 },
      totals: { calls: 45, admitted: 2, refused: 43, recorded: { refused: 43 }, newlyAdmitted: 0 },
      limits: [{ name: 'requests', refused: 43, recordedRefused: 43 }, {}],
    })
    expect(describeReport(report)).toContain('\n40     refusals without a line of their own, ')
    const wider = configFile(`  requests: { per: [client], limit: 11, window: 10s }\n${SYNC}`)
    expect((await replayed(lines, wider)).totals).toMatchObject({ refused: 33, newlyAdmitted: 10 })
  })

  it('reads a last line without a newline, and an empty log', async () => {
    const report = await replayed(Buffer.from(line({ at: 0 })), configFile(PLENTY))
    expect(report.totals.calls).toBe(1)
    const empty = await replayed([], configFile(PLENTY))
    expect(empty).toMatchObject({ from: null, to: null, totals: { calls: 0, clients: 0 }, clients: [] })
  })

  it('replays calls in the order of their decisions, not of their lines', async () => {
    const report = await replayed(
      [
        line({ at: 2000, ...REFUSED }),
        line({ at: 3000, ...REFUSED }),
        line({ at: 10_000 }),
        // The first decision and the last response.
        line({ at: 0, lastsMs: 20_000 }),
      ],
      configFile('  requests: { per: [client], limit: 1, window: 10s }'.concat(`\n${SYNC}`)),
    )
    expect(report.totals).toMatchObject({ admitted: 2, newlyRefused: 0, newlyAdmitted: 0 })
    expect(report.late).toEqual({ calls: 0, byMs: 0 })
  })

  it('reports the calls that are logged too late', async () => {
    const report = await replayed([line({ at: 0 })], configFile(PLENTY))
    expect(describeReport({ ...report, late: { calls: 2, byMs: 69_001 } })).toContain(
      '\n2      calls counted as decided up to 70 s later, because they were logged too late',
    )
  })

  it('counts a call with an impossible decision time as decided when it came', async () => {
    const lines = [START * 1e6, START + 86_400_000, 0].map((decidedAt, n) => line({ at: n, decidedAt }))
    const report = await replayed([...lines, line({ at: 1000 })], configFile(PLENTY))
    expect(report).toMatchObject({
      from: '2026-11-20T09:59:59.998Z',
      to: '2026-11-20T10:00:01.000Z',
      late: { calls: 0 },
      totals: { calls: 4, admitted: 4 },
      lines: { replayed: 4, other: 0 },
    })
  })

  it('merges several logs, plain or gzip, by time', async () => {
    const lines = Array.from({ length: 300 }, (_, n) =>
      line({ at: n * 40, client: `c${n % 3}`, lastsMs: (n * 37) % 200 }),
    ).toSorted((a, b) => (timeOf(a) < timeOf(b) ? -1 : 1))
    const config = configFile(`  requests: { per: [client], limit: 10, window: 1s }\n${SYNC}`)
    const whole = await replayed(lines, config)
    expect(whole.totals.refused).toBe(0)
    const tight = configFile(`  requests: { per: [client], limit: 4, window: 1s }\n${SYNC}`)
    const expected = await replayed(lines, tight)
    expect(expected.totals.refused).toBeGreaterThan(50)

    const part = (wanted: (n: number) => boolean) => lines.filter((_, n) => wanted(n))
    const zipped = (some: readonly string[]) => gzipSync(some.map((line) => `${line}\n`).join(''))
    const logs = [
      logFile(part((n) => n >= 200)),
      logFile(zipped(part((n) => n < 200 && n % 2 === 0))),
      // Appending to a gzip file adds a second member.
      logFile(
        Buffer.concat([
          zipped(part((n) => n < 100 && n % 2 === 1)),
          zipped(part((n) => n >= 100 && n < 200 && n % 2 === 1)),
        ]),
      ),
    ]
    expect(await replayed({ logs }, tight)).toEqual({ ...expected, logs: expect.any(Array) })
  })

  it.for([
    [
      'is cut',
      (zipped: Buffer) => zipped.subarray(0, 60),
      'is a compressed file that is damaged or cut: unexpected end of file',
    ],
    ['is broken', (zipped: Buffer) => zipped.fill(1, 2, 3), 'is a compressed file that is damaged or cut: '],
  ] as const)('rejects a gzip file that %s', async ([, spoil, message]) => {
    const spoilt = spoil(gzipSync(line({ at: 0 })))
    const file = logFile(spoilt)
    await expect(replayed({ logs: [file] }, configFile(PLENTY))).rejects.toThrow(`${file}: ${message}`)
  })
})

const timeOf = (text: string): string => (JSON.parse(text) as { time: string }).time
