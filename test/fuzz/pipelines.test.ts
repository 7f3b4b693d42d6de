import { connect } from 'node:net'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { FRAMINGS } from '../edge/framing/corpus.ts'
import { type Framing, HOST, LAST } from '../edge/framing/wire.ts'
import { startStrictUpstream } from '../edge/strict-upstream.ts'
import { startGateway, token } from '../helpers/gateway.ts'
import { statuses } from '../helpers/raw.ts'
import { LONG, PATIENCE_MS, runs } from '../helpers/runs.ts'

const back = await startStrictUpstream()
const gateway = await startGateway({
  data: back.url,
  limit: 100_000_000,
  routes: [
    { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
    { match: '/body/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'], body: true },
    { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'], maxBody: '2kB' },
  ],
})
const mine = await token('pipeline')

/** Requests that leave their socket open, with their responses. */
const honest: readonly Framing[] = FRAMINGS.filter(
  ({ bytes, answers, orRefused }) =>
    orRefused !== true && bytes.length === 1 && bytes[0]!.endsWith(LAST) && answers.join() === '200,200',
)
  .filter(({ bytes }) => bytes[0]!.length < 4000 && !bytes[0]!.includes('/par/'))
  .map((framing) => ({
    ...framing,
    bytes: [framing.bytes[0]!.slice(0, -LAST.length)],
    answers: [200],
    reaches: framing.reaches!.slice(0, 1),
  }))
/** Refused requests that leave the socket open. */
const refused: readonly Framing[] = [
  { name: 'no token', bytes: [`GET /v3/CASE/x HTTP/1.1\r\n${HOST}\r\n`], answers: [401] },
  { name: 'a bad target', bytes: [`GET /oidc/CASE/%00x HTTP/1.1\r\n${HOST}\r\n`], answers: [400] },
  {
    name: 'a bad token',
    bytes: [`POST /v3/CASE/x HTTP/1.1\r\n${HOST}Authorization: Bearer x\r\nContent-Length: 0\r\n\r\n`],
    answers: [401],
  },
]
/** Refused requests that end the socket: nothing after them is read. */
const fatal = FRAMINGS.filter(
  ({ bytes, answers, charges, ends }) =>
    bytes.length === 1 &&
    answers.join() === '400' &&
    charges === undefined &&
    ends !== true &&
    bytes[0]!.includes('/hidden') &&
    bytes[0]!.startsWith('POST /v3/'),
)

/** Sends the bytes in pieces, split at `cuts`. Returns all that is received until the socket closes. */
function converse(bytes: Buffer, cuts: readonly number[]): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(gateway.port, '127.0.0.1').setNoDelay(true)
    let said = ''
    const hard = setTimeout(() => socket.destroy(), 15_000)
    const ends = [
      ...cuts.map((cut) => Math.floor(cut * bytes.length)).toSorted((a, b) => a - b),
      bytes.length,
    ]
    let sent = 0
    const send = (): void => {
      const end = ends.shift()
      if (end === undefined || !socket.writable) return
      socket.write(bytes.subarray(sent, end), () => setImmediate(send))
      sent = end
    }
    socket.on('connect', send)
    socket.on('data', (data: Buffer) => (said += data.toString('latin1')))
    socket.on('error', () => {})
    socket.on('close', () => {
      clearTimeout(hard)
      resolve(said)
    })
  })
}

let sockets = 0
it(
  'any sequence of requests on a socket: each is answered in order and forwarded unchanged, and none after the end is',
  async () => {
    const sequence = fc.record({
      cases: fc.array(
        fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...honest) }, fc.constantFrom(...refused)),
        { maxLength: 8 },
      ),
      end: fc.constantFrom(...fatal, undefined),
      cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 5 }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(sequence, { minLength: 8, maxLength: 8 }), async (sequences) => {
        await Promise.all(
          sequences.map(async ({ cases, end, cuts }) => {
            const number = String(sockets++ % 10_000).padStart(4, '0')
            const last = end?.bytes[0] ?? LAST
            const text = [...cases.map(({ bytes }) => bytes[0]!), last].join('')
            const bytes = Buffer.from(text.replaceAll('CASE', number).replaceAll('TOKEN', mine), 'latin1')
            const from = back.requests.length
            const answers = statuses(await converse(bytes, cuts))
            const expected = cases.flatMap(({ answers }) => answers)
            // Bytes after a pending request are parsed before its response: garbage there ends the socket without a response.
            if (end === undefined) expect(answers).toEqual([...expected, 200])
            else expect([expected, [...expected, 400]]).toContainEqual(answers)
            const reached = back.requests
              .slice(from)
              .filter(({ line, whole }) => whole && line.includes(`/${number}/`))
              .map(({ line, body }) => `${line} ${body}`)
            const wanted = [
              ...cases.flatMap(({ reaches = [] }) => reaches),
              ...(end === undefined ? ['GET /v3/CASE/last '] : []),
            ].map((one) => one.replaceAll('CASE', number))
            expect(reached).toEqual(wanted)
          }),
        )
        expect(back.flaws).toEqual([])
        if (LONG) back.forget()
      }),
      runs(12),
    )
    expect(honest.length).toBeGreaterThan(40)
    expect(fatal.length).toBeGreaterThan(40)
  },
  PATIENCE_MS,
)
