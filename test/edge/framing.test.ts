import { connect } from 'node:net'
import { beforeAll, describe, expect, it } from 'vitest'
import { call, startGateway, type TestGateway, token } from '../helpers/gateway.ts'
import { statuses } from '../helpers/raw.ts'
import { until } from '../helpers/wait.ts'
import { FRAMINGS } from './framing/corpus.ts'
import type { Framing } from './framing/wire.ts'
import { startStrictUpstream, type StrictUpstream } from './strict-upstream.ts'

const LIMIT = 1_000_000
const AT_ONCE = 16
/** Time between the pieces of a case. */
const GAP_MS = 10
/** Time to wait for unexpected responses. */
const QUIET_MS = 60

let back: StrictUpstream
let gateway: TestGateway
const outcomes = new Map<string, Outcome>()
beforeAll(async () => {
  back = await startStrictUpstream()
  gateway = await startGateway({
    data: back.url,
    limit: LIMIT,
    routes: [
      { match: 'POST /par/:case/request', upstream: 'identity', authenticate: 'par' },
      { match: '/oidc/*', upstream: 'identity', authenticate: 'none' },
      { match: '/v3/:case/early', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
      { match: '/body/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'], body: true },
      { match: '/v3/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'], maxBody: '2kB' },
    ],
    more: { par: { issuer: 'https://identity.example.com/oidc', maxBody: '2kB' } },
  })
  const waiting = [...FRAMINGS.entries()]
  const worker = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [i, framing] = next
      outcomes.set(framing.name, await play(framing, String(i).padStart(4, '0')))
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}, 120_000)

interface Outcome {
  readonly answers: readonly number[]
  /** Complete requests at the upstream. */
  readonly reached: readonly string[]
  readonly charged: number
  /** Status of a valid request afterwards. */
  readonly next: number
}

/** Sends a case, waits for the outcome, and then sends a valid request. */
async function play(framing: Framing, number: string): Promise<Outcome> {
  const mine = await token(`client-${number}`)
  const pieces = framing.bytes.map((piece) => piece.replaceAll('CASE', number).replaceAll('TOKEN', mine))
  const said = await converse(gateway.port, pieces, framing)
  const next = await call(gateway.port, { path: `/v3/${number}/alive`, token: mine })
  const name = (line: string) => line.replace(number, 'CASE')
  return {
    answers: statuses(said),
    reached: back.requests
      .filter(({ line, whole }) => whole && line.includes(`/${number}/`) && !line.endsWith('/alive'))
      .map(({ line, body }) => `${name(line)} ${body.replaceAll(number, 'CASE')}`),
    charged: LIMIT - 1 - Number(next.headers['x-ratelimit-remaining']),
    next: next.status,
  }
}

/** Returns all responses to the pieces, until the gateway closes or is silent. */
function converse(port: number, pieces: readonly string[], { answers, ends }: Framing): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    let said = ''
    let quiet: NodeJS.Timeout | undefined
    const finish = (): void => {
      clearTimeout(hard)
      clearTimeout(quiet)
      socket.destroy()
      resolve(said)
    }
    const hard = setTimeout(finish, 15_000)
    socket.setNoDelay(true)
    const left = [...pieces]
    const send = (): void => {
      const piece = left.shift()
      if (piece === undefined || socket.destroyed) {
        if (ends === true) socket.end()
      } else socket.write(piece, 'latin1', () => setTimeout(send, GAP_MS))
    }
    socket.on('connect', send)
    socket.on('data', (data: Buffer) => {
      said += data.toString('latin1')
      clearTimeout(quiet)
      if (statuses(said).length >= answers.length && left.length === 0) quiet = setTimeout(finish, QUIET_MS)
    })
    socket.on('close', finish)
    socket.on('error', () => {})
  })
}

describe('one request in is one request out', () => {
  it.each(FRAMINGS.map((framing) => [framing.name, framing] as const))('%s', (name, framing) => {
    const { orRefused = false } = framing
    const outcome = outcomes.get(name)!
    if (orRefused && outcome.answers[0] === 400) {
      expect(outcome).toEqual({ answers: [400], reached: [], charged: 0, next: 200 })
      return
    }
    const reached = framing.reaches ?? []
    expect(outcome).toEqual({
      answers: framing.answers,
      reached,
      charged: framing.charges ?? reached.filter((line) => / \/(?:v3|body)\//.test(line)).length,
      next: 200,
    })
  })

  it('the upstream received nothing that two servers could parse differently', () => {
    expect(back.flaws).toEqual([])
  })

  it('nothing reached the upstream that no case sent', () => {
    const strangers = back.requests.filter(
      ({ line }) => !/^[A-Z]+ \/(?:v3|body|oidc|par)\/\d{4}\//.test(line),
    )
    expect(strangers).toEqual([])
    expect(back.requests.filter(({ line }) => line.includes('hidden'))).toEqual([])
  })

  it('no socket is left when the gateway has ended', async () => {
    await gateway.close()
    await until('no socket upstream', () => back.sockets() === 0)
    expect(back.sockets()).toBe(0)
  })
})
