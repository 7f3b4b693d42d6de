import { createChanges, type Rules } from './changes.ts'
import { type Gateway, startGateway, type Told } from './gateway.ts'
import { createInProgress } from './in-progress.ts'
import { type Break, createLinks } from './links.ts'
import type { Action, History, LimitName } from './history.ts'
import type { Deployment, Server } from './deployment.ts'
import { createRandom } from './random.ts'
import { createRedisModel, type Snapshot } from './redis-model.ts'
import { createWorld, serverMicroseconds } from './time.ts'

/** A call as its caller saw it. Times are milliseconds of the world. */
export interface Call extends Omit<Told, 'settle' | 'release'> {
  readonly client: string
  readonly limits: readonly LimitName[]
  readonly gateway: number
  readonly askedAtMs: number
  readonly toldAtMs: number
  /** The refusal after which the caller waited exactly `Retry-After`. */
  readonly waitedFor: Call | undefined
  readonly proof: string | undefined
  /** Points that the call takes. */
  readonly cost: number
  /** When the call was settled, and the points that it then used of each limit that settles it. */
  settled?: Settled
  /** The instant at which a call that was admitted ended, if it counted as one of several at once. */
  endedAtMs?: number
  /** The instant at which its caller left: its places are kept for a while, unless the call has ended. */
  leftAtMs?: number
  /** True if the call ended with its gateway, which did not learn of it. */
  isCut?: boolean
}

/** What a call used when it ended. */
export interface Settled {
  readonly atMs: number
  readonly used: ReadonlyMap<LimitName, number>
}

/** A call whose gateway ended before it responded. */
export type Unanswered = Pick<Call, 'client' | 'limits' | 'gateway' | 'cost' | 'askedAtMs'>

/** Maximum time that a suspended gateway does not run, unless the suspension is long. */
const MAX_SUSPENDED_MS = 400

/** Returns the time for which a suspended gateway does not run. */
export const suspendedMs = ({ ms, isLong }: Action & { readonly kind: 'suspend' }): number =>
  isLong === true ? ms : Math.min(MAX_SUSPENDED_MS, ms)

/** A history that was played: the calls, and the facts that the promises name. */
export interface Played {
  readonly history: History
  readonly calls: readonly Call[]
  readonly rules: Rules
  readonly unanswered: readonly Unanswered[]
  /** The connections that broke because an answer was lost. */
  readonly breaks: readonly Break[]
}

const RELOAD_MS = 400
/** A call takes no longer if the upstream fails then. */
const FAILING_MS = 2000

/** True for a limit whose calls may be settled. */
const isSettled = ({ limits, settles }: History, name: LimitName): boolean =>
  limits[name].kind === 'success' ||
  (settles !== undefined && limits[name].kind !== 'access' && limits[name].kind !== 'atOnce')

/** Replaces a new server by one that is observed; `nowUs` is its clock. */
export type Observe = (server: Server, nowUs: () => number) => Server

/** Plays a history, which always gives the same record. */
export async function play(history: History, observe: Observe = (server) => server): Promise<Played> {
  const { shiftMs = 0, scriptUs = 0 } = history
  const world = createWorld(shiftMs)
  const calls: Call[] = []
  const unanswered: Unanswered[] = []
  const breaks: Break[] = []
  const clocks = { aheadMs: [history.aheadMs + shiftMs, history.aheadMs + shiftMs] }
  const createServer = (name: string, half: 0 | 1): Server => {
    const nowUs = (): number => serverMicroseconds(world.now(), clocks.aheadMs[half]!)
    return observe(
      { name, model: createRedisModel(nowUs), isAlive: true, stalledUntilMs: 0, scriptUs },
      nowUs,
    )
  }
  let servers = 0
  const open = (half: 0 | 1): Server => createServer(`r${servers++}`, half)
  const first = open(0)
  const deployment: Deployment = {
    isCluster: history.isCluster,
    masters: [first, history.isCluster ? open(1) : first],
  }
  /** Replicas are created before time begins, as their creation takes real time. */
  const replicas = new Map<Action, Server>()
  for (const action of history.actions) {
    if (action.kind === 'failover') replicas.set(action, open(history.isCluster ? action.half : 0))
  }

  const changes = createChanges(history, world)
  const links = createLinks(history, world, breaks)
  const start = (i: number): Gateway =>
    startGateway(world, links[i]!, deployment, () => changes.limits, changes.overrides, changes.clientLimits)
  const gateways = links.map((_, i) => start(i))
  const { hold, endGateway } = createInProgress(history, world)
  const sleep = (ms: number): Promise<void> =>
    new Promise((resolve) => void world.at(world.now() + ms, resolve))

  async function call(
    action: Action & { kind: 'caller' },
    gateway: number,
    names: readonly LimitName[],
    waitedFor?: Call,
    proof?: string,
  ) {
    const askedAtMs = world.now()
    const { client, cost = 1 } = action
    const asked = gateways[gateway]!
    const told = await asked.call(client, names, proof, action.cost)
    if (told === undefined) {
      unanswered.push({ client, limits: names, gateway, cost, askedAtMs })
      return undefined
    }
    const { settle, release, ...said } = told
    const made: Call = {
      ...said,
      client,
      limits: names,
      gateway,
      askedAtMs,
      toldAtMs: world.now(),
      waitedFor,
      proof,
      cost,
    }
    calls.push(made)
    if (made.admitted && names.some((name) => history.limits[name].kind === 'atOnce'))
      hold(made, asked, release, calls.length)
    const settled = names.filter((name) => isSettled(history, name))
    if (made.admitted && settled.length > 0) settleLater(made, settled, settle, calls.length)
    return made
  }

  /** Settles a call when it ends, as often as not because the upstream fails. */
  function settleLater(
    made: Call,
    names: readonly LimitName[],
    settle: Told['settle'],
    number: number,
  ): void {
    const random = createRandom(history.seed * 7919 + number)
    const failsMs = (history.failsAtMs ?? [])
      .map((atMs) => atMs - world.now())
      .filter((ms) => ms > 0 && ms < FAILING_MS)
    const fails = random.chance(0.4)
    const endsMs = random.between(0, Math.min(10_000, history.limits.requests.windowMs))
    const most = history.settles === 'any' ? 2 * made.cost + 2 : made.cost
    const actual = random.integer(0, most)
    const atMs = Math.min(...failsMs, fails || history.settles !== undefined ? endsMs : Infinity)
    if (atMs === Infinity) return
    const hasFailed = fails || failsMs.length > 0
    const used = new Map<LimitName, number>()
    for (const name of names) {
      if (history.limits[name].kind === 'success' && hasFailed) used.set(name, 0)
      else if (history.settles !== undefined) used.set(name, actual)
    }
    void sleep(atMs).then(() => {
      made.settled = { atMs: world.now(), used }
      settle((quota) => used.get(quota.name as LimitName))
    })
  }

  async function runCaller(action: Action & { kind: 'caller' }): Promise<void> {
    const random = createRandom(history.seed * 1009 + action.number)
    const endMs = Math.min(history.ms, action.atMs + action.ms)
    const isAtOnce = history.limits.sync.kind === 'atOnce'
    const { limit: most, windowMs } = history.limits[isAtOnce ? 'sync' : 'requests']
    const limit = Math.max(1, most)
    /** Few crowds exhaust a limit of thousands. */
    const pauseMs = limit > 1000 ? windowMs / 2 : (1.5 * Math.min(60_000, windowMs)) / limit
    const names = random.pick<readonly LimitName[]>([['requests'], ['requests', 'sync'], ['sync']])
    let waitedFor: Call | undefined
    /** Proofs of admitted calls. */
    const passed: string[] = []
    for (let i = 0; world.now() < endMs; i++) {
      const gateway = action.gateway === 'any' ? random.integer(0, history.gateways - 1) : action.gateway
      const crowd = action.manner === 'crowd' ? random.integer(2, 2 * limit + 2) : 1
      const isReplay = passed.length > 0 && random.chance(0.3)
      const proof = action.withProof ? (isReplay ? random.pick(passed) : `${action.number}-${i}`) : undefined
      const made = await Promise.all(
        Array.from({ length: crowd }, () => call(action, gateway, names, waitedFor, proof)),
      )
      const last = made.at(-1)
      if (proof !== undefined && last?.admitted === true) passed.push(proof)
      waitedFor = undefined
      if (last === undefined || last.isUnavailable) await sleep(100)
      else if (action.manner === 'wait' && !last.admitted && !last.isReplay) {
        // A microsecond more than the wait: the precision of the store's clock.
        await sleep(last.retryAfterMs + 0.002)
        waitedFor = last
      } else if (action.manner === 'hammer') await sleep(random.between(1, 60))
      else await sleep(random.between(0, pauseMs))
    }
  }

  function begin(action: Action): void {
    const untilMs = world.now() + action.ms
    const half = 'half' in action && history.isCluster ? action.half : 0
    const master = deployment.masters[half]
    const replaceMaster = (by: Server): void => {
      deployment.masters[half] = by
      if (!history.isCluster) deployment.masters[1] = by
    }
    if (action.kind === 'caller') void runCaller(action)
    else if (action.kind === 'change') changes.begin(action)
    else if (action.kind === 'slow')
      Object.assign(links[action.gateway]!, { slowUntilMs: untilMs, slowMs: action.delayMs })
    else if (action.kind === 'hang') links[action.gateway]!.heldUntilMs = untilMs
    else if (action.kind === 'lose') links[action.gateway]!.losesUntilMs = untilMs
    else if (action.kind === 'cut') gateways[action.gateway]!.client.cut(action.losesRequests)
    else if (action.kind === 'stall') master.stalledUntilMs = untilMs
    else if (action.kind === 'flush') master.model.flushScripts()
    else if (action.kind === 'full' || action.kind === 'readonly') {
      const fault = action.kind === 'full' ? 'isFull' : 'isReadOnly'
      master.model[fault] = true
      world.at(untilMs, () => (master.model[fault] = false))
    } else if (action.kind === 'clock') {
      // Keys that have expired are gone, and do not return with an earlier clock.
      master.model.sweep()
      clocks.aheadMs[half] = clocks.aheadMs[half]! + action.byMs
    } else if (action.kind === 'suspend') gateways[action.gateway]!.loop.stall(suspendedMs(action))
    else if (action.kind === 'replace') {
      const { gateway, isGraceful } = action
      void endGateway(gateways[gateway]!, isGraceful)
      world.at(untilMs, () => void (gateways[gateway] = start(gateway)))
    } else if (master.isAlive) {
      master.isAlive = false
      const data = action.kind === 'failover' ? lagging.get(action) : master.model.snapshot()
      for (const { client } of gateways) client.dropped(master)
      world.at(untilMs, () => {
        if (action.kind === 'failover') {
          const replica = replicas.get(action)!
          replica.model.restart(data)
          replaceMaster(replica)
          for (const { client } of gateways) client.switched()
        } else {
          master.model.restart(action.kind === 'restart' && !action.keepsData ? undefined : data)
          master.isAlive = true
        }
      })
    }
  }
  /** The data that a lagging replica has. */
  const lagging = new Map<Action, Snapshot>()
  for (const action of history.actions) {
    if (action.kind === 'failover') {
      const half = history.isCluster ? action.half : 0
      world.at(Math.max(0, action.atMs - action.lagMs), () =>
        lagging.set(action, deployment.masters[half].model.snapshot()),
      )
    }
    world.at(action.atMs, () => begin(action))
  }
  // The last calls get their responses.
  await world.run(history.ms + RELOAD_MS)
  for (const server of new Set([...deployment.masters, ...replicas.values(), first])) server.model.close()
  return { history, calls, rules: changes.rules, unanswered, breaks }
}
