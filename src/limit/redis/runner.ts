import { createHash } from 'node:crypto'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import type { OnReply } from '../store.ts'
import type { RedisConnection } from './connection.ts'
import { createDeadlines } from './deadlines.ts'
import type { Sending } from './sending.ts'
import { ServerClocks } from './server-clocks.ts'
import type { RedisStoreOptions } from './store-options.ts'

/** A script, and the SHA-1 by which Redis knows it. */
export interface Script {
  readonly text: string
  readonly sha: string
}

/** The number of keys, the keys, and the arguments of a script. */
export type ScriptParams = readonly [keys: number, ...keysAndArgs: (string | number)[]]
/** A reply of a script: integers, the first of them the server's clock in microseconds. */
export type ScriptReply = readonly [nowUs: number, ...results: number[]]
/** A question to a script, with its keys and arguments. */
interface Asked {
  readonly params: ScriptParams
}
/** Returns the milliseconds until the timeout of a request. */
export type RemainingMs = () => number

/** Maximum calls of a script. The second knows the clock; in the third, another period has begun meanwhile. */
const MAX_CALLS = 3

/** Returns the script of a text, which `edit` changes in tests. */
export function scriptOf(text: string, edit?: (script: string) => string): Script {
  const edited = edit?.(text) ?? text
  return { text: edited, sha: createHash('sha1').update(edited).digest('hex') }
}

export const invalidReply = () => new Error('Redis returned an invalid reply to a script.')

const isReply = (reply: unknown): reply is ScriptReply =>
  Array.isArray(reply) && reply.length > 0 && reply.every(Number.isSafeInteger)

/** True if a script did nothing but read the clock: it came after its deadline, or into another calendar period. */
const isLate = (reply: ScriptReply): boolean => reply.length === 1

export type Runner = ReturnType<typeof createRunner>

/** Creates what runs scripts, and learns the clock of each server by their replies. */
export function createRunner(connection: RedisConnection, options: RedisStoreOptions) {
  const { client, explain, assertConfigured } = connection
  const { timeoutMs = 60_000, clock = SYSTEM_CLOCK } = options
  const { commands } = client
  const deadlines = new Map<string, ReturnType<typeof createDeadlines>>()
  const clocks = new ServerClocks()
  /** The listener to the outcomes of requests; undefined until a fallback follows them. */
  let onReply: OnReply | undefined

  /** Returns the timeout of the requests to a server. */
  function deadlinesOf(server: string) {
    let own = deadlines.get(server)
    if (own === undefined) deadlines.set(server, (own = createDeadlines(timeoutMs, clock)))
    return own
  }

  /** Calls a script. Rejects if it fails, or replies otherwise than scripts do. */
  async function callOnce(server: string, script: Script, params: ScriptParams): Promise<ScriptReply> {
    const sentAt = clock.now()
    const asked = commands.evalsha(script.sha, ...params)
    const reply = await asked.catch((error: Error) => {
      // Redis loses its scripts at a restart, a failover or SCRIPT FLUSH.
      const isLost = error.message.startsWith('NOSCRIPT')
      return explain(isLost ? commands.eval(script.text, ...params) : asked, server)
    })
    if (!isReply(reply)) throw invalidReply()
    clocks.learn(server, sentAt, clock.now(), reply[0])
    return reply
  }

  /**
   * Calls a script with what `ask` returns when it is sent, and again if it was late because the
   * server's clock, for the deadline or for calendars, was not known well enough. Returns the last
   * question, and the reply to it.
   */
  async function callInTime<Question extends Asked>(
    server: string,
    remainingMs: RemainingMs,
    script: Script,
    ask: (sending: Sending) => Question,
  ) {
    assertConfigured()
    const askAt = (nowUs: number, bound: 'earliest' | 'latest'): Question => {
      const localMs = clock.now()
      const deadlineUs = clocks.at(server, localMs + remainingMs(), bound) ?? 0
      return ask({ clocks, server, nowMs: nowUs / 1000, localMs, deadlineUs })
    }
    // The earliest possible deadline on the server's clock, so that a call that has timed out is not charged.
    const nowUs = clocks.at(server, clock.now(), 'latest') ?? clock.date() * 1000
    let question = askAt(nowUs, 'earliest')
    let reply = await callOnce(server, script, question.params)
    for (let calls = 1; isLate(reply) && remainingMs() > 0 && calls < MAX_CALLS; calls++) {
      question = askAt(reply[0], 'latest')
      reply = await callOnce(server, script, question.params)
    }
    return { question, reply }
  }

  return {
    clocks,
    deadlinesOf,
    callOnce,
    callInTime,
    /** Sets the listener to the outcomes of requests. */
    listen(listener: OnReply): void {
      onReply = listener
    },
    /** Reports the outcome of a request to the listener. */
    report: (server: string, error?: Error): void => onReply?.(server, error),
  }
}
