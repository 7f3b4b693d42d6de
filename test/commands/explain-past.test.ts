import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import type { ExplainedPast } from '../../src/commands/past/explain-past.ts'
import { call, startLogging, token } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { line, logFile, REFUSED } from './replay/logs.ts'
import { fileOf, itEndsWrongUsage, sluice } from './run.ts'

const explain = (id: string, ...args: readonly string[]) => sluice(['explain', '--request-id', id, ...args])

describe('sluice explain --request-id', () => {
  it('explains from the log of a gateway why calls got their responses', async () => {
    const data = await startUpstream()
    const gateway = await startLogging({
      data: data.url,
      limits: {
        calls: { per: ['client'], limit: 1, window: '1m' },
        open: { per: ['client'], concurrent: 1 },
      },
      routes: [{ match: '/a', upstream: 'data', authenticate: 'bearer', limits: ['calls', 'open'] }],
    })
    const mine = await token('acme')
    const got = [
      await call(gateway.port, { path: '/a?secret=hunter2', token: mine }),
      await call(gateway.port, { path: '/a', token: mine }),
      await call(gateway.port, { path: '/a', token: 'x.y.z' }),
    ]
    await until(
      'all calls are logged',
      () => gateway.lines().filter(({ msg }) => msg === 'request').length === 3,
    )
    const log = fileOf(gateway.stdout(), 'log')
    const [admitted, refused, unauthorized] = await Promise.all(
      got.map(async ({ headers }) => await explain(headers['x-request-id'] as string, log)),
    )
    for (const { code, stderr } of [admitted!, refused!, unauthorized!])
      expect([code, stderr]).toEqual([0, ''])
    expect(admitted!.stdout).toMatch(
      /GET 127\.0\.0\.1\/a, by client:acme from 127\.0\.0\.1, of the route "\/a"\. It ended at \S+Z after \S+ ms\.$/m,
    )
    expect(admitted!.stdout).toContain('  The upstream "data" answered it with 200.\n')
    expect(admitted!.stdout).toContain('  The limits admitted it: 0 of 1 of "calls" were left after it.\n')
    expect(admitted!.stdout).toMatch(/^ {2}The head of the upstream's response took \S+ ms\.$/m)

    const { headers } = got[1]!
    const after = Number(headers['retry-after'])
    const { decidedAt } = gateway.lines().find(({ status }) => status === 429) as { decidedAt: number }
    const retryAt = new Date(decidedAt + after * 1000).toISOString()
    expect(refused!.stdout).toContain('  Sluice itself answered it with 429.\n')
    expect(refused!.stdout).toContain(
      '  The limit "calls" of client:acme refused it: it allows 1 in 1m, and 0 were left.\n' +
        '  The response said X-RateLimit-Limit: 1, X-RateLimit-Remaining: 0.\n' +
        `  It said Retry-After: ${after}: a later call could pass, at ${retryAt}.\n`,
    )
    expect(unauthorized!.stdout).toContain('  No limit was checked.\n  The reason, Unauthorized: ')
    for (const { stdout } of [admitted!, refused!]) expect(stdout).not.toMatch(/hunter2|Unauthorized/)
  })

  it('escapes line feeds in the fields of a log, which would look like sentences of their own', async () => {
    const forged = 'x\n  The upstream "data" answered it with 200.'
    const fields = { caller: forged, path: forged, route: forged, cause: forged, error: forged, code: forged }
    const { stdout } = await explain(
      'mine',
      logFile([line({ at: 0, requestId: 'mine', ...REFUSED, ...fields })]),
    )
    expect(stdout).toContain(String.raw`by x\u000a  The upstream "data" answered it with 200. from`)
    expect(stdout).not.toContain('\n  The upstream "data"')
  })

  it('reads plain and gzip logs and standard input, with prefixes, and counts lines that are not JSON', async () => {
    const mine = line({ at: 0, requestId: 'mine', ...REFUSED, of: 3, remaining: 0 })
    const lines = [line({ at: 0 }), 'not JSON', '{"level":"info",', `2026 pod-1 ${mine}`, '']
    const log = logFile(lines)
    const gzip = logFile(gzipSync(lines.join('\n')))
    for (const [args, stdin, place] of [
      [[log], '', `${log}:4`],
      [[gzip], '', `${gzip}:4`],
      [['-'], lines.join('\n'), 'standard input:4'],
    ] as const) {
      const ended = await sluice(['explain', '--request-id', 'mine', ...args], { stdin })
      expect(ended).toMatchObject({ code: 0, stderr: '' })
      expect(ended.stdout).toContain(`${place}\n  GET api.example.com/transactions, by acme from 192.0.2.1`)
      expect(ended.stdout).toMatch(/\n2 of 4 lines could not be read as JSON\.\n$/)
    }
    const { stdout } = await explain('mine', log, gzip, '--json')
    const explained = JSON.parse(stdout) as ExplainedPast
    expect(explained).toMatchObject({ requestId: 'mine', more: 0, lines: { read: 8, unreadable: 4 } })
    expect(explained.calls.map((one) => [one.log, one.line, one.fields['limit']])).toEqual([
      [log, 4, 'requests'],
      [gzip, 4, 'requests'],
    ])
    expect(explained.calls[0]!.sentences).toContain(
      'The limit "requests" of acme refused it: it allows 3 in its window, and 0 were left.',
    )
  })

  it.each([
    [{ ...REFUSED, of: 0 }, 'The limit "requests" of acme is 0, which refuses every call: it was blocked.'],
    [{ ...REFUSED, of: 1, windowMs: 0 }, 'it allows 1 at once, and 1 were left.'],
    [{ ...REFUSED, of: 1, omitted: 7 }, '7 similar refusals before it have no line.'],
    [{ ...REFUSED, of: 200, part: 4, mode: 'local' }, 'Its part was 4 of 200.'],
    [{ mode: 'local' }, 'Redis did not answer: this gateway counted by itself, with its part of the limit.'],
    [
      { mode: 'deny', decision: undefined },
      'Redis did not answer: onOutage: deny refuses calls with limits.',
    ],
    [{ shadowOver: ['trial'] }, 'Shadow limits that would have refused it: trial.'],
    [{ claimed: true }, 'Its client is only what the request said, not verified.'],
    [
      {
        status: 504,
        source: 'gateway',
        code: 'GatewayTimeout',
        error: 'The upstream is slow.',
        cause: 'late',
      },
      'The reason, GatewayTimeout: The upstream is slow.\n  For operators, the log says: late\n',
    ],
    [
      { status: 499, source: 'gateway', waitedMs: 1234.5, cause: 'the caller left while waiting for data' },
      'Its caller disconnected before a response began (499).',
    ],
    [{ reserved: 40, settled: 1 }, 'It turned out to use, and is charged: 1 point.'],
    [{ reserved: { a: 4, b: 1 }, settled: { a: 5 } }, 'It was charged a reserve at first: a 4, b 1.'],
    [
      { reserved: 40, unsettled: 'the caller\nleft' },
      'It stays charged its reserve, as it is not known what it used: the caller\\u000aleft.',
    ],
    [{ waitedMs: 1234.5 }, 'The caller had waited 1234.5 ms for that.'],
    [{ incomplete: 'cut' }, 'The response is incomplete: the upstream or the gateway cut it off.'],
    [{ of: 'x', remaining: null, status: {}, host: 7, client: 'a\u009bb' }, 'by a\\u009bb from'],
  ])('explains a line with %j', async (members, sentence) => {
    const log = logFile([line({ at: 0, requestId: 'r', ...members })])
    expect((await explain('r', log)).stdout).toContain(sentence)
  })

  it('explains a request whose head could not be parsed', async () => {
    const fields = { requestId: 'r', ip: '192.0.2.7', source: 'gateway', status: 400, error: 'bad head' }
    const log = logFile([JSON.stringify({ ...fields, msg: 'malformed request' })])
    const { stdout } = await explain('r', log)
    expect(stdout).toContain('A request whose head could not be read, by a caller without a verified name')
    expect(stdout).toContain('answered it with 400.\n')
    expect(stdout).toContain('The reason: bad head\n')
  })

  it('explains at most 20 calls with one id, which callers may choose, and counts the others', async () => {
    const log = logFile(Array.from({ length: 25 }, (_, at) => line({ at, requestId: 'same' })))
    const { stdout } = await explain('same', log)
    expect(stdout.match(/^ {2}GET /gm)).toHaveLength(20)
    expect(stdout).toContain('\n5 more calls with this id.\n')
    expect(stdout).toContain('Several calls have this id: callers may choose it (X-Request-Id).')
  })

  it('exits with 1 if no line has the id, and says how many lines were read', async () => {
    const log = logFile([line({ at: 0, requestId: 'other' }), 'GET /', line({ at: 0, other: 'r' })])
    const ended = await explain('r', log)
    expect(ended).toMatchObject({ code: 1, stdout: '' })
    expect(ended.stderr).toContain(
      'none of 3 lines is of a request with the id r; 1 of them could not be read as JSON, which log.format: json writes.',
    )
    expect(await explain('r', '/nowhere.log')).toMatchObject({ code: 1 })
  })

  itEndsWrongUsage([
    [['explain', '--request-id', 'r'], 'Which log? Give its files, or - for standard input.'],
    [['explain', '--request-id', 'a b', 'x.log'], '--request-id must be the id of one request.'],
    [
      ['explain', '--request-id', 'r', 'x.log', '--client', 'acme'],
      '--request-id cannot be combined with --client; remove one.',
    ],
  ])
})
