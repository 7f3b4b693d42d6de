import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Report } from '../../../src/commands/replay/replay.ts'
import { call, startLogging, token, yaml } from '../../helpers/gateway.ts'
import { sharedRedis } from '../../helpers/shared-redis.ts'
import { startUpstream, type TestUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'
import { fileOf, itEndsWrongUsage, sluice } from '../run.ts'
import { configFile, line, logFile, REFUSED, SYNC } from './logs.ts'

const LIMITS = `  requests: { per: [client], limit: 2, window: 1m }\n${SYNC}`
const CLIENTS = { more: 'clients: [{ id: acme, name: "Acme\\u001b[2J" }]' }
const LINES = [
  line({ at: 0 }),
  line({ at: 1 }),
  line({ at: 2 }),
  line({ at: 3, ...REFUSED }),
  line({ at: 4, client: 'quiet\nfake', path: '/v1/x' }),
  line({ at: 5, client: undefined, decision: undefined, source: 'gateway', status: 401 }),
  'not a line of it',
]

describe('sluice replay', () => {
  it('lists the clients that the limits refuse, by the number of refusals', async () => {
    const ended = await sluice([
      'replay',
      logFile(LINES),
      '--config',
      configFile(`${LIMITS}\n  own: { per: [user], limit: 1, window: 1s }`, CLIENTS),
    ])
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout.split('\n')).toEqual([
      'CLIENT           NAME           CALLS  ADMITTED  REFUSED  BY          BUSIEST MINUTE                   SHADOW',
      'acme             Acme\\u001b[2J  4      2         1 -> 2   requests 2  4 from 2026-11-20T10:00:00.000Z  -',
      'quiet\\u000afake  -              1      1         0        -           1 from 2026-11-20T10:00:00.004Z  -',
      '',
      '5 calls of 2 clients from 2026-11-20T10:00:00.000Z to 2026-11-20T10:00:00.004Z:',
      '          ADMITTED  REFUSED  UNDECIDED',
      'recorded  4         1        0',
      'replayed  3         2        -',
      'newly     0         1        -',
      '',
      'LIMIT     RECORDED  REFUSED  CLIENTS  KIND',
      'requests  1         2        1        live',
      'sync      0         0        0        live',
      'own       0         0        0        left out: the access log has no users',
      '',
      'LINES',
      '5      replayed',
      '1      refused before any limit',
      '1      not of requests',
      '',
    ])
  })

  it('reads standard input, lists the first clients or only `--client`, and prints JSON', async () => {
    const stdin = LINES.join('\n')
    const config = configFile(LIMITS)
    const args = ['replay', '-', '--config', config, '--json']
    const first = await sluice([...args, '--top', '1'], { stdin })
    expect(first).toMatchObject({ code: 0, stderr: '' })
    const report = JSON.parse(first.stdout) as Report
    expect(report).toEqual({
      config,
      from: '2026-11-20T10:00:00.000Z',
      to: '2026-11-20T10:00:00.004Z',
      logs: [{ log: '-', format: 'sluice', unreadable: 0 }],
      lines: {
        ...{ replayed: 5, refusedBefore: 1, malformed: 0, unmatched: 0, unauthenticated: 0 },
        ...{ unlimited: 0, lacking: 0, other: 1 },
      },
      unmatched: { succeeded: 0, first: null },
      late: { calls: 0, byMs: 0 },
      omitted: 0,
      plans: [],
      totals: {
        clients: 2,
        calls: 5,
        admitted: 3,
        refused: 2,
        recorded: { admitted: 4, refused: 1, undecided: 0 },
        newlyRefused: 1,
        newlyAdmitted: 0,
      },
      limits: [
        { name: 'requests', shadow: false, replayed: true, refused: 2, clients: 1, recordedRefused: 1 },
        { name: 'sync', shadow: false, replayed: true, refused: 0, clients: 0, recordedRefused: 0 },
      ],
      clients: [
        {
          client: 'acme',
          calls: 4,
          admitted: 2,
          refused: 2,
          recorded: { admitted: 3, refused: 1, undecided: 0 },
          newlyRefused: 1,
          newlyAdmitted: 0,
          refusedBy: { requests: 2 },
          shadowOver: {},
          busiestMinute: { calls: 4, from: '2026-11-20T10:00:00.000Z' },
        },
      ],
      more: 1,
    })
    const table = await sluice(['replay', '-', '--config', config, '--top', '1'], { stdin })
    expect(table.stdout).toContain('\n\nand 1 more client; --top lists them\n\n')
    const single = await sluice([...args, '--client', 'quiet\nfake'], { stdin })
    expect(JSON.parse(single.stdout)).toMatchObject({
      totals: { clients: 1, calls: 1, refused: 0 },
      clients: [{ client: 'quiet\nfake' }],
      lines: { replayed: 5 },
    })
    const other = await sluice(['replay', '-', '--config', config, '--client', 'other'], { stdin })
    expect(other.stdout).toMatch(/^There is no call to report\.\n\nLIMIT [^]*\n\nLINES\n5 +replayed\n/)
    const compressed = gzipSync(stdin)
    const zipped = await sluice(args, { stdin: compressed })
    expect(JSON.parse(zipped.stdout)).toMatchObject({ totals: report.totals })
  })

  it('reports that no call was replayed', async () => {
    const args = ['replay', '-', '--config', configFile(LIMITS)]
    const process = '{"level":"info","time":"2026-11-20T10:00:00.000Z","msg":"gateway started"}\n'
    for (const [stdin, lines] of [
      ['', ''],
      [process, '\n\nLINES\n1      not of requests'],
    ] as const)
      expect(await sluice(args, { stdin })).toEqual({
        code: 0,
        stdout: `There is no call to report.\n\nLIMIT     RECORDED  REFUSED  CLIENTS  KIND\nrequests  0         0        0        live\nsync      0         0        0        live${lines}\n`,
        stderr: '',
      })
    const denied = line({
      at: 0,
      ...REFUSED,
      decision: undefined,
      mode: 'deny',
      status: 503,
      code: 'ServiceUnavailable',
    })
    expect((await sluice(args, { stdin: denied })).stdout).toMatch(/^recorded  0         0        1$/m)
    const open = line({ at: 0, path: '/open', client: undefined, decision: undefined })
    expect((await sluice(args, { stdin: open })).stdout).toMatch(
      /^There is no call to report\.\n[^]*\n1 +of routes without limits to replay\n$/,
    )
    const byKey = configFile('  keys: { per: ["header:x-api-key"], limit: 2, window: 1m }', {
      routes: '  - { match: "/*", upstream: data, authenticate: none, limits: [keys] }',
    })
    expect((await sluice(['replay', '-', '--config', byKey], { stdin: open })).stdout).toMatch(
      /^keys +0 +0 +0 +left out: the access log has no header fields$/m,
    )
  })

  itEndsWrongUsage([
    [['replay'], 'Which log? Give its files, or - for standard input.'],
    [
      ['replay', 'a.log'],
      'Which configuration? Give --config FILE, set SLUICE_CONFIG, or name it sluice.yaml; "sluice init" writes one.',
    ],
    [['replay', '-', '--config', '-'], 'Standard input is the log or the configuration, not both.'],
    [
      ['replay', 'a.log', '--config', configFile(LIMITS), '--top', '0'],
      '--top must be a whole number from 1 to 9007199254740991.',
    ],
    [['replay', 'a.log', '--port', '80'], 'Unknown flag --port.'],
  ])

  it('exits with 78 if the configuration is invalid', async () => {
    const config = configFile(LIMITS.replace('limit: 2', 'limit: two'))
    expect(await sluice(['replay', logFile(LINES), '--config', config])).toMatchObject({
      code: 78,
      stdout: '',
      stderr: expect.stringMatching(/^\S+\.yaml:6:37: limits\.requests\.limit: must be a whole number/),
    })
  })

  it.for([
    ['/nowhere/a.log', 'does not exist'],
    ['/etc', 'is a directory, not a file'],
  ] as const)('exits with 1 if any of the logs cannot be read: %s', async ([log, message]) => {
    const ended = await sluice(['replay', logFile(LINES), log, '--config', configFile(LIMITS)])
    expect(ended).toEqual({ code: 1, stdout: '', stderr: `sluice: ${log}: ${message}\n` })
  })

  it('shows its progress on a terminal, and erases it at the end', async () => {
    const args = ['replay', logFile(LINES), '--config', configFile(LIMITS)]
    const { stdout, stderr } = await sluice(args, { isTTY: true })
    expect(stderr).toMatch(/\[-{40}\] 0 of \d{4} bytes, .* left/)
    expect(stderr.endsWith('\u001B[2K')).toBe(true)
    expect(stdout).toBe((await sluice(args)).stdout)
  })
})

describe('sluice replay of the log of a gateway', () => {
  let data: TestUpstream
  beforeAll(async () => {
    // Some responses are delayed, so that calls end in another order than they were decided in.
    data = await startUpstream((request, response) => {
      setTimeout(() => response.end('{}'), request.url!.length % 3 === 0 ? 90 : 1)
    })
  })

  it('admits and refuses the same calls under the same limits, and different calls under other limits', async () => {
    const redis = await sharedRedis()
    const settings = { data: data.url, limit: 6, window: '3s', syncWindow: '300ms' }
    const configs = [
      settings,
      { ...settings, store: { redis: { url: redis.url }, prefix: 'replay', timeout: '5s' } },
    ]
    const gateways = await Promise.all(
      configs.map(async (config) => ({ config, ...(await startLogging(config)) })),
    )
    const tokens = await Promise.all(['one', 'two', 'three'].map((client) => token(client)))
    const burst = async ({ port }: { readonly port: number }) => {
      const got = await Promise.all(
        tokens.flatMap((token) =>
          Array.from({ length: 10 }, (_, n) =>
            n % 2 === 0
              ? call(port, { token, path: `/v3/${'x'.repeat(n)}` })
              : call(port, { token, method: 'POST', path: `/v3/sync/${n % 3 === 0 ? 'a' : 'b'}%3A${n % 4}` }),
          ),
        ),
      )
      await call(port, { token: 'nonsense' })
      await call(port, { path: '/oidc/x' })
      return got
    }
    // A cached refusal is exact to a millisecond: no burst comes close to the end of the previous burst's window.
    const bursts = [await Promise.all(gateways.map(burst))]
    await sleep(3600)
    bursts.push(await Promise.all(gateways.map(burst)))
    await sleep(1200)
    bursts.push(await Promise.all(gateways.map(burst)))

    for (const [i, { config, lines, stdout }] of gateways.entries()) {
      const got = bursts.flatMap((burst) => burst[i]!)
      const calls = got.length
      const refused = got.filter(({ status }) => status === 429).length
      await until(
        'the log is written',
        () => lines().filter(({ msg }) => msg === 'request').length === calls + 6,
      )
      const log = logFile([stdout()])
      const replayed = async (file: string) => {
        const ended = await sluice(['replay', log, '--config', file, '--json'])
        expect(ended).toMatchObject({ code: 0, stderr: '' })
        return JSON.parse(ended.stdout) as Report
      }
      const report = await replayed(fileOf(yaml(config)))
      expect(refused).toBeGreaterThan(0)
      expect(report.totals).toEqual({
        clients: 3,
        calls,
        admitted: calls - refused,
        refused,
        recorded: { admitted: calls - refused, refused, undecided: 0 },
        newlyRefused: 0,
        newlyAdmitted: 0,
      })
      expect(report.lines).toMatchObject({ refusedBefore: 3, unlimited: 3 })
      const raised = yaml(config).replace('limit: 6', 'limit: 1000').replace('limit: 1,', 'limit: 1000,')
      const { totals } = await replayed(fileOf(raised))
      expect(totals.newlyRefused).toBe(0)
      expect(totals.newlyAdmitted).toBeGreaterThan(0)
    }
  })

  it('counts calls without a decision as admitted, even if the caller disconnected or the gateway responded', async () => {
    const slow = await startUpstream(() => {})
    const settings = {
      data: slow.url,
      routes: [
        { match: 'GET /limits', respond: 'limits', authenticate: 'bearer' },
        { match: '/open/*', upstream: 'data', authenticate: 'none' },
        { match: '/scoped', upstream: 'data', authenticate: 'bearer', scope: ['rare'] },
        { match: '/*', upstream: 'data', authenticate: 'bearer' },
      ],
    }
    const gateway = await startLogging(settings)
    const bearer = `Authorization: Bearer ${await token('one')}\r\n`
    const left = ['/open/x', '/x'].map((path) => {
      const socket = connect(gateway.port, '127.0.0.1')
      socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n${path === '/x' ? bearer : ''}\r\n`)
      return socket
    })
    expect(await call(gateway.port, { path: '/limits', token: await token('one') })).toMatchObject({
      status: 200,
    })
    // Refused, although the client is known.
    expect(await call(gateway.port, { path: '/scoped', token: await token('one') })).toMatchObject({
      status: 403,
    })
    await until('both wait', () => slow.seen.length === 2)
    for (const socket of left) socket.destroy()
    const requests = () => gateway.lines().filter(({ msg }) => msg === 'request')
    await until('the log is written', () => requests().length === 4)
    expect(requests().filter(({ status }) => status === 499)).toHaveLength(2)
    expect(requests().find(({ status }) => status === 403)).toMatchObject({
      client: 'one',
      code: 'Forbidden',
    })

    const limited = configFile('  requests: { per: [ip], limit: 9, window: 1m }', {
      routes: '  - { match: "/*", upstream: data, authenticate: none, limits: [requests] }',
    })
    const { stdout } = await sluice(['replay', '-', '--config', limited, '--json'], {
      stdin: gateway.stdout(),
    })
    expect(JSON.parse(stdout)).toMatchObject({
      lines: { replayed: 3, refusedBefore: 1 },
      totals: { recorded: { admitted: 3, refused: 0, undecided: 0 } },
    })
  })
})
