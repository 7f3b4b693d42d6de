import { CHARGE_SCRIPT } from '../../src/limit/redis/scripts.ts'
import { type Gateway, startGateway } from './gateway.ts'
import type { Rule } from './history.ts'
import type { Deployment, Link, Message, Server } from './deployment.ts'
import { limitOf } from './changes.ts'
import { createRedisModel } from './redis-model.ts'
import { createWorld, serverMicroseconds } from './time.ts'

/** Time of a message, in milliseconds. */
const DELAY_MS = 0.25

export interface StageOptions {
  readonly gateways?: number
  readonly isCluster?: boolean
  /** Microseconds that Redis takes for each number of a script's arguments. */
  readonly scriptUs?: number
}

/** Starts gateways with one limit on a network where a message takes a quarter of a millisecond; each knows how many there are. */
export async function setStage(rule: Rule, options: StageOptions = {}) {
  const { gateways: count = 1, isCluster = false, scriptUs = 0 } = options
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
    server.model.run('script', ['load', CHARGE_SCRIPT])
    return server
  }
  const first = open('first')
  const deployment: Deployment = { isCluster, masters: [first, isCluster ? open('second') : first] }
  const limits = [limitOf('requests', rule)]
  /** The gateways whose next answer about calls is lost, with its connection. */
  const losing = new Set<number>()

  const links = Array.from({ length: count }, (_, i): Link => {
    const link = {
      ...{ heldUntilMs: 0, delayMs: () => DELAY_MS },
      carry({ isAnswer, keys, deliver }: Message): void {
        const isOfCalls = !keys.some((key) => key.endsWith('~gateways'))
        if (isOfCalls && !isAnswer) seen.questions++
        if (isOfCalls && isAnswer && losing.delete(i)) return gateways[i]!.client.cut(false)
        const atMs = Math.max(world.now(), link.heldUntilMs) + DELAY_MS
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
  const begin = (gateway: number, client = 'c1') =>
    gateways[gateway]!.call(client, ['requests']).then((told) => ({ ...told!, toldAtMs: world.now() }))

  return {
    ...{ run, begin, seen, deployment, gateways, now: world.now, model: first.model },
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
    /** Lets Redis fall silent for some time, at one gateway or at all. */
    hang(ms: number, gateway?: number): void {
      for (const [i, link] of links.entries())
        if (gateway === undefined || gateway === i) link.heldUntilMs = world.now() + ms
    },
    /** Loses the next answer about calls, with its connection. */
    loseAnswer: (gateway = 0): void => void losing.add(gateway),
  }
}
