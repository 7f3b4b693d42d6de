import type { Step } from './explore.ts'
import { type Gateway, TIMEOUT_MS } from './gateway.ts'
import type { Message } from './deployment.ts'
import type { Call } from './play.ts'
import { type Begun, disconnects, type Fault, isOfMessage, isOfRedis } from './scope-faults.ts'
import type { Queue } from './scope-queues.ts'
import type { World } from './time.ts'

/** A pause longer than a reconnection; two pauses are longer than the timeout. */
export const PAUSE_MS = 60
const SWEEP_MS = 250
const MAX_PAUSES = 6

/** The state of an order that runs. */
export interface State {
  readonly world: World
  readonly gateways: readonly Gateway[]
  readonly queues: readonly Queue[]
  /** Calls to make at each gateway. */
  readonly callsEach: number
  readonly faults: readonly Fault[]
  /** Calls made at each gateway. */
  readonly made: number[]
  /** Calls that have ended. */
  readonly calls: readonly Call[]
  fault: Begun | undefined
  pauses: number
  /** The instant that the last pause reached. */
  pausedMs: number
  hasSwept: boolean
}

/** The effects of steps. */
export interface Deeds {
  readonly call: (gateway: number) => void
  readonly deliver: (queue: Queue) => void
  readonly begin: (kind: Fault, gateway: number, queue?: Queue) => void
  readonly endFault: () => void
  /** Ends the choice: the rest takes its course. */
  readonly end: () => void
}

export type Deed = Step & { readonly run: () => void }

const isLate = ({ sentAtMs }: Message, atMs: number): boolean => atMs - sentAtMs >= 1.1 * TIMEOUT_MS
const isStalled = ({ fault }: State): boolean => fault?.kind === 'stalled' && !fault.isOver
const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0)

/** Returns true if the first message of a queue may arrive. */
export const canArrive = (state: State, { fault, isAnswer, messages }: Queue): boolean =>
  messages.length > 0 &&
  (fault !== 'late' || isLate(messages[0]!, state.world.now())) &&
  (isAnswer || !isStalled(state))

/** Returns how long something waits for time to pass; 0 if nothing does. */
function waitsMs(state: State): number {
  const { world, gateways, queues, callsEach, made, calls, fault, pauses, pausedMs, hasSwept } = state
  if (fault === undefined) return 0
  // What a suspended gateway gets, it reads when it wakes.
  if (isSuspended(state)) return 1.6 * TIMEOUT_MS
  const isUnanswered = (i: number): boolean => calls.filter(({ gateway }) => gateway === i).length < made[i]!
  const isHit = queues.some(({ fault: own, messages, gateway }) =>
    own === 'lost' ? isUnanswered(gateway) : own === 'late' && !isLate(messages[0]!, world.now()),
  )
  const isAway = disconnects(fault.kind) && pauses === 0
  const isHeld = isStalled(state) && world.now() <= fault.atMs + TIMEOUT_MS
  if (pauses < MAX_PAUSES && (isHit || isAway || isHeld)) return PAUSE_MS
  // Until calls that were admitted without Redis are merged, once.
  if (gateways.length > 1) return 0
  const sweptMs = Math.floor(world.now() / SWEEP_MS) * SWEEP_MS
  const isOwn =
    !hasSwept &&
    sum(made) < gateways.length * callsEach &&
    calls.some(({ admitted, mode, toldAtMs }) => admitted && mode === 'local' && toldAtMs > sweptMs)
  return isOwn ? sweptMs + SWEEP_MS + 5 - pausedMs : 0
}

const isSuspended = ({ gateways, world }: State): boolean =>
  gateways.some(({ loop }) => loop.busyUntilMs > world.now())

/** Returns true if no message but those of the fault becomes late in a pause. */
const mayPass = (state: State, ms: number): boolean =>
  state.queues.every(
    ({ fault, isAnswer, messages }) =>
      fault === 'late' ||
      (!isAnswer && isStalled(state)) ||
      messages.every((message) => !isLate(message, state.pausedMs + ms)),
  )

function pass(state: State, ms: number): void {
  state.pauses++
  state.pausedMs += ms
  if (ms > PAUSE_MS && !isSuspended(state)) state.hasSwept = true
}

/** Returns what may happen next: answers first, then calls, questions, the passing of time and faults. */
export function stepsOf(state: State, deeds: Deeds): readonly Deed[] {
  const { world, gateways, queues, callsEach, faults, made, calls, fault } = state
  const steps: Deed[] = []
  const add = (name: string, touches: readonly string[], run: () => void): void =>
    void steps.push({ name, touches, run })
  const end = (): readonly Deed[] => [{ name: 'end', touches: ['all'], run: deeds.end }]
  const isDone = calls.length === gateways.length * callsEach
  // Only the retries follow: what is under way then arrives in one order.
  if (isDone && fault !== undefined) return end()
  const arriving = queues
    .filter((queue) => canArrive(state, queue))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const addArrivals = (areAnswers: boolean): void => {
    for (const queue of arriving) {
      if (queue.isAnswer !== areAnswers) continue
      const own = 'ABC'[queue.gateway]!
      add(`${queue.name} ${queue.delivered + 1}`, areAnswers ? [own] : ['redis', `${own}>`], () => {
        queue.delivered++
        queue.fault = undefined
        deeds.deliver(queue)
      })
    }
  }
  addArrivals(true)
  for (const [i, count] of made.entries()) {
    // The gateways are alike: the first call is at the first.
    if (i > 0 && made[0] === 0) continue
    for (let times = 1; times <= Math.min(2, callsEach - count); times++) {
      add(`${'ABC'[i]} calls${times === 2 ? ' twice at once' : ''}`, ['ABC'[i]!], () => {
        for (let each = 0; each < times; each++) deeds.call(i)
      })
    }
  }
  addArrivals(false)
  if (fault?.isOver === false && (fault.kind === 'full' || world.now() > fault.atMs + TIMEOUT_MS))
    add(`not ${fault.kind} any more`, ['redis'], deeds.endFault)
  if (isDone && steps.length === 0) steps.push(...end())
  const waitMs = waitsMs(state)
  if (waitMs > 0 && mayPass(state, waitMs)) {
    add('time passes', ['all'], () => pass(state, waitMs))
  }
  if (fault === undefined)
    for (const kind of faults) steps.push(...beginningsOf(kind, state, arriving, deeds))
  return steps
}

/** Returns the ways in which a fault may begin. */
function beginningsOf(
  kind: Fault,
  state: State,
  arriving: readonly Queue[],
  { begin }: Deeds,
): readonly Deed[] {
  // What comes between a loss, or the beginning of a delay, and the next pause can as well come before.
  const beginAndPass = (gateway: number, queue?: Queue) => (): void => {
    begin(kind, gateway, queue)
    pass(state, PAUSE_MS)
  }
  const mayBegin = mayPass(state, PAUSE_MS)
  if (isOfMessage(kind)) {
    const hit = arriving.filter(({ isAnswer }) => mayBegin && isAnswer === kind.startsWith('answer'))
    return hit.map((queue) => ({
      ...{ name: `${queue.name} ${kind}`, touches: ['all'] },
      run: beginAndPass(queue.gateway, queue),
    }))
  }
  if (kind === 'stalled') {
    const isAsked = state.queues.some(({ isAnswer, messages }) => !isAnswer && messages.length > 0)
    return mayBegin && isAsked ? [{ name: kind, touches: ['all'], run: beginAndPass(0) }] : []
  }
  if (isOfRedis(kind)) {
    const touches = disconnects(kind) ? ['all'] : ['redis', 'fault']
    return [{ name: kind, touches, run: () => begin(kind, 0) }]
  }
  return state.gateways.map((_, i) => {
    const own = 'ABC'[i]!
    return { name: `${own} ${kind}`, touches: [own, `${own}>`, 'fault'], run: () => begin(kind, i) }
  })
}
