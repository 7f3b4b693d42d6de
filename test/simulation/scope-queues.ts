import type { Link, Message } from './deployment.ts'
import type { Loop, World } from './time.ts'

/** The messages of a connection one way, in order. */
export interface Queue {
  readonly name: string
  readonly gateway: number
  readonly isAnswer: boolean
  readonly messages: Message[]
  delivered: number
  fault: 'lost' | 'late' | undefined
}

/** Time that each step takes. */
export const SOON_MS = 0.01

/** Creates the network of a scope: messages wait until a step delivers them, from `hold` to `release`. */
export function createQueues(world: World, loopOf: (gateway: number) => Loop) {
  const queues: Queue[] = []
  const connections = new Map<object, number>()
  let isHeld = false

  function queueOf(gateway: number, { connection, isAnswer }: Message): Queue {
    if (!connections.has(connection)) connections.set(connection, connections.size)
    const name = `${'ABC'[gateway]}${isAnswer ? '<' : '>'}${connections.get(connection)}`
    let queue = queues.find((other) => other.name === name)
    if (queue === undefined)
      queues.push((queue = { name, gateway, isAnswer, messages: [], delivered: 0, fault: undefined }))
    return queue
  }

  function arrive({ gateway, isAnswer }: Queue, { deliver }: Message, ms: number): void {
    world.at(world.now() + ms, deliver, isAnswer ? loopOf(gateway) : undefined)
  }

  return {
    all: queues as readonly Queue[],
    linkOf: (gateway: number): Link => ({
      heldUntilMs: 0,
      delayMs: () => SOON_MS / 5,
      carry(message) {
        const queue = queueOf(gateway, message)
        if (queue.fault === 'lost') return
        if (isHeld) queue.messages.push(message)
        else arrive(queue, message, SOON_MS)
      },
    }),
    /** Delivers the first message of a queue. */
    deliver: (queue: Queue): void => arrive(queue, queue.messages.shift()!, 0),
    /** Loses what is under way at a gateway whose connection is cut. */
    lose(gateway: number, losesRequests: boolean): void {
      for (const queue of queues)
        if (queue.gateway === gateway && (losesRequests || queue.isAnswer)) queue.messages.length = 0
    },
    hold: (): void => void (isHeld = true),
    release(): void {
      isHeld = false
      for (const queue of queues) for (const message of queue.messages) arrive(queue, message, SOON_MS)
    },
  }
}
