import { CHARGE_SCRIPT, MERGE_SCRIPT, SETTLE_SCRIPT } from '../../src/limit/redis/scripts.ts'
import { type Gateway, startGateway } from './gateway.ts'
import type { LimitName, Rule } from './history.ts'
import type { Deployment, Link, Message, Server } from './deployment.ts'
import type { Limit } from '../../src/policy/limit.ts'
import { limitOf } from './changes.ts'
import { createRedisModel } from './redis-model.ts'
import { createWorld, serverMicroseconds } from './time.ts'

/** Time of a message, in milliseconds. */
const DELAY_MS = 0.25
/** Time after which no gateway asks a silent Redis any more. */
const BREAKER_MS = 900
/** Time after which it is seen that something has ended. */
const STEP_MS = 0.05
/** Maximum time until something has ended. */
const MAX_MS = 2000

/** The rule of a limit; `together` counts tokens in place of calls. */
type StageRule = Rule & Pick<Limit, 'together'>

export interface StageOptions {
  readonly gateways?: number
  readonly isCluster?: boolean
  /** Time of a message until `setDelay`, in milliseconds. */
  readonly delayMs?: number
  /** Microseconds that Redis takes for each number of a script's arguments. */
  readonly scriptUs?: number
  /** A second limit, `sync`. */
  readonly sync?: StageRule
}

/** A call, by default of `c1` at the first gateway, under the limit `requests`. */
interface Asked {
  readonly gateway?: number
  readonly client?: string
  readonly names?: readonly LimitName[]
  /** Points that the call takes, or reserves. */
  readonly cost?: number
  readonly token?: string
}

/** Starts gateways with a limit, `requests`, on a network where a message takes a quarter of a millisecond; each knows how many there are. */
export async function setStage(rule: StageRule, options: StageOptions = {}) {
  const { gateways: count = 1, isCluster = false, scriptUs = 0, sync } = options
  let { delayMs = DELAY_MS } = options
  const world = createWorld()
  const seen = { questions: 0, longestScriptMs: 0 }
  const open = (name: string): Server => {
    const server: Server = {
      ...{ name, isAlive: true, stalledUntilMs: 0, scriptUs },
      model: createRedisModel(() => serverMicroseconds(world.now(), 0)),
      onRan() {
        const ms = (server.busyUntilMs ?? 0) - world.now()
        seen.longestScriptMs = Math.max(seen.longestScriptMs, ms)
      },
    }
    for (const script of [CHARGE_SCRIPT, MERGE_SCRIPT, SETTLE_SCRIPT])
      server.model.run('script', ['load', script])
    return server
  }
  const first = open('first')
  const deployment: Deployment = { isCluster, masters: [first, isCluster ? open('second') : first] }
  const limitsOf = (requests: StageRule): readonly Limit[] => [
    limitOf('requests', requests),
    ...(sync === undefined ? [] : [limitOf('sync', sync)]),
  ]
  let limits = limitsOf(rule)
  /** The gateways whose next answer about calls is lost, with its connection. */
  const losing = new Set<number>()

  const links = Array.from({ length: count }, (_, i): Link => {
    const link = {
      ...{ heldUntilMs: 0, delayMs: () => delayMs },
      carry({ isAnswer, keys, deliver }: Message): void {
        const isOfCalls = !keys.some((key) => key.endsWith('~gateways'))
        if (isOfCalls && !isAnswer) seen.questions++
        if (isOfCalls && isAnswer && losing.delete(i)) return gateways[i]!.client.cut(false)
        const atMs = Math.max(world.now(), link.heldUntilMs) + delayMs
        world.at(atMs, deliver, isAnswer ? gateways[i]!.loop : undefined)
      },
    }
    return link
  })
  const gateways: readonly Gateway[] = links.map((link) =>
    startGateway(world, link, deployment, () => limits, new Map()),
  )
  const run = (ms: number): Promise<void> => world.run(world.now() + ms)
  await run(2500)

  /** Makes a call, which has its response after `run`. */
  const ask = ({ gateway = 0, client = 'c1', names = ['requests'], cost, token }: Asked) =>
    gateways[gateway]!.call(client, names, undefined, cost, token).then((told) => ({
      ...told!,
      toldAtMs: world.now(),
    }))
  const begin = (gateway: number, client = 'c1') => ask({ gateway, client })
  /** Runs until a condition holds. */
  async function until(what: string, holds: () => boolean): Promise<void> {
    for (let ms = 0; !holds(); ms += STEP_MS) {
      if (ms > MAX_MS) throw new Error(`Not within ${MAX_MS} ms: ${what}.`)
      await run(STEP_MS)
    }
  }
  /** Runs until a promise is settled. */
  async function ended<T>(promise: Promise<T>): Promise<T> {
    let isEnded = false
    const result = promise.finally(() => (isEnded = true))
    result.catch(() => {})
    await until('a call ends', () => isEnded)
    return await result
  }
  /** Runs until a question about calls is on its way. */
  async function untilAsked(): Promise<void> {
    const { questions } = seen
    await until('a question is sent', () => seen.questions > questions)
  }

  return {
    ...{ run, ask, begin, untilAsked, seen, deployment, gateways, now: world.now, model: first.model },
    /** Runs until an instant of the world, in milliseconds. */
    runTo: world.run,
    /** Makes a call, and runs until it has its response. */
    call: (asked: Asked = {}) => ended(ask(asked)),
    /** Reads a limit of a caller, and runs until it has the answer. */
    async read({ gateway = 0, client = 'c1', names = ['requests'], cost }: Asked = {}) {
      const [allowance] = await ended(gateways[gateway]!.read(client, names, cost))
      const { remaining, resetAfterMs, used, admitted } = allowance!
      return { remaining, resetAfterMs, used, admitted }
    },
    /** Begins to reset the counter of a caller. */
    reset: (gateway = 0, client = 'c1') => gateways[gateway]!.reset(client, ['requests']),
    /** Replaces the limit, as a reload does. */
    change: (next: StageRule): void => void (limits = limitsOf(next)),
    /** Makes calls at once, and runs until they have ended. */
    async calls(count: number, gateway = 0, client = 'c1') {
      const told = Array.from({ length: count }, () => begin(gateway, client))
      await run(250)
      const all = await Promise.all(told)
      return { all, admitted: all.filter(({ admitted }) => admitted) }
    },
    /** Makes calls one after the other, `everyMs`, and runs until the last has ended. */
    async callsEvery(everyMs: number, count: number, gateway = 0, client = 'c1') {
      const told = []
      for (let i = 0; i < count; i++) {
        told.push(begin(gateway, client))
        await run(everyMs)
      }
      await run(250)
      return await Promise.all(told)
    },
    /** Lets Redis fall silent for some time, and runs until the gateways ask it no more. */
    async silence(ms: number): Promise<void> {
      const untilMs = world.now() + ms
      for (const link of links) link.heldUntilMs = untilMs
      await ended(Promise.all(gateways.map((_, gateway) => ask({ gateway, client: 'other' }))))
      // After three failures, the last a quarter of a second after the first.
      await run(BREAKER_MS)
    },
    /** Sets the time of a message. */
    setDelay: (ms: number): void => void (delayMs = ms),
    /** Lets Redis fall silent for some time, at one gateway or at all. */
    hang(ms: number, gateway?: number): void {
      for (const [i, link] of links.entries())
        if (gateway === undefined || gateway === i) link.heldUntilMs = world.now() + ms
    },
    /** Loses the next answer about calls, with its connection. */
    loseAnswer: (gateway = 0): void => void losing.add(gateway),
    /** Loses the next answer about calls, with its connection, and runs until the gateway is without one. */
    async untilAnswerIsLost(gateway = 0): Promise<void> {
      losing.add(gateway)
      await until('an answer is lost', () => !losing.has(gateway))
      await run(2 * delayMs)
    },
    /** Loses the next question about calls, with its connection, and runs until the gateway is without one. */
    async untilQuestionIsLost(gateway = 0): Promise<void> {
      await untilAsked()
      gateways[gateway]!.client.cut(true)
      await run(2 * delayMs)
    },
  }
}
