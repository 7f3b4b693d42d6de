import { createHash } from 'node:crypto'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import type { RedisConnection, RedisStoreOptions } from './connection.ts'
import { createDeadlines } from './deadlines.ts'
import type { Sending } from './sending.ts'
import { ServerClocks } from './server-clocks.ts'

/** A script, and the SHA-1 by which Redis knows it. */
export interface Script {
  readonly text: string
  readonly sha: string
}

/** The number of keys, the keys, and the arguments of a script. */
export type ScriptParams = readonly [keys: number, ...keysAndArgs: (string | number)[]]
/** Returns the keys and arguments of a script that is sent now. */
type ParamsOf = (sending: Sending) => ScriptParams
/** Returns the milliseconds until the timeout of a request. */
export type RemainingMs = () => number

/** Maximum calls of a script. The second knows the clock; in the third, another period has begun meanwhile. */
const MAX_CALLS = 3

export const scriptOf = (text: string): Script => ({
  text,
  sha: createHash('sha1').update(text).digest('hex'),
})

/** True if a script did nothing but read the clock: it came after its deadline, or into another calendar period. */
const isLate = (reply: readonly number[]): boolean => reply.length === 1

/** Creates what runs scripts, and learns the clock of each server by their replies. */
export function createRunner(connection: RedisConnection, options: RedisStoreOptions) {
  const { client, explain, assertConfigured } = connection
  const { timeoutMs = 60_000, clock = SYSTEM_CLOCK } = options
  const { commands } = client
  const deadlines = new Map<string, ReturnType<typeof createDeadlines>>()
  const clocks = new ServerClocks()

  /** Returns the timeout of the requests to a server. */
  function deadlinesOf(server: string) {
    let own = deadlines.get(server)
    if (own === undefined) deadlines.set(server, (own = createDeadlines(timeoutMs, clock)))
    return own
  }

  /** Calls a script whose reply is numbers, the first of them the server's clock; returns none for any other reply. */
  async function callOnce(server: string, script: Script, params: ScriptParams): Promise<readonly number[]> {
    const sentAt = clock.now()
    const asked = commands.evalsha(script.sha, ...params)
    const reply = await asked.catch((error: Error) => {
      // Redis loses its scripts at a restart, a failover or SCRIPT FLUSH.
      const isLost = error.message.startsWith('NOSCRIPT')
      return explain(isLost ? commands.eval(script.text, ...params) : asked, server)
    })
    if (!Array.isArray(reply) || reply.length === 0 || !reply.every(Number.isSafeInteger)) return []
    clocks.learn(server, sentAt, clock.now(), reply[0])
    return reply
  }

  /**
   * Calls a script, and again if it was late because the server's clock, for the deadline or for
   * calendars, was not known well enough.
   */
  async function callInTime(server: string, remainingMs: RemainingMs, script: Script, paramsOf: ParamsOf) {
    assertConfigured()
    const callAt = (nowUs: number, bound: 'earliest' | 'latest') => {
      const localMs = clock.now()
      const deadlineUs = clocks.at(server, localMs + remainingMs(), bound) ?? 0
      const sending = { clocks, server, nowMs: nowUs / 1000, localMs, deadlineUs }
      return callOnce(server, script, paramsOf(sending))
    }
    // The earliest possible deadline on the server's clock, so that a call that has timed out is not charged.
    const nowUs = clocks.at(server, clock.now(), 'latest') ?? clock.date() * 1000
    let reply = await callAt(nowUs, 'earliest')
    for (let calls = 1; isLate(reply) && remainingMs() > 0 && calls < MAX_CALLS; calls++)
      reply = await callAt(reply[0]!, 'latest')
    return reply
  }

  return { clocks, deadlinesOf, callOnce, callInTime }
}
