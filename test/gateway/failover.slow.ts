import { expect, it } from 'vitest'
import { hashSlot } from '../../src/limit/redis/hash-slot.ts'
import { call, token, yaml } from '../helpers/gateway.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { type RedisServer, startCluster, startSentinels } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** A master dies under load and its replica takes over: three gateways, one limit. */

const LONG = process.env['SLUICE_LONG'] === '1'
const LIMIT = 20
const CALLS = 30
const FAILED_OVER_MS = 20_000

interface Ground {
  readonly redis: object
  readonly master: RedisServer
  /** Disconnects the replica from `master`: it misses all later decisions. */
  cut(): Promise<unknown>
  /** Lets the replica take over. */
  uncut(): void
  /** True if other masters continue. */
  readonly keeps: boolean
  /** True if the calls after `cut` are lost. */
  readonly forgets: boolean
  /** True if a client is counted by `master`. */
  isLost(client: string): boolean
}

async function onCluster(): Promise<Ground> {
  const cluster = await startCluster(3, 1)
  const master = await cluster.masterOf(0)
  // Masters are listed first, then their replicas in the same order.
  const replica = cluster.nodes[cluster.nodes.indexOf(master) + 3]!
  return {
    redis: { cluster: cluster.urls },
    master,
    async cut() {
      replica.freeze()
      await master.command('CLIENT', 'KILL', 'TYPE', 'replica')
    },
    uncut: () => replica.thaw(),
    keeps: true,
    forgets: true,
    isLost: (client) => hashSlot(client) <= 5000,
  }
}

async function behindSentinels(): Promise<Ground> {
  const { master, urls, name } = await startSentinels()
  return {
    redis: { sentinels: urls, name },
    master,
    // Sentinels do not promote a replica that was disconnected.
    cut: async () => {},
    uncut() {},
    keeps: false,
    forgets: false,
    isLost: () => true,
  }
}

let clients = 0
/** Returns a new client, whose counter is on the failing master if `lost`. */
function newClient({ isLost }: Ground, lost: boolean): string {
  for (;;) {
    const client = `client-${++clients}`
    if (isLost(client) === lost) return client
  }
}

/** Sends calls of a client to all gateways. Returns the number of admitted calls; none may get an error. */
async function admitted(gateways: readonly ServingProcess[], client: string, calls = CALLS): Promise<number> {
  const mine = await token(client)
  const answers = await Promise.all(
    Array.from({ length: calls }, (_, i) => call(gateways[i % gateways.length]!.port, { token: mine })),
  )
  for (const { status } of answers) expect([200, 429]).toContain(status)
  return answers.filter(({ status }) => status === 200).length
}

async function decidesAll({ port, adminPort }: ServingProcess, ground: Ground): Promise<boolean> {
  const fresh = [newClient(ground, true), ...(ground.keeps ? [newClient(ground, false)] : [])]
  for (const client of fresh)
    if ((await call(port, { token: await token(client) })).status !== 200) return false
  return (await call(adminPort, { path: '/metrics' })).body.includes('sluice_store_mode{mode="store"} 1')
}

it.each<[string, () => Promise<Ground>]>([
  ['of a cluster', onCluster],
  ...(LONG ? ([['behind sentinels', behindSentinels]] as [string, () => Promise<Ground>][]) : []),
])(
  'after the loss of a master %s, its keys lose at most the calls of one window, callers get no error under local, and limits are exact again',
  async (_, open) => {
    const data = await startUpstream()
    const ground = await open()
    const gateways = await Promise.all(
      ['deny', 'deny', 'local'].map((onOutage) =>
        serving(
          yaml({
            data: data.url,
            limit: LIMIT,
            store: { redis: ground.redis, timeout: '1s', onOutage },
          }),
        ),
      ),
    )
    const [one, two, local] = gateways as [ServingProcess, ServingProcess, ServingProcess]

    const [lost, kept] = [newClient(ground, true), ground.keeps ? newClient(ground, false) : undefined]
    await ground.cut()
    expect(await admitted(gateways, lost)).toBe(LIMIT)
    if (kept !== undefined) expect(await admitted(gateways, kept)).toBe(LIMIT)

    const failover = { isOver: false }
    const callers = Promise.all(
      [1, 2, 3, 4].map(async () => {
        while (!failover.isOver) {
          expect(await admitted([local], newClient(ground, true), 2)).toBe(2)
          await new Promise((resolve) => setTimeout(resolve, 10))
        }
      }),
    )
    await ground.master.kill()
    ground.uncut()
    const refused = await call(one.port, { token: await token(newClient(ground, true)) })
    expect(refused.status).toBe(503)
    expect(Number(refused.headers['retry-after'])).toBeGreaterThanOrEqual(1)
    for (const gateway of [one, two, local]) {
      await until('the store decides for every caller', () => decidesAll(gateway, ground), FAILED_OVER_MS)
    }
    failover.isOver = true
    await callers

    const again = await admitted(gateways, lost)
    expect(again).toBeLessThanOrEqual(LIMIT)
    // Calls that the replica missed are lost, so callers can make them again, once.
    if (ground.forgets) expect(again).toBe(LIMIT)
    expect(await admitted(gateways, lost)).toBe(0)
    if (kept !== undefined) expect(await admitted(gateways, kept)).toBe(0)
    expect(await admitted(gateways, newClient(ground, true))).toBe(LIMIT)
  },
  90_000,
)
