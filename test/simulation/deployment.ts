import type { RedisModel } from './redis-model.ts'
import type { Loop } from './time.ts'

/** A Redis server on the network. */
export interface Server {
  readonly name: string
  readonly model: RedisModel
  isAlive: boolean
  stalledUntilMs: number
  /** Microseconds that a script takes for each number of its arguments; default 0. Meanwhile the server answers no gateway. */
  readonly scriptUs?: number
  busyUntilMs?: number
  /** Called with a request that it ran; `hasWaited` for the end of a stall. The record shows later whether the answer arrived. */
  readonly onRan?: (request: Request, reply: unknown, record: Executed, hasWaited: boolean) => void
  /** Called with a request that it never read. */
  readonly onLost?: (request: Request) => void
}

/** A command that a gateway sent. */
export interface Request {
  readonly from: Loop
  readonly command: string
  readonly args: readonly (string | number)[]
}

/** The deployment that the gateways know: the server of each of two halves of the slots, which are one server outside a cluster. */
export interface Deployment {
  readonly isCluster: boolean
  masters: [Server, Server]
  /** A hash tag of each half; they change when slots move. */
  tags?: readonly [string, string]
}

/** The network between one gateway and all servers. */
export interface Link {
  /** Nothing passes before this instant. */
  heldUntilMs: number
  /** Time of one way. */
  delayMs: () => number
  /** Called with the keys of an answer that leaves Redis; true if it is lost, with its connection. */
  readonly loses?: (keys: readonly string[]) => boolean
  /** Carries the messages, in place of the delays. */
  readonly carry?: (message: Message) => void
}

/** A question to Redis, or its answer. */
export interface Message {
  /** The connection, whose messages keep their order each way. */
  readonly connection: object
  readonly isAnswer: boolean
  readonly keys: readonly string[]
  /** When the question was sent. */
  readonly sentAtMs: number
  readonly deliver: () => void
}

/** A script that Redis ran for a gateway, and whether the answer arrived. */
export interface Executed {
  answeredAtMs: number | undefined
}
