import { connect } from 'node:net'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { REFUSED, SAME } from '../edge/aliases.ts'
import { FRAMINGS } from '../edge/framing/corpus.ts'
import { startStrictUpstream } from '../edge/strict-upstream.ts'
import { anyText } from '../helpers/any-text.ts'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { until } from '../helpers/wait.ts'
import { LONG, PATIENCE_MS, runs } from '../helpers/runs.ts'

/** Concurrent requests. */
const AT_ONCE = 24
/** Maximum time that a caller waits, in milliseconds. */
const LONGEST_MS = 250
const QUIET_MS = 20

const back = await startStrictUpstream()
// An exception or an unhandled rejection in it fails the test.
const gateway = await startGateway({
  data: back.url,
  limit: 100_000_000,
  routes: [
    { match: 'POST /par/:case/request', upstream: 'identity', authenticate: 'par' },
    { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
    { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'], maxBody: '2kB' },
  ],
  more: { par: { issuer: 'https://identity.example.com/oidc', maxBody: '2kB' } },
})
const mine = await token('fuzz')

const seeds = [
  ...FRAMINGS.map(({ bytes }) => bytes.join('')),
  ...[...SAME.map(([, alias]) => alias), ...REFUSED].map((alias) =>
    typeof alias === 'string'
      ? `POST ${alias} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\n\r\n`
      : `${alias.line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\n${alias.fields.join('\r\n')}\r\n\r\n`,
  ),
].filter((text) => text.length < 4000)
const OPERATORS = [
  'GET /healthz',
  'GET /readyz',
  'GET /metrics',
  'GET /limits/fuzz',
  'DELETE /limits/a%20b',
  'GET /limits/%zz',
  'GET /',
  'HEAD //[',
  'POST http://[::1/x',
]
/** Requests for the admin listener. */
const operators = OPERATORS.map((line) => `${line} HTTP/1.1\r\nHost: localhost\r\n\r\n`)

const TOKENS = [
  ...[
    '\r\n',
    '\n',
    '\r',
    '\r\n\r\n',
    ' ',
    '\t',
    '\u0000',
    ':',
    ',',
    ';',
    '0',
    '0\r\n\r\n',
    'ffffffff',
    '-1',
    '%',
    '//',
    '..',
    '\u00ff',
    '\u000b',
  ],
  ...[
    'Content-Length: 5\r\n',
    'Content-Length: 0\r\n',
    'Transfer-Encoding: chunked\r\n',
    'Transfer-Encoding: identity\r\n',
    'Host: b\r\n',
    'Connection: close\r\n',
    'Connection: upgrade\r\n',
    'Upgrade: h2c\r\n',
    'Expect: 100-continue\r\n',
    'Trailer: X\r\n',
    'X-HTTP-Method-Override: GET\r\n',
    'Authorization: Bearer x\r\n',
  ],
  ...[
    'GET ',
    'POST ',
    'HEAD ',
    'DELETE ',
    'CONNECT ',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    ' HTTP/1.0\r\n',
    ' HTTP/1.1\r\n',
    'http://a/',
  ],
]

/** One change: at a position, a number of bytes is replaced. */
const change = fc.record({
  at: fc.double({ min: 0, max: 1, noNaN: true }),
  cut: fc.oneof({ weight: 3, arbitrary: fc.nat(4) }, fc.nat(200)),
  put: fc.oneof(
    fc.constant(''),
    fc.constantFrom(...TOKENS),
    anyText({ maxLength: 4 }),
    fc.constantFrom(...seeds),
  ),
})
const atCallers = fc.record({
  admin: fc.constant<boolean>(false),
  seed: fc.constantFrom(...seeds),
  changes: fc.array(change, { minLength: 1, maxLength: 4 }),
  /** The position at which the bytes are split in two pieces. */
  pause: fc.option(fc.double({ min: 0, max: 1, noNaN: true }), { nil: undefined }),
  leave: fc.constantFrom('close', 'end', 'reset'),
})
type Mutant = typeof atCallers extends fc.Arbitrary<infer T> ? T : never
const mutant: fc.Arbitrary<Mutant> = fc.oneof(
  { weight: 9, arbitrary: atCallers },
  fc.tuple(atCallers, fc.constantFrom(...operators)).map(([one, seed]) => ({ ...one, admin: true, seed })),
)

function bytesOf({ seed, changes }: Mutant): Buffer {
  let text = seed
  for (const { at, cut, put } of changes) {
    const i = Math.floor(at * text.length)
    text = text.slice(0, i) + put + text.slice(i + cut)
  }
  return Buffer.from(text.replaceAll('CASE', '0000').replaceAll('TOKEN', mine), 'latin1')
}

/** Sends bytes, and disconnects when the gateway has closed the socket, or after a timeout. */
function throwAt(mutant: Mutant): Promise<void> {
  const bytes = bytesOf(mutant)
  return new Promise((resolve) => {
    const socket = connect(mutant.admin ? gateway.adminPort : gateway.port, '127.0.0.1')
    const leave = (): void => {
      if (mutant.leave === 'reset') socket.resetAndDestroy()
      else if (mutant.leave === 'end') socket.end(() => setTimeout(() => socket.destroy(), QUIET_MS))
      else socket.destroy()
    }
    const hard = setTimeout(leave, LONGEST_MS)
    let quiet: NodeJS.Timeout | undefined
    socket.on('connect', () => {
      const at = Math.floor((mutant.pause ?? 1) * bytes.length)
      socket.write(bytes.subarray(0, at))
      if (at < bytes.length) setTimeout(() => socket.writable && socket.write(bytes.subarray(at)), 5)
    })
    socket.on('data', () => {
      clearTimeout(quiet)
      quiet = setTimeout(leave, QUIET_MS)
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      clearTimeout(hard)
      clearTimeout(quiet)
      resolve()
    })
  })
}

const metrics = async (): Promise<string> => (await call(gateway.adminPort, { path: '/metrics' })).body
const sum = (text: string, pattern: RegExp): number =>
  [...text.matchAll(pattern)].reduce((all, [, value]) => all + Number(value), 0)
/** Open descriptors, without both ends of the kept sockets to the upstream. */
const held = async (): Promise<number> =>
  sum(await metrics(), /^process_open_fds (\d+)/gm) - 2 * back.sockets()

it(
  'any bytes: the gateway survives, charges each forwarded request, forwards only unambiguous requests, and closes their sockets',
  async () => {
    // On a busy machine, the first read of the keys may take longer than its timeout.
    await until('its keys are read', async () => {
      const { status } = await call(gateway.port, { path: '/v3/x', token: mine })
      return status === 200
    })
    const before = await held()
    await fc.assert(
      fc.asyncProperty(fc.array(mutant, { minLength: AT_ONCE, maxLength: AT_ONCE }), async (mutants) => {
        await Promise.all(mutants.map(throwAt))
        expect(back.flaws).toEqual([])
        if (LONG) back.forget()
      }),
      { ...runs(6), endOnFailure: true },
    )
    expect(await call(gateway.port, { path: '/v3/x', token: mine })).toMatchObject({ status: 200 })
    const text = await metrics()
    const admitted = sum(
      text,
      /^sluice_limit_decisions_total\{limit="requests",outcome="(?:within|near)"\} (\d+)/gm,
    )
    expect(admitted).toBeGreaterThan(1)
    if (!LONG) {
      const seen = back.requests.filter(({ line }) => !/ \/(?:oidc|par)\//i.test(line)).length
      expect(seen).toBeLessThanOrEqual(admitted)
    }
    expect(text).not.toMatch(/code="500".*\} [1-9]/)
    await until('no socket is left behind', async () => (await held()) <= before + 1)
  },
  PATIENCE_MS,
)
