import { type Choose, explore } from './explore.ts'
import { startGateway } from './gateway.ts'
import { judge, type Violation } from './judge.ts'
import type { Deployment, Server } from './deployment.ts'
import type { Call } from './play.ts'
import { createRedisModel } from './redis-model.ts'
import { CHARGE_SCRIPT } from '../../src/limit/redis/scripts.ts'
import { actionsOf, beginFault, type Fault } from './scope-faults.ts'
import { createQueues, SOON_MS } from './scope-queues.ts'
import { canArrive, type State, stepsOf } from './scope-steps.ts'
import { createWorld, serverMicroseconds } from './time.ts'

/** A limiter so small that all orders of its events can be run. */
export interface Scope {
  readonly gateways: number
  /** Calls at each gateway. */
  readonly calls: number
  readonly limit: number
  /** The faults. At most one of them happens, at any point. */
  readonly faults: readonly Fault[]
  /** True if orders that differ only in the place of independent steps are run once; default true. */
  readonly isReduced?: boolean
}

/** A run that broke a promise. */
export interface Broken {
  readonly steps: readonly string[]
  readonly violations: readonly Violation[]
}

export interface Explored {
  readonly orders: number
  /** The responses in all orders. */
  readonly outcomes: ReadonlySet<string>
  readonly broken: Broken | undefined
}

const WINDOW_MS = 1000
/** Each gateway knows the number of gateways. Calls admitted without Redis are merged 125 ms later, and every 250 ms. */
const START_MS = 2125

/** Runs all orders of a scope until one breaks a promise. */
export async function runScope(scope: Scope): Promise<Explored> {
  const outcomes = new Set<string>()
  let broken: Broken | undefined
  const orders = await explore(async (choose) => {
    broken = await runOrder(scope, choose, outcomes)
    return broken === undefined
  }, scope.isReduced)
  return { orders, outcomes, broken }
}

async function runOrder(scope: Scope, choose: Choose, outcomes: Set<string>): Promise<Broken | undefined> {
  const world = createWorld()
  const calls: Call[] = []
  const servers: Server[] = []
  const open = (): Server => {
    const model = createRedisModel(() => serverMicroseconds(world.now(), 0))
    const server = { name: `r${servers.length}`, model, isAlive: true, stalledUntilMs: 0 }
    servers.push(server)
    return server
  }
  const first = open()
  first.model.run('script', ['load', CHARGE_SCRIPT])
  const deployment: Deployment = { isCluster: false, masters: [first, first] }
  const rule = { limit: scope.limit, windowMs: WINDOW_MS }
  const limits = [{ name: 'requests', per: ['client'], ...rule, shadow: false, changes: [] }] as const
  const queues = createQueues(world, (gateway) => gateways[gateway]!.loop)
  const gateways = Array.from({ length: scope.gateways }, (_, i) =>
    startGateway(world, queues.linkOf(i), deployment, () => limits, new Map()),
  )
  const system = { world, gateways, deployment, queues, open }
  const state: State = {
    ...{ world, gateways, queues: queues.all, callsEach: scope.calls, faults: scope.faults },
    ...{ made: gateways.map(() => 0), calls, fault: undefined },
    ...{ pauses: 0, pausedMs: START_MS, hasSwept: false },
  }

  async function call(gateway: number, waitedFor?: Call): Promise<void> {
    const askedAtMs = world.now()
    const told = (await gateways[gateway]!.call('c', ['requests']))!
    const own = { client: 'c', limits: ['requests'] as const, gateway, askedAtMs, proof: undefined, cost: 1 }
    const ended: Call = { ...told, ...own, toldAtMs: world.now(), waitedFor }
    calls.push(ended)
    // A microsecond more than the wait: the precision of the store's clock.
    if (!told.admitted && waitedFor === undefined)
      world.at(world.now() + told.retryAfterMs + 0.002, () => void call(gateway, ended))
  }

  let isChoosing = true
  const deeds: Parameters<typeof stepsOf>[1] = {
    call(gateway) {
      state.made[gateway]!++
      void call(gateway)
    },
    deliver: queues.deliver,
    begin: (kind, gateway, queue) => void (state.fault = beginFault(kind, gateway, queue, system)),
    endFault() {
      state.fault!.isOver = true
      deployment.masters[0].model.isFull = false
    },
    end: () => void (isChoosing = false),
  }
  const steps: string[] = []
  await world.run(START_MS)
  queues.hold()
  // oxlint-disable-next-line no-unmodified-loop-condition -- a step ends it
  while (isChoosing) {
    // Probes are answered at once, in the order of their connection.
    const probing = queues.all.find(
      (queue) => canArrive(state, queue) && queue.messages[0]!.keys[0]!.endsWith('~gateways'),
    )
    if (probing !== undefined) queues.deliver(probing)
    else {
      const enabled = stepsOf(state, deeds)
      const name = choose(enabled)
      if (name === undefined) break
      steps.push(name)
      enabled.find((step) => step.name === name)!.run()
      await world.run(Math.max(world.now(), state.pausedMs))
    }
    await world.run(world.now() + SOON_MS)
  }
  if (!isChoosing) {
    if (state.fault?.isOver === false) deeds.endFault()
    queues.release()
    await world.run(world.now() + 1.5 * WINDOW_MS)
  }
  for (const { model } of servers) model.close()
  if (isChoosing) return undefined
  outcomes.add(outcomeOf(calls))
  // Without a fault, several gateways promise what one does.
  const promising = state.fault === undefined ? 1 : scope.gateways
  const violations = judge({
    history: {
      ...{
        seed: 0,
        gateways: promising,
        isCluster: false,
        aheadMs: 0,
        ms: 0,
        actions: actionsOf(state.fault),
      },
      limits: { requests: rule, sync: rule },
    },
    ...{ calls, rules: { requests: [{ ...rule, fromMs: 0 }], sync: [] }, unanswered: [], breaks: [] },
  })
  return violations.length === 0 ? undefined : { steps, violations }
}

/** Names the responses at each gateway, in the order of the calls. */
function outcomeOf(calls: readonly Call[]): string {
  const told = calls.map(({ gateway, askedAtMs, waitedFor, admitted, mode }) => ({
    text: `${'ABC'[gateway]}${waitedFor === undefined ? '' : ' again'}: ${admitted ? 'admitted' : 'refused'} by ${mode}`,
    ...{ gateway, askedAtMs },
  }))
  return told
    .toSorted((a, b) => a.gateway - b.gateway || a.askedAtMs - b.askedAtMs)
    .map(({ text }) => text)
    .join(', ')
}
