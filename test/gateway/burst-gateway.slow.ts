import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { call, token, yaml } from '../helpers/gateway.ts'
import { makeKey, signProof, thumbprintOf } from '../helpers/issuer.ts'
import { serving, type ServingProcess, withTests } from '../helpers/process.ts'
import { startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** Hundreds of sockets complete a request at the same time: a busy gateway must not be taken for an outage of Redis. */

const LONG = process.env['SLUICE_LONG'] === '1'
const ROUNDS = LONG ? 20 : 2
const LIMIT = 10
const HOST = 'api.example.com'
const FAR_REDIS = fileURLToPath(new URL('../../bench/far-redis.mjs', import.meta.url))
/** Longer by default, as a busy machine may stop the Redis, too. */
const TIMEOUT_MS = LONG ? 100 : 500
const STOPPED_MS = 3 * TIMEOUT_MS
const key = makeKey('ES256')

const [redis, data] = await Promise.all([startRedis({ tcp: true }), startUpstream()])

/** Starts a gateway with a delay of `awayMs` to its Redis. Returns the gateway, and a function that stops both. */
async function gatewayAt(onOutage: string, awayMs: number): Promise<[ServingProcess, () => void]> {
  const far = withTests(spawn(process.execPath, [FAR_REDIS, String(redis.port), String(awayMs)]))
  const [port] = (await once(far.stdout, 'data')) as [Buffer]
  const gateway = await serving(
    yaml({
      data: data.url,
      limit: LIMIT,
      store: {
        redis: { url: `redis://127.0.0.1:${Number(port)}` },
        prefix: onOutage,
        timeout: `${TIMEOUT_MS}ms`,
        onOutage,
      },
      routes: [{ match: `${HOST}/*`, upstream: 'data', authenticate: 'bearer', limits: ['requests'] }],
    }),
  )
  return [
    gateway,
    () => {
      gateway.kill()
      far.kill()
    },
  ]
}

let clients = 0

/** Returns the heads of one request per socket, all of one new client. */
async function heads(sockets: number, scheme: 'Bearer' | 'DPoP'): Promise<string[]> {
  const claims = scheme === 'DPoP' ? { cnf: { jkt: thumbprintOf(key) } } : {}
  const mine = await token(`crowd-${clients++}`, claims)
  return Array.from({ length: sockets }, () => {
    const url = `http://${HOST}/transactions`
    const proof = scheme === 'DPoP' ? `DPoP: ${signProof({ key, token: mine, url })}\r\n` : ''
    return `GET /transactions HTTP/1.1\r\nHost: ${HOST}\r\nAuthorization: ${scheme} ${mine}\r\n${proof}\r\n`
  })
}

/** Sends each request without its last byte, then all last bytes at once. Returns the statuses of the responses. */
async function burst(gateway: ServingProcess, requests: readonly string[], stop: boolean): Promise<number[]> {
  const sockets = await Promise.all(
    requests.map(async (head) => {
      const socket = connect(gateway.port, '127.0.0.1').setNoDelay(true)
      await once(socket, 'connect')
      socket.write(head.slice(0, -1))
      return socket
    }),
  )
  const answers = Promise.all(sockets.map(statusOf))
  for (const socket of sockets) socket.write('\n')
  if (stop) {
    gateway.kill('SIGSTOP')
    await new Promise((resolve) => setTimeout(resolve, STOPPED_MS))
    gateway.kill('SIGCONT')
  }
  const statuses = await answers
  for (const socket of sockets) socket.destroy()
  return statuses
}

async function statusOf(socket: Socket): Promise<number> {
  const [chunk] = (await once(socket, 'data')) as [Buffer]
  return Number(chunk.subarray(9, 12).toString())
}

/** Returns the number of decisions without Redis. */
async function withoutRedis({ adminPort }: ServingProcess): Promise<number> {
  const { body } = await call(adminPort, { path: '/metrics' })
  // The event-loop lag of the gateway.
  expect(body).toMatch(/^nodejs_eventloop_lag_p99_seconds /m)
  expect(body).not.toContain('nodejs_gc')
  return Number(/^sluice_store_fallback_decisions_total\{[^}]*\} (\d+)$/m.exec(body)![1])
}

/** Sizes that once failed: without a delay of Redis, a hundred DPoP calls were enough; bearer calls needed more. */
const SIZES = LONG ? [900, 1000] : [300]
const AWAY_MS = LONG ? [0, 1, 5] : [1]
const MODES = LONG ? (['allow', 'local', 'deny'] as const) : (['local'] as const)
const CASES = MODES.flatMap((onOutage) => AWAY_MS.map((awayMs) => [onOutage, awayMs] as const))

describe.each(CASES)(
  'under onOutage: %s, with a healthy Redis %d ms away, a burst of calls',
  (onOutage, awayMs) => {
    it(
      'is completely decided by Redis',
      async () => {
        const [gateway, end] = await gatewayAt(onOutage, awayMs)
        try {
          for (const scheme of ['DPoP', 'Bearer'] as const) {
            const sizes = LONG || scheme === 'DPoP' ? SIZES : [900]
            for (let round = 0; round < ROUNDS * sizes.length; round++) {
              const requests = await heads(sizes[round % sizes.length]!, scheme)
              // The process is paused during every second round.
              const statuses = await burst(gateway, requests, Math.floor(round / sizes.length) % 2 === 1)
              const admitted = statuses.filter((status) => status === 200)
              expect([scheme, admitted.length, new Set(statuses)]).toEqual([
                scheme,
                LIMIT,
                new Set([200, 429]),
              ])
              expect(await withoutRedis(gateway)).toBe(0)
            }
          }
        } finally {
          end()
        }
      },
      LONG ? 1_200_000 : 60_000,
    )
  },
)
