import type { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { get, type Got } from '../helpers/front.ts'
import { startLogging, written } from '../helpers/gateway.ts'
import { deadUrl } from '../helpers/ports.ts'
import { startRawUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Timeout of an upstream in these tests, in milliseconds. */
const TIMEOUT_MS = 2000

/** Result for the caller and in the log; `cut`: the caller can see that the response is incomplete. */
interface Expected {
  readonly status: number
  readonly body?: string
  readonly cut?: boolean
  readonly cause?: RegExp
}

const BROKEN: Expected = { status: 502, cause: /socket hang up|ECONNRESET|EPIPE/ }
const GARBLED: Expected = { status: 502, cause: /Parse Error|HPE_|Content-Length|Invalid/ }
const SILENT: Expected = { status: 504, cause: /silent for 2000 ms/ }
const cut = (cause: RegExp): Expected => ({ status: 200, cut: true, cause })
const CUT = cut(/cut|aborted|ECONNRESET/)
const STALLED = cut(/silent for 2000 ms/)
const whole = (body: string): Expected => ({ status: 200, body })

const OK = 'HTTP/1.1 200 OK\r\n'
const LENGTH = `${OK}Content-Length: 5\r\n\r\n`
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`
const CLOSING = `${OK}Connection: close\r\n\r\n`

type Then = 'waits' | 'ends' | 'resets'
/** Time after which the caller has the first bytes. */
const LATER_MS = 500

/** First bytes of an upstream, its next action, and later bytes, if any. */
const FAULTS: readonly (readonly [
  what: string,
  says: string,
  then: Then,
  expected: Expected,
  later?: string,
])[] = [
  ['nothing', '', 'waits', SILENT],
  ['nothing', '', 'ends', BROKEN],
  ['nothing', '', 'resets', BROKEN],
  ['half a status line', 'HTTP/1.1 2', 'waits', SILENT],
  ['half a status line', 'HTTP/1.1 2', 'ends', BROKEN],
  ['half a head', `${OK}X-A: b\r\n`, 'waits', SILENT],
  ['half a head', `${OK}X-A: b\r\n`, 'ends', { ...BROKEN, cause: /hang up|Parse Error/ }],
  ['half a head', `${OK}X-A: b\r\n`, 'resets', BROKEN],
  ['an interim answer and no other', 'HTTP/1.1 103 Early Hints\r\n\r\n', 'waits', SILENT],
  ['an interim answer and no other', 'HTTP/1.1 103 Early Hints\r\n\r\n', 'ends', BROKEN],
  ['100 unasked', `HTTP/1.1 100 Continue\r\n\r\n${LENGTH}hello`, 'waits', whole('hello')],
  ['bytes that are not HTTP', '220 mail.example ESMTP\r\n', 'waits', GARBLED],
  ['TLS', '\u0015\u0003\u0001\u0000\u0002\u0002\u0016', 'waits', GARBLED],
  ['a request', 'GET / HTTP/1.1\r\nHost: a\r\n\r\n', 'waits', GARBLED],
  ['two lengths', `${OK}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!`, 'waits', GARBLED],
  ['a length that is none', `${OK}Content-Length: 5x\r\n\r\nhello`, 'waits', GARBLED],
  ['a length below nothing', `${OK}Content-Length: -5\r\n\r\nhello`, 'waits', GARBLED],
  [
    'a length and chunks',
    `${OK}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    'waits',
    GARBLED,
  ],
  ['line ends without CR', 'HTTP/1.1 200 OK\nContent-Length: 5\n\nhello', 'waits', GARBLED],
  ['a blank before a colon', `${OK}X-Odd : 1\r\nContent-Length: 5\r\n\r\nhello`, 'waits', GARBLED],
  ['a blank after the size of a chunk', `${CHUNKED}5 \r\nhello\r\n0\r\n\r\n`, 'waits', GARBLED],
  ['a chunk that is none', `${CHUNKED}zz\r\nhello\r\n`, 'waits', GARBLED],
  ['a chunk longer than it says', `${CHUNKED}2\r\nhello\r\n0\r\n\r\n`, 'waits', GARBLED],
  [
    'a switch of protocols',
    'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n',
    'waits',
    { status: 502, cause: /unasked/ },
  ],
  ['a head alone', LENGTH, 'waits', STALLED],
  ['a head alone', LENGTH, 'ends', CUT],
  ['half a body', `${LENGTH}he`, 'waits', STALLED],
  ['half a body', `${LENGTH}he`, 'ends', CUT],
  ['half a body', `${LENGTH}he`, 'resets', CUT],
  ['a chunk', `${CHUNKED}2\r\nhe\r\n`, 'waits', STALLED],
  ['a chunk', `${CHUNKED}2\r\nhe\r\n`, 'ends', CUT],
  ['a chunk', `${CHUNKED}2\r\nhe\r\n`, 'resets', CUT],
  ['half a chunk', `${CHUNKED}5\r\nhe`, 'ends', CUT],
  ['all chunks but the end', `${CHUNKED}5\r\nhello\r\n0\r\n`, 'ends', CUT],
  ['a chunk and then none', `${CHUNKED}2\r\nhe\r\n`, 'waits', cut(/Parse Error/), 'zz\r\n'],
  ['a body without length', `${CLOSING}he`, 'waits', STALLED],
  ['a body without length', `${CLOSING}he`, 'resets', CUT],
  ['a body without length', `${CLOSING}hello`, 'ends', whole('hello')],
  ['a body without length, and empty', CLOSING, 'ends', whole('')],
  ['more than it says', `${LENGTH}hello and more`, 'waits', whole('hello')],
  ['more than the last chunk', `${CHUNKED}5\r\nhello\r\n0\r\n\r\nmore`, 'waits', whole('hello')],
  ['two answers', `${LENGTH}hello${LENGTH}other`, 'waits', whole('hello')],
  ['another answer later', `${LENGTH}hello`, 'waits', whole('hello'), `${LENGTH}other`],
  ['a whole answer', `${LENGTH}hello`, 'ends', whole('hello')],
]

const outcomes: Got[] = []

const latest = new WeakMap<Socket, string>()
const back = await startRawUpstream((socket, request) => {
  const path = /^\w+ \/(\d+) /.exec(request.toString())?.[1]
  // What is left of a body.
  if (path === undefined) return
  const [, says, then, , later] = FAULTS[Number(path)]!
  if (says !== '') socket.write(says, 'latin1')
  latest.set(socket, path)
  setTimeout(() => {
    // The next request on this socket has a fault of its own.
    if (latest.get(socket) !== path) return
    if (later !== undefined) socket.write(later)
    else if (then === 'ends') socket.end()
    else if (then === 'resets') socket.resetAndDestroy()
  }, LATER_MS)
})
const plain = await startRawUpstream((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'))
const gateway = await startLogging(
  written(`listen: { host: 127.0.0.1, port: 0 }
admin: { port: 0 }
log: { format: json }
store: memory
upstreams:
  data: { url: "${back.url}", timeout: ${TIMEOUT_MS}ms }
  dead: { url: "${await deadUrl()}" }
  nowhere: { url: "http://nowhere.invalid" }
  plain: { url: "https://127.0.0.1:${plain.port}" }
routes:
${['dead', 'nowhere', 'plain'].map((name) => `  - { match: "/${name}", upstream: ${name}, authenticate: none }`).join('\n')}
  - { match: "/*", upstream: data, authenticate: none }
`),
)
const asked = FAULTS.map((_, i) =>
  get(gateway.port, `/${i}`, { method: i % 2 === 0 ? 'GET' : 'POST' }, i % 2 === 0 ? undefined : 'x'),
)
outcomes.push(...(await Promise.all(asked)))

const linesOf = (path: string) =>
  gateway.lines().filter((line) => line['msg'] === 'request' && line['path'] === path)

describe('faults of an upstream', () => {
  it.each(FAULTS.map((fault, i) => [...fault.slice(0, 1), fault[2], i] as [string, Then, number]))(
    'an upstream that says %s and %s gets its expected response and one log line',
    async (_, __, i) => {
      const { status, body, cut = false, cause } = FAULTS[i]![3]
      const got = outcomes[i]!
      expect(got).toMatchObject({ status, whole: !cut })
      if (body !== undefined) expect(got.body).toBe(body)
      await until('its line', () => linesOf(`/${i}`).length > 0)
      const lines = linesOf(`/${i}`)
      expect(lines).toHaveLength(1)
      expect(lines[0]).toMatchObject({ status, source: status === 200 ? 'upstream' : 'gateway' })
      expect(lines[0]!['incomplete']).toBe(cut ? 'cut' : undefined)
      if (cause === undefined) expect(lines[0]).not.toHaveProperty('cause')
      else expect(lines[0]!['cause']).toMatch(cause)
    },
  )

  it.each([
    ['dead', 'cannot be reached', /ECONNREFUSED/],
    ['nowhere', 'cannot be reached', /ENOTFOUND|EAI_AGAIN/],
    ['plain', 'cannot be reached', /wrong version|packet|ECONNRESET/],
  ])('an upstream that cannot be reached gives a 502 without its address: %s', async (name, words, cause) => {
    const got = await get(gateway.port, `/${name}`, { method: 'POST' }, 'x')
    expect(got).toMatchObject({ status: 502, whole: true })
    expect(got.body).toContain(words)
    // Where it is and what went wrong is the operator's to know.
    expect(got.body).not.toMatch(/127\.0\.0\.1|nowhere|E[A-Z]+/)
    await until('its line', () => linesOf(`/${name}`).length === 1)
    expect(linesOf(`/${name}`)[0]!['cause']).toMatch(cause)
  })

  it('an upstream that fails passes no response of one caller to another, and leaves no socket behind', async () => {
    const good = FAULTS.findIndex(([what]) => what === 'a whole answer')
    for (let round = 0; round < 5; round++) {
      for (const what of [
        'two answers',
        'more than it says',
        'another answer later',
        'more than the last chunk',
      ]) {
        await get(gateway.port, `/${FAULTS.findIndex(([other]) => other === what)}`)
        expect(await get(gateway.port, `/${good}`)).toMatchObject({ status: 200, body: 'hello' })
      }
    }
    await until('no socket upstream', () => back.sockets() === 0, 15_000)
  })
})
