import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type FakeRedis, startFakeRedis } from '../helpers/fake-redis.ts'
import { call, type LoggingGateway, startLogging, token } from '../helpers/gateway.ts'
import { mostInAWindow, type Observed, wronglyRefused } from '../helpers/judge.ts'
import { type RedisServer, startCluster, startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** One gateway for each `onOutage`, in every kind of outage, under a constant load that does not depend on responses. */

const LONG = process.env['SLUICE_LONG'] === '1'
const WINDOW_MS = 200
const LIMIT = 5
const HELD_MS = LONG ? 10_000 : WINDOW_MS + 50
/** Timeout of Redis; longer in the suite, so that a busy machine does not cause outages. */
const TIMEOUT_MS = LONG ? 100 : 400
/** Maximum delay beyond `timeout` and the duration of concurrent unlimited calls; longer on a busy machine. */
const SLACK_MS = LONG ? 50 : 5000
const EVERY_MS = LONG ? 5 : 10
/** Maximum calls that are made up for after a pause of this process. */
const MOST_AT_ONCE = 20

const MODES = ['local', 'allow', 'deny'] as const
type Mode = (typeof MODES)[number]

interface Answered extends Observed {
  readonly status: number
  readonly headers: Record<string, unknown>
}

const data = await startUpstream()

async function gatewaysOn(redis: object): Promise<readonly LoggingGateway[]> {
  return await Promise.all(
    MODES.map((onOutage) =>
      startLogging({
        data: data.url,
        limit: LIMIT,
        window: `${WINDOW_MS}ms`,
        store: { redis, prefix: onOutage, timeout: `${TIMEOUT_MS}ms`, onOutage },
        timeout: '30s',
      }),
    ),
  )
}

/** Sends a call of one of three new clients every few milliseconds, without waiting for earlier calls. */
async function load(port: number) {
  const calls: Answered[] = []
  const unlimited: Answered[] = []
  const failures: unknown[] = []
  const pending = new Set<Promise<void>>()
  const newClients = () =>
    Promise.all((LONG ? [1, 2, 3] : [1, 2]).map(() => token(`client-${Math.random().toString(36).slice(2)}`)))
  let clients: readonly { readonly token: string; readonly calls: Answered[] }[] = []
  const change = async () => {
    const tokens = await newClients()
    clients = tokens.map((token) => ({ token, calls: [] }))
  }
  await change()
  let sent = 0
  const startedAt = performance.now()
  const timer = setInterval(() => {
    const due = Math.floor((performance.now() - startedAt) / EVERY_MS)
    for (sent = Math.max(sent, due - MOST_AT_ONCE); sent < due; sent++) {
      if (sent % 5 === 0) send('/oidc/x', '', unlimited)
      else sendOf(clients[sent % clients.length]!)
    }
  }, EVERY_MS)
  function sendOf({ token, calls: own }: (typeof clients)[number]): void {
    send('/transactions', token, calls, own)
  }
  function send(path: string, token: string, ...into: Answered[][]): void {
    const sentAt = performance.now()
    const one = call(port, { path, token }).then(
      ({ status, headers }) => {
        const answered = { sentAt, answeredAt: performance.now(), admitted: status === 200, status, headers }
        for (const list of into) list.push(answered)
      },
      (error: unknown) => void failures.push(error),
    )
    pending.add(one)
    void one.finally(() => pending.delete(one))
  }
  return {
    calls,
    unlimited,
    /** Continues with new clients. Returns the outcomes of the calls of each previous client. */
    async turn(): Promise<readonly (readonly Answered[])[]> {
      const before = clients
      await change()
      await Promise.all(pending)
      return before.map(({ calls }) => calls)
    },
    async stop() {
      clearInterval(timer)
      await Promise.all(pending)
      expect(failures).toEqual([])
    },
  }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Returns the log lines about the store after the first `from` characters of the log. */
function storeLines(gateway: LoggingGateway, from: number): { level: string; server?: string }[] {
  const lines = gateway.stdout().slice(from).split('\n').slice(0, -1)
  return (
    lines
      .filter((line) => !line.includes('"msg":"request"'))
      // Slots of a cluster without a master are logged separately.
      .filter((line) => !line.includes('slots of the cluster have no master'))
      .filter((line) => !/Redis data lost|limit overrides|decisions made without Redis/.test(line))
      .map((line) => JSON.parse(line) as { level: string; server?: string })
  )
}

async function shows(gateway: LoggingGateway, mode: string, up: 0 | 1): Promise<boolean> {
  const { body } = await call(gateway.adminPort, { path: '/metrics' })
  return (
    body.includes(`\nsluice_store_mode{mode="${mode}"} 1\n`) && body.includes(`\nsluice_store_up ${up}\n`)
  )
}

/** Breaks the store under load, repairs it, and checks every response. */
async function expectOutageAsPromised(
  what: string,
  gateways: readonly LoggingGateway[],
  breakIt: () => Promise<unknown>,
  mendIt: () => Promise<unknown>,
): Promise<void> {
  const each = MODES.map((mode, i) => ({ mode, gateway: gateways[i]! }))
  await until('Redis decides', async () =>
    (await Promise.all(gateways.map((gateway) => shows(gateway, 'store', 1)))).every(Boolean),
  )
  const from = gateways.map((gateway) => gateway.stdout().length)
  const loads = await Promise.all(gateways.map(({ port }) => load(port)))
  await pause(50)
  await breakIt()
  await until(`all decide by the fallback: ${what}`, async () =>
    (await Promise.all(each.map(({ gateway, mode }) => shows(gateway, mode, 0)))).every(Boolean),
  )
  await Promise.all(loads.map((one) => one.turn()))
  await pause(HELD_MS)
  const held = await Promise.all(loads.map((one) => one.turn()))
  await mendIt()
  await until(`Redis decides again: ${what}`, async () =>
    (await Promise.all(gateways.map((gateway) => shows(gateway, 'store', 1)))).every(Boolean),
  )
  await Promise.all(loads.map((one) => one.turn()))
  await pause(WINDOW_MS + 50)
  const after = await Promise.all(loads.map((one) => one.turn()))
  await Promise.all(loads.map((one) => one.stop()))

  for (const [i, { mode, gateway }] of each.entries()) {
    const { calls, unlimited } = loads[i]!
    expect(new Set(unlimited.map(({ status }) => status))).toEqual(new Set([200]))
    for (const { status, headers } of calls) {
      expect(ANSWERS[mode]).toContain(status)
      if (status === 503) expect(Number(headers['retry-after'])).toBeGreaterThanOrEqual(1)
    }
    judge[mode](held[i]!)
    // A replica in place of a master is logged separately, as an error.
    const all = () => storeLines(gateway, from[i]!)
    await until('the end is logged', () => all().at(-1)?.level === 'info')
    const isWrong = all().some(({ level }) => level === 'error')
    const lines = all().filter(({ level }) => level !== 'error')
    // If that line is first, it marks the start of the outage.
    if (isWrong && lines[0]?.level === 'info') lines.unshift({ ...lines[0], level: 'warn' })
    const servers = new Set(lines.map(({ server }) => server))
    const isOnce = lines.length === 2 * servers.size
    for (const one of isOnce ? after[i]! : []) {
      expect(one.some(({ status }) => status === 200)).toBe(true)
      expect(mostInAWindow(one, WINDOW_MS)).toBeLessThanOrEqual(LIMIT)
    }
    // Only changes of the mode are logged; on a busy machine a repaired Redis may time out once more.
    for (const server of servers) {
      const levels = lines.filter((line) => line.server === server).map(({ level }) => level)
      expect(levels).toEqual(levels.map((_, at) => (at % 2 === 0 ? 'warn' : 'info')))
    }
    expect(lines.length).toBeGreaterThan(0)
    isInTime(`${what}, ${mode}`, calls, unlimited)
  }
}

const ANSWERS = {
  local: [200, 429],
  allow: [200, 429],
  deny: [200, 429, 503],
}

/** Checks the responses to callers during the outage. */
const judge: Record<Mode, (clients: readonly (readonly Answered[])[]) => void> = {
  local(clients) {
    for (const calls of clients) {
      expect(mostInAWindow(calls, WINDOW_MS)).toBeLessThanOrEqual(LIMIT)
      expect(wronglyRefused(calls, LIMIT, WINDOW_MS + SPREAD_MS)).toEqual([])
      expect(calls.some(({ admitted }) => !admitted)).toBe(true)
    }
  },
  allow(clients) {
    for (const { status, headers } of clients.flat()) {
      expect(status).toBe(200)
      expect(headers).not.toHaveProperty('x-ratelimit-limit')
    }
  },
  deny(clients) {
    for (const { status } of clients.flat()) expect(status).toBe(503)
  },
}

function isInTime(what: string, calls: readonly Observed[], unlimited: readonly Observed[]): void {
  const times = (of: readonly Observed[]) => of.map(({ sentAt, answeredAt }) => answeredAt - sentAt)
  const took = times(calls).toSorted((a, b) => a - b)
  const at = (part: number) => took[Math.floor((took.length - 1) * part)]!
  const late = (ms: number) => took.filter((one) => one > TIMEOUT_MS + ms).length
  if (LONG) {
    const ms = (part: number) => `${at(part).toFixed(1)} ms`
    // oxlint-disable-next-line no-console
    console.log(
      `${what}: ${took.length} calls, p50 ${ms(0.5)}, p99.9 ${ms(0.999)}, most ${ms(1)}, ${late(50)} later than timeout + 50 ms`,
    )
  }
  expect(late(SLACK_MS + Math.max(...times(unlimited)))).toBeLessThanOrEqual(Math.ceil(took.length / 100))
}

/** Time by which the fallback takes calls as later than they were: a round trip to Redis, on a busy machine up to a window. */
const SPREAD_MS = LONG ? 10 : WINDOW_MS

const SHAPES: readonly (readonly [string, string])[] = [
  ['answers with nothing', '$-1\r\n'],
  ['answers with too few numbers', '*1\r\n:5\r\n'],
  ['uses another protocol', 'HTTP/1.1 400 Bad Request\r\n\r\n'],
]

describe('a Redis that', () => {
  let redis: RedisServer
  let port: number
  let dump: string
  let gateways: readonly LoggingGateway[] = []
  let fake: FakeRedis | undefined
  beforeAll(async () => {
    redis = await startRedis({
      tcp: true,
      args: '--key-load-delay 10000 --loading-process-events-interval-bytes 1024 --rdbcompression no'.split(
        ' ',
      ),
    })
    port = redis.port
    const [, dir] = (await redis.command('CONFIG', 'GET', 'dir')) as [string, string]
    dump = join(dir, 'dump.rdb')
    gateways = await gatewaysOn({ url: redis.url })
  })
  afterEach(async () => {
    fake = undefined
  })

  /** Replaces the server by another one. */
  const replaced = (reply: string | undefined) => async () => {
    await redis.kill()
    fake = await startFakeRedis(port)
    fake.answer(reply)
  }
  const back = async () => {
    await fake!.close()
    await redis.start()
  }
  const set = (name: string, value: string) => async () => redis.command('CONFIG', 'SET', name, value)

  it.each<[string, () => Promise<unknown>, () => Promise<unknown>]>([
    ['is down, so that connections are refused', () => redis.kill(), () => redis.start()],
    ['hangs', async () => redis.freeze(), async () => redis.thaw()],
    ['accepts connections without answering', replaced(undefined), back],
    [
      'became a replica (READONLY)',
      () => redis.command('REPLICAOF', '127.0.0.1', '1'),
      () => redis.command('REPLICAOF', 'NO', 'ONE'),
    ],
    ['is full (OOM)', set('maxmemory', '1'), set('maxmemory', '0')],
    [
      'cannot save (MISCONF)',
      async () => {
        mkdirSync(dump)
        await redis.command('CONFIG', 'SET', 'save', '3600 1')
        await redis.command('BGSAVE')
      },
      async () => {
        await redis.command('CONFIG', 'SET', 'save', '')
        rmSync(dump, { recursive: true })
      },
    ],
    [
      'loads its data (LOADING)',
      async () => {
        await redis.command(
          'EVAL',
          "for i = 1, 5000 do redis.call('SET', 'filler:' .. i, ('x'):rep(1100)) end",
          0,
        )
        await redis.command('SAVE')
        await redis.kill()
        void redis.start().catch(() => {})
      },
      async () => {
        await redis.command('CONFIG', 'SET', 'key-load-delay', 0)
        await until('the data is loaded', async () => {
          const answer = await redis.command('PING').catch(() => '')
          return answer === 'PONG'
        })
        await redis.command('FLUSHALL')
        rmSync(dump)
      },
    ],
    ['answers with another type', replaced('+OK\r\n'), back],
    ...(LONG ? SHAPES : []).map(
      ([what, reply]) => [what, replaced(reply), back] as [string, () => Promise<void>, () => Promise<void>],
    ),
  ])(
    '%s affects callers only as the outage mode defines',
    async (what, breakIt, mendIt) => {
      await expectOutageAsPromised(what, gateways, breakIt, mendIt)
    },
    60_000,
  )
})

it.each(LONG ? ['a cluster that is down (CLUSTERDOWN)'] : [])(
  '%s affects callers only as the outage mode defines',
  async () => {
    const cluster = await startCluster(1)
    const [node] = cluster.nodes
    const gateways = await gatewaysOn({ cluster: cluster.urls })
    await expectOutageAsPromised(
      'CLUSTERDOWN',
      gateways,
      () => node!.command('CLUSTER', 'DELSLOTS', 0),
      () => node!.command('CLUSTER', 'ADDSLOTS', 0),
    )
  },
  60_000,
)
