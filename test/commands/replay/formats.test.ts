import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import type { LoggedCall, ReadLine } from '../../../src/commands/replay/formats/call.ts'
import { readDuration } from '../../../src/commands/replay/formats/duration.ts'
import { createRecognizer, FORMAT_NAMES } from '../../../src/commands/replay/formats/formats.ts'
import { readInstant } from '../../../src/commands/replay/formats/instant.ts'
import { LOG_FORMATS } from '../../../src/commands/choices.ts'
import { fileText, REPOSITORY } from '../../helpers/repository.ts'
import { sluice } from '../run.ts'
import { dayConfig, figuresOf } from './figures.ts'
import { configFile, line, logFile, replayed } from './logs.ts'

const perAddress = configFile('  requests: { per: [ip], limit: 2, window: 1m }', {
  routes: '  - { match: "/*", upstream: data, authenticate: none, limits: [requests] }',
})

/** Example lines of the documentation of each program, and what they say. */
const EXAMPLES: readonly (readonly [format: string, lines: string, expected: Partial<LoggedCall>])[] = [
  [
    'combined',
    '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326',
    {
      decidedAt: Date.UTC(2000, 9, 10, 20, 55, 36),
      client: 'frank',
      ip: '127.0.0.1',
      requested: '/apache_pb.gif',
    },
  ],
  [
    'combined',
    '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a\\"b?c HTTP/1.0" 429 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"',
    { requested: '/a"b?c', decision: 'refused', failed: false },
  ],
  [
    'combined',
    'www.example.com:443 ::ffff:192.0.2.7 - john doe [10/Oct/2000:13:55:36 +0530] "GET / HTTP/2.0" 401 5 "-" "-"',
    { host: 'www.example.com', ip: '192.0.2.7', client: undefined, failed: true },
  ],
  [
    'caddy',
    '{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"127.0.0.1","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b=c","headers":{"User-Agent":["curl/7.82.0"]}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200}',
    {
      decidedAt: expect.closeTo(1_646_861_401_523.17, 1) as number,
      host: 'localhost',
      requested: '/a?b=c',
      ip: '127.0.0.1',
      client: undefined,
    },
  ],
  [
    'caddy',
    '{"level":"info","ts":"2026-11-20T10:00:00.500Z","msg":"handled request","request":{"client_ip":"192.0.2.1","method":"GET","host":"localhost","uri":"/"},"duration":"1m2.5s","status":200}',
    { decidedAt: Date.UTC(2026, 10, 20, 9, 58, 58), tookMs: 62_500 },
  ],
  [
    'caddy',
    '{"level":"info","ts":"2026/11/20 10:00:00.500","msg":"handled request","request":{"client_ip":"192.0.2.1","method":"GET","host":"localhost","uri":"/"},"duration":2500000,"status":200}',
    { loggedAt: Date.UTC(2026, 10, 20, 10, 0, 0, 500), tookMs: 2.5 },
  ],
  [
    'pino',
    '{"level":30,"time":1531171074631,"pid":657,"hostname":"web1","req":{"id":1,"method":"GET","url":"/a?b","query":{},"params":{},"headers":{"host":"localhost:20000","accept":"*/*"},"remoteAddress":"::ffff:127.0.0.1","remotePort":64661},"res":{"statusCode":200,"headers":{}},"responseTime":2,"msg":"request completed"}',
    {
      loggedAt: 1_531_171_074_631,
      tookMs: 2,
      host: 'localhost:20000',
      ip: '127.0.0.1',
      requested: '/a?b',
      failed: false,
    },
  ],
  [
    'pino',
    '{"level":"error","time":"2026-11-20T10:00:00.500Z","req":{"method":"POST","url":"/a","headers":{},"remoteAddress":"192.0.2.1"},"res":{"statusCode":500},"err":{"type":"Error"},"responseTime":12.5,"msg":"request errored"}',
    { loggedAt: Date.UTC(2026, 10, 20, 10, 0, 0, 500), tookMs: 12.5, failed: true },
  ],
  [
    'pino',
    '{"level":30,"time":1531171074600,"pid":657,"hostname":"web1","reqId":"req-1","req":{"method":"GET","url":"/a?b","host":"localhost:3000","remoteAddress":"192.0.2.1","remotePort":64661},"msg":"incoming request"}\n{"level":30,"time":1531171074631,"pid":657,"hostname":"web1","reqId":"req-1","res":{"statusCode":200},"responseTime":30.5,"msg":"request completed"}',
    { loggedAt: 1_531_171_074_631, tookMs: 30.5, host: 'localhost:3000', ip: '192.0.2.1', requested: '/a?b' },
  ],
  [
    'traefik',
    '192.168.33.1 - - [24/Nov/2026:20:15:04 +0000] "GET /api/v1 HTTP/1.1" 404 19 "-" "curl/7.5" 3 "api@docker" "http://10.0.0.5:80" 12ms',
    { decidedAt: Date.UTC(2026, 10, 24, 20, 15, 4), tookMs: 12, failed: true, requested: '/api/v1' },
  ],
  [
    'traefik',
    '{"ClientAddr":"192.0.2.1:5000","ClientHost":"192.0.2.1","ClientUsername":"-","DownstreamStatus":200,"Duration":1500000,"RequestHost":"api.example.com","RequestMethod":"GET","RequestPath":"/v1?x","StartUTC":"2026-11-24T20:15:04.123456789Z","level":"info","msg":"","time":"2026-11-24T20:15:05Z"}',
    {
      decidedAt: Date.UTC(2026, 10, 24, 20, 15, 4, 123),
      tookMs: 1.5,
      host: 'api.example.com',
      client: undefined,
    },
  ],
  [
    'kong',
    '{"latencies":{"request":515,"kong":58,"proxy":457},"request":{"headers":{"host":"api.example.com"},"method":"GET","uri":"/get?a=1","url":"http://api.example.com:8000/get?a=1"},"client_ip":"172.18.0.1","started_at":1614232642463,"response":{"status":200},"consumer":{"username":"acme","id":"8a2f"}}',
    {
      decidedAt: 1_614_232_642_463,
      tookMs: 515,
      client: 'acme',
      requested: '/get?a=1',
      host: 'api.example.com',
    },
  ],
  [
    'envoy',
    '[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28, 192.0.2.9" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"',
    { decidedAt: Date.UTC(2016, 3, 15, 20, 17, 0, 310), tookMs: 226, ip: '192.0.2.9', host: 'locations' },
  ],
  [
    'envoy',
    '[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/7.73.0-DEV" "84961386" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_ default',
    { tookMs: 3, ip: '10.44.1.23', host: 'httpbin:8000', requested: '/status/418' },
  ],
  [
    'envoy',
    '{"start_time":"2020-11-25T21:26:18.409Z","method":"GET","path":"/status/418","response_code":418,"duration":3,"authority":"httpbin:8000","x_forwarded_for":null,"downstream_remote_address":"10.44.1.23:37652"}',
    { tookMs: 3, ip: '10.44.1.23', failed: true },
  ],
  [
    'haproxy',
    'Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html#22 HTTP/1.1"',
    {
      decidedAt: new Date(2009, 1, 6, 12, 14, 14, 655).getTime(),
      tookMs: 109,
      ip: '10.0.1.2',
      requested: '/index.html"',
    },
  ],
  [
    'alb',
    'h2 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 10.0.1.252:48160 10.0.0.66:9000 0.000 0.002 -1 200 200 5 257 "GET https://10.0.2.105:773/a?b HTTP/2.0" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337327-72bd00b0343d75b906739c42" "-" "-" 1 2018-07-02T22:22:48.364000Z "redirect" "https://example.com:80/" "-" "10.0.0.66:9000" "200" "-" "-"',
    {
      loggedAt: Date.UTC(2018, 6, 2, 22, 23, 0, 186),
      tookMs: 2,
      host: '10.0.2.105:773',
      requested: '/a?b',
      ip: '10.0.1.252',
    },
  ],
  [
    'cloudfront',
    '#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken\n2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.100\tGET\td111111abcdef8.cloudfront.net\t/index.html\t200\t-\tMozilla/5.0%20(Windows)\ta=b\t-\tHit\tSOX4xwn4XV6Q4rgb7XiVGOHms_BGlTAC4KyHmureZmBNrjGdRLiNIQ==\tapi.example.com\thttps\t23\t0.001',
    {
      loggedAt: Date.UTC(2019, 11, 4, 21, 2, 31),
      tookMs: 1,
      host: 'api.example.com',
      requested: '/index.html?a=b',
    },
  ],
  [
    'cloudfront',
    '#Software: Microsoft Internet Information Services 10.0\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken\n2026-05-02 17:42:15 172.22.255.255 GET /images/picture.jpg - 80 - 172.22.0.7 Mozilla/4.0 - 404 0 0 31',
    { tookMs: 31, ip: '172.22.0.7', requested: '/images/picture.jpg', client: undefined, failed: true },
  ],
  [
    'json',
    '{"time_local":"10/Oct/2000:13:55:36 -0700","remote_addr":"192.0.2.1","remote_user":"","request":"GET /v1?a HTTP/1.1","status": "200","request_time":"0.250","host":"api.example.com"}',
    {
      tookMs: 250,
      decidedAt: Date.UTC(2000, 9, 10, 20, 55, 35, 750),
      requested: '/v1?a',
      client: undefined,
      failed: false,
    },
  ],
  [
    'json',
    '{"timestamp":1700000000,"request_method":"GET","request_uri":"/v1?a","uri":"/index.php","client_ip":"192.0.2.1","status_code":500}',
    { decidedAt: 1_700_000_000_000, requested: '/v1?a', failed: true },
  ],
]

const recognize = (lines: readonly string[]) => createRecognizer(FORMAT_NAMES)(lines)

function readAll(read: ReadLine, lines: readonly string[]) {
  return lines.map(read).find((read) => typeof read === 'object')
}

describe('a format of logs', () => {
  it('is one that --format names', () => {
    expect(FORMAT_NAMES.toSorted()).toEqual(LOG_FORMATS.filter((name) => name !== 'auto').toSorted())
  })

  it.each(EXAMPLES)('is recognised as %s and read: %s', (format, text, expected) => {
    const lines = text.split('\n')
    const recognized = recognize(lines)
    expect(recognized?.format).toBe(format)
    expect(readAll(recognized!.read, lines)).toMatchObject(expected)
  })

  it('of Fastify is not read in part: the end of a request without its beginning is unreadable', () => {
    const [begin, end] = ['"req":{"method":"GET","url":"/a"}', '"res":{"statusCode":200},"responseTime":1']
    const line = (pid: number, id: number, rest: string) =>
      `{"time":1531171074600,"pid":${pid},"reqId":"req-${id}",${rest}}`
    const { read } = recognize([line(1, 1, begin), line(1, 1, end)])!
    expect(read(line(1, 2, end))).toHaveProperty('unreadable')
    read(line(1, 2, begin))
    expect(read(line(2, 2, end))).toHaveProperty('unreadable')
    expect(read(line(1, 2, end))).toMatchObject({ requested: '/a', failed: false })
    expect(read(line(1, 2, end))).toHaveProperty('unreadable')
  })

  it.each(['log', 'message', 'MESSAGE', 'line'])(
    'is recognised in the member %s of a collector',
    (member) => {
      for (const [format, text, expected] of [
        ...EXAMPLES,
        ['sluice', line({ at: 0 }), { client: 'acme' }] as const,
      ]) {
        const lines = text
          .split('\n')
          .map((one) => JSON.stringify({ [member]: `${one}\n`, stream: 'stdout' }))
        const recognized = recognize(lines)
        expect(recognized?.format).toBe(format)
        expect(readAll(recognized!.read, lines)).toMatchObject(expected)
      }
    },
  )

  it.each([
    '<134>Feb  6 12:14:14 web1 nginx: ',
    '2026-11-20T10:00:01.003+00:00 web1 nginx[31]: ',
    '2026-11-20T10:00:01.003Z stdout F ',
    'proxy-1  | ',
  ])('is recognised after the prefix of a collector: %s', (prefix) => {
    const [format, text, expected] = EXAMPLES[0]!
    const recognized = recognize([prefix + text])
    expect(recognized?.format).toBe(format)
    expect(recognized!.read(prefix + text)).toMatchObject(expected)
  })

  it.each([
    '"" 400 0 "-" "-"',
    '"\\x16\\x03\\x01" 400 157 "-" "-"',
    '"GET /a" 200 1 "-" "-"',
    '"BREW /a HTTP/1.1" 418 1 "-" "-"',
  ])('counts a request that is not HTTP: %s', (rest) => {
    const recognized = recognize([EXAMPLES[0]![1]])
    expect(recognized!.read(`192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] ${rest}`)).toBe('malformed')
  })

  it.each([
    [' '.repeat(65_000), 'blanks'],
    ['"'.repeat(65_000), 'quotes'],
    ['\\'.repeat(65_000), 'backslashes'],
    ['['.repeat(65_000), 'brackets'],
    ['a '.repeat(32_000), 'words'],
    ['{"a":'.repeat(13_000), 'objects'],
    [`1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /${'#22'.repeat(20_000)} HTTP/1.1" 200`, 'escapes'],
  ])('reads a long line in a time that grows with its length: $1', (text) => {
    const started = process.cpuUsage()
    for (const format of FORMAT_NAMES) createRecognizer([format])([text])
    const { user } = process.cpuUsage(started)
    // Some 0.1 s; quadratic time would take a minute in all formats.
    expect(user).toBeLessThan(5_000_000)
  })
})

it.each([
  ['2026-11-20T10:00:00.500Z', 1_795_168_800_500],
  ['2026-11-20T11:00:00.500+01:00', 1_795_168_800_500],
  ['20/Nov/2026:05:00:00 -0500', 1_795_168_800_000],
  ['20/Nov/2026:15:30:00 +0530', 1_795_168_800_000],
  [1_795_168_800.5, 1_795_168_800_500],
  [1_795_168_800_500, 1_795_168_800_500],
  ['1795168800.5', 1_795_168_800_500],
  ['1795168800500', 1_795_168_800_500],
  [1_795_168_800_500_000, 1_795_168_800_500],
  ['soon', Number.NaN],
  ['20/Foo/2026:05:00:00 -0500', Number.NaN],
  [undefined, Number.NaN],
] as const)('the instant %s is read as %s', (value, ms) => expect(readInstant(value)).toBe(ms))

it.each([
  ['1m2.5s', 62_500],
  ['1h0m0s', 3_600_000],
  ['6.31ms', 6.31],
  ['250µs', 0.25],
  ['900ns', 0.0009],
  [0.25, 250],
  ['soon', Number.NaN],
  ['1h', Number.NaN],
  [undefined, Number.NaN],
] as const)('the duration %s is read as %s ms', (value, ms) => expect(readDuration(value)).toBe(ms))

describe('sluice replay of the same day, recorded by other proxies', () => {
  const recorded = readdirSync(join(REPOSITORY, 'test/commands/replay/recorded'))
  const others = recorded.filter((name) => name !== 'sluice.log')
  const linesOf = (name: string) => fileText(`test/commands/replay/recorded/${name}`).trimEnd().split('\n')
  let own: ReturnType<typeof figuresOf>
  beforeAll(async () => {
    own = figuresOf(await replayed(linesOf('sluice.log'), dayConfig()))
  })

  it('has the logs of four proxies', () => {
    expect(others).toEqual(['apache.log', 'caddy.log', 'haproxy.log', 'nginx.log'])
  })

  it.each(others)('gives the same figures as the log of Sluice: %s', async (name) => {
    const report = await replayed(linesOf(name), dayConfig())
    expect(figuresOf(report)).toEqual(own)
    expect(own.totals).toMatchObject({ calls: 19, refused: 7 })
    expect(report.clients.map(({ client }) => client)).toContain('ip:127.0.0.3')
    expect(report.lines).toMatchObject({ malformed: 1, unmatched: 2, refusedBefore: 0, other: 0 })
  })
})

describe('sluice replay of the log of another proxy', () => {
  const access = (secs: number, path = '/', ip = '192.0.2.1') =>
    `${ip} - - [20/Nov/2026:10:00:${String(secs).padStart(2, '0')} +0000] "GET ${path} HTTP/1.1" 200 5 "-" "-"`
  const run = (lines: readonly string[] | Buffer, ...more: readonly string[]) =>
    sluice(['replay', logFile(lines), '--config', perAddress, ...more])

  it('counts by what the limit counts by, says the format, and what Sluice would answer before any limit', async () => {
    const { code, stdout, stderr } = await run([
      ...[access(1), access(2), access(3), access(4, '/', '192.0.2.10')],
      ...[access(5, '/../x'), access(6, '/%zz'), access(7, '/a', 'host.example')],
    ])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(/^ip:192\.0\.2\.1 +- +3 +2 +0 -> 1 +requests 1 +3 from 2026-11-20T10:00:01/m)
    expect(stdout).toMatch(/^ip:192\.0\.2\.10 +- +1 +1 +0 /m)
    expect(stdout).toMatch(/^2 +malformed, ambiguous or with a wrong parameter: Sluice would answer 400$/m)
    expect(stdout).toMatch(/^1 +without the client, the address, the host/m)
    expect(stdout).toMatch(/\.log was read as a log of the format combined\.\n$/)
  })

  it('counts the calls that would get a 401, 404 or 405', async () => {
    const config = configFile('  requests: { per: [client], limit: 2, window: 1m }', {
      routes: '  - { match: "GET /a", upstream: data, authenticate: bearer, limits: [requests] }',
    })
    const report = await replayed([access(1, '/a'), access(2, '/b')], config)
    expect(report.lines).toMatchObject({ replayed: 0, unauthenticated: 1, unmatched: 1 })
  })

  it('leaves out calls without a host if routes name hosts', async () => {
    const config = configFile('  requests: { per: [ip], limit: 2, window: 1m }', {
      routes: '  - { match: "api.example.com/*", upstream: data, authenticate: none, limits: [requests] }',
    })
    const lines = [access(1), `api.example.com:443 ${access(2)}`]
    expect((await replayed(lines, config)).lines).toMatchObject({ replayed: 1, lacking: 1 })
  })

  it('prints the report and exits with 1 if a line of it could not be read', async () => {
    const ended = await run([access(1), 'nonsense', access(2), 'x'.repeat(70_000)])
    expect(ended).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^2 +could not be read: the figures lack them$/m),
      stderr: expect.stringMatching(
        /: 2 lines could not be read as combined; the first, line 2, is not of the form/,
      ),
    })
  })

  it('exits with 1 for a line of HAProxy that is cut within its request, which is not a malformed one', async () => {
    const haproxy = (rest: string) =>
      `haproxy[1]: 192.0.2.1:4711 [20/Nov/2026:10:00:00.123] fe be/one 0/0/0/12/12 200 103 - - ---- 1/1/0/0/0 0/0 "GET /api/v1${rest}`
    const tls = ' 0/0000000000000000/0/0/0 api.example.com/TLSv1.3/TLS_AES_256_GCM_SHA384'
    const host = 'Nov 20 10:00:00 host '
    const ended = await run([
      `${host}${haproxy(' HTTP/1.1"')}`,
      `${host}${haproxy(` HTTP/1.1"${tls}`)}`,
      `${host}${haproxy('/a-long-path')}`,
      `${host}${haproxy(' HTTP/1.1"')}`,
    ])
    expect(ended).toMatchObject({ code: 1, stderr: expect.stringMatching(/line 3, ends within its request/) })
    expect(ended.stdout).toMatch(/^3 +replayed$/m)
  })

  it.each([
    [
      '[2026-11-20T10:00:00.310Z] "GET /api HTTP/2" 200 - 154 0 226 100 "192.0.2.1, 192.0.2.2',
      '8" "curl/8" "id" "host" "tcp://10.0.2.1:80"',
      'ends before its user agent',
    ],
    [
      'http 2026-11-20T10:00:00.186641Z app/a/b 192.0.2.1:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET http://a.example:80/api',
      '/v1 HTTP/1.1" "curl/8" - -',
      'does not have the fields of a load balancer',
    ],
  ])('exits with 1 for a line that is cut within a field: %s', async (start, end, why) => {
    const ended = await run([`${start}${end}`, start, `${start}${end}`])
    expect(ended).toMatchObject({ code: 1, stderr: expect.stringContaining(`line 2, ${why}`) })
    expect(ended.stdout).toMatch(/^2 +replayed$/m)
  })

  it('reads the lines that journald writes as bytes', async () => {
    const ended = await run([JSON.stringify({ MESSAGE: [...Buffer.from(access(1))] })])
    expect(ended).toMatchObject({ code: 0, stdout: expect.stringMatching(/^1 +replayed$/m) })
  })

  it('reads a log that begins with more empty lines than a function has arguments, and counts them', async () => {
    const ended = await run(Buffer.from(`${'\n'.repeat(300_000)}${access(1)}\nnonsense\n`))
    expect(ended).toMatchObject({ code: 1, stdout: expect.stringMatching(/^1 +replayed$/m) })
    expect(ended.stderr).toContain('the first, line 300002, is not of the form')
    const unread = await run(Buffer.from(`${'\n'.repeat(1500)}nonsense\n`))
    expect(unread).toMatchObject({ code: 1, stderr: expect.stringContaining('(line 1501)') })
  })

  it.each(['', 'proxy-1  | '])('counts the lines of the nginx image besides requests: %s', async (prefix) => {
    const besides = [
      '/docker-entrypoint.sh: Launching /docker-entrypoint.d/10-listen-on-ipv6-by-default.sh',
      '10-listen-on-ipv6-by-default.sh: info: Getting the checksum of /etc/nginx/conf.d/default.conf',
      '/docker-entrypoint.sh: Sourcing /docker-entrypoint.d/15-local-resolvers.envsh',
      '2026/11/29 10:00:00 [notice] 1#1: nginx/1.29.3',
    ]
    const during = '2026/11/29 10:00:02 [error] 31#31: *1 limiting requests, excess: 20.820 by zone "api"'
    const json =
      '{"time":"2026-11-20T10:00:01Z","request":"GET / HTTP/1.1","status":"200","remote_addr":"192.0.2.1"}'
    for (const request of [access(1), json]) {
      const lines = [...besides, request, during, request].map((one) => prefix + one)
      const ended = await run(lines)
      expect(ended).toMatchObject({ code: 0, stderr: '' })
      expect(ended.stdout).toMatch(/^2 +replayed\n5 +not of requests$/m)
    }
    const ended = await run([...besides, 'a line of another program', access(1)])
    expect(ended).toMatchObject({ code: 1, stderr: expect.stringContaining('1 line could not be read') })
  })

  it.each([
    ['combined', access(1), 18],
    ['combined', access(1), 55],
    ['sluice', line({ at: 0 }), 40],
    ['sluice', line({ at: 0 }), -1],
  ] as const)('exits with 1 if the log ends within a line: %s', async (format, text, end) => {
    const ended = await run(Buffer.from(`${text}\n${text.slice(0, end)}`))
    expect(ended).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^1 +replayed$/m),
      stderr: expect.stringContaining(`: 1 line could not be read as ${format}; the first, line 2, `),
    })
  })

  it.each([
    [
      ['half a sentence'],
      [],
      /no line of a request was found; read as combined, it is not of the form.*\(line 1\)/,
    ],
    [['', '{"a":1}'], [], /read as json, it has no time: none of time, .* \(line 2\)/],
    [['{"msg":"request","time":"soon"}'], ['--format', 'sluice'], /read as sluice, it has no "method"/],
    [[access(1)], ['--format', 'caddy'], /read as caddy, it is not a JSON object/],
  ] as const)('exits with 1 and the reason if no line can be read: %s %s', async (lines, flags, message) => {
    expect(await run(lines, ...flags)).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(message),
    })
  })

  it('reads the format that --format names, and refuses others', async () => {
    const { stdout } = await run([access(1)], '--format', 'combined', '--json')
    expect(JSON.parse(stdout)).toMatchObject({ logs: [{ format: 'combined', unreadable: 0 }] })
    expect(await run([access(1)], '--format', 'xml')).toMatchObject({ code: 64 })
  })

  it.each([
    ['zstd', '28b52ffd00', 'zstd -dc'],
    ['xz', 'fd377a585a00', 'xz -dc'],
    ['bzip2', '425a6839', 'bzip2 -dc'],
  ] as const)('says how to read a log that is compressed by %s', async (name, magic, program) => {
    const ended = await run(Buffer.from(magic, 'hex'))
    const canRead = name === 'zstd' && 'createZstdDecompress' in (await import('node:zlib'))
    const message = canRead
      ? /is a compressed file that is damaged or cut/
      : new RegExp(`is compressed by ${name}; decompress it: ${program} \\S+\\.log \\| sluice replay -`)
    expect(ended).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(message) })
  })
})
