import { expect, it } from 'vitest'
import type { Limit } from '../../src/policy/limit.ts'
import { startGateway } from './gateway.ts'
import type { Rule } from './history.ts'
import type { Deployment, Server } from './deployment.ts'
import { createRedisModel } from './redis-model.ts'
import { createWorld, serverMicroseconds } from './time.ts'

/** Starts one gateway with a limit, on a network where a message takes a quarter of a millisecond. */
async function setUp(rule: Rule, isCluster = false) {
  const world = createWorld()
  const open = (name: string): Server => ({
    name,
    model: createRedisModel(() => serverMicroseconds(world.now(), 0)),
    isAlive: true,
    stalledUntilMs: 0,
  })
  const first = open('first')
  const deployment: Deployment = { isCluster, masters: [first, isCluster ? open('second') : first] }
  const link = { heldUntilMs: 0, delayMs: () => 0.25 }
  let limits: readonly Limit[] = []
  const change = ({ limit, windowMs }: Rule): void => {
    limits = [{ name: 'requests', per: ['client'], limit, windowMs, shadow: false, changes: [] }]
  }
  change(rule)
  const gateway = startGateway(world, link, deployment, () => limits, new Map())
  const run = (ms: number): Promise<void> => world.run(world.now() + ms)
  await run(100)

  return {
    change,
    run,
    /** Runs until a refused caller has waited `Retry-After`, and a microsecond more. */
    waitFor: ({ toldAtMs, retryAfterMs }: { toldAtMs: number; retryAfterMs: number }) =>
      world.run(toldAtMs + retryAfterMs + 0.001),
    /** Makes calls at once, a client's of either half of a cluster, and runs until they have ended. */
    async calls(count: number, client = 'c1', proof?: (i: number) => string) {
      const told = Array.from({ length: count }, (_, i) =>
        gateway.call(client, ['requests'], proof?.(i)).then((call) => ({ ...call!, toldAtMs: world.now() })),
      )
      await run(150)
      const all = await Promise.all(told)
      return {
        all,
        admitted: all.filter(({ admitted }) => admitted).length,
        modes: new Set(all.map(({ mode }) => mode)),
      }
    },
    /** Lets Redis fall silent for some time. */
    hang: (ms: number): void => void (link.heldUntilMs = world.now() + ms),
    /** Kills the masters; replicas that are up to date take over after `ms`. */
    async failover(ms: number): Promise<void> {
      const dead = [...deployment.masters]
      for (const server of dead) {
        server.isAlive = false
        gateway.client.dropped(server)
      }
      await run(ms)
      for (const half of [0, 1] as const) {
        const replica = open(`replica ${half}`)
        replica.model.restart(dead[half]!.model.snapshot())
        deployment.masters[half] = replica
      }
      gateway.client.switched()
    },
    model: first.model,
  }
}

const MINUTE = { limit: 20, windowMs: 60_000 }

it('counts the calls of an outage after a failover of a cluster', async () => {
  const { calls, failover, run } = await setUp(MINUTE, true)
  expect(await calls(5)).toMatchObject({ admitted: 5, modes: new Set(['store']) })
  const over = failover(3000)
  await run(500)
  expect(await calls(15)).toMatchObject({ admitted: 15, modes: new Set(['local']) })
  await over
  await run(3000)
  expect(await calls(15)).toMatchObject({ admitted: 0, modes: new Set(['store']) })
})

it('admits a caller that waited after a refusal by the fallback, when Redis decides again', async () => {
  const { calls, hang, run, waitFor } = await setUp({ limit: 3, windowMs: 6000 })
  hang(4000)
  await run(1000)
  await calls(3)
  const { all } = await calls(1)
  expect(all[0]).toMatchObject({ admitted: false, mode: 'local' })
  await waitFor(all[0]!)
  expect(await calls(1)).toMatchObject({ admitted: 1, modes: new Set(['store']) })
})

it('admits a caller that waited after a refusal by Redis, when the fallback decides', async () => {
  const { calls, hang, run, waitFor } = await setUp({ limit: 1, windowMs: 5000 })
  await calls(1)
  await run(2000)
  const { all } = await calls(1)
  expect(all[0]).toMatchObject({ admitted: false, mode: 'store' })
  hang(10_000)
  await waitFor(all[0]!)
  expect(await calls(1)).toMatchObject({ admitted: 1, modes: new Set(['local']) })
})

it.each([
  ['lowered', 1000, 100, 120, 20],
  ['raised', 10, 10, 1000, 990],
])(
  'starts from the calls used when the limit was %s just before the outage',
  async (_, limit, used, next, admitted) => {
    const { calls, hang, change } = await setUp({ ...MINUTE, limit })
    await calls(used)
    change({ ...MINUTE, limit: next })
    hang(10_000)
    expect(await calls(1100)).toMatchObject({ admitted, modes: new Set(['local']) })
  },
)

it('hands all calls of a client to Redis, each with a DPoP proof', async () => {
  const { calls, hang, run, change } = await setUp({ ...MINUTE, limit: 2000 })
  hang(3000)
  await run(1000)
  expect(await calls(1200, 'c1', String)).toMatchObject({ admitted: 1200, modes: new Set(['local']) })
  await run(5000)
  change({ ...MINUTE, limit: 1201 })
  expect(await calls(3)).toMatchObject({ admitted: 1, modes: new Set(['store']) })
})

it('admits no more than the limit when Redis is silent for a moment', async () => {
  const { calls, hang, run } = await setUp(MINUTE)
  hang(130)
  const first = calls(20)
  await first
  expect((await first).modes).toEqual(new Set(['local']))
  await run(60)
  expect((await first).admitted + (await calls(20)).admitted).toBe(20)
})

it('remembers a proof that the fallback admitted after Redis has it', async () => {
  const { calls, hang, run } = await setUp(MINUTE)
  const once = () => 'proof'
  hang(1000)
  expect(await calls(1, 'c1', once)).toMatchObject({ admitted: 1, modes: new Set(['local']) })
  await run(3000)
  expect(await calls(1)).toMatchObject({ admitted: 1, modes: new Set(['store']) })
  hang(1000)
  const { all } = await calls(1, 'c1', once)
  expect(all[0]).toMatchObject({ admitted: false, isReplay: true, mode: 'local' })
})
