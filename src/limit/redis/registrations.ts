import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { gatewaysKey, seenKey, sinceKey, watchedKey } from '../key.ts'
import type { RedisClient } from './client.ts'
import { createClockCheck } from './clock-check.ts'
import { invalidReply, type Runner, scriptOf, type ScriptParams } from './runner.ts'
import { REGISTER_SCRIPT } from './scripts.ts'
import type { RedisStoreOptions } from './store-options.ts'

const REGISTER = scriptOf(REGISTER_SCRIPT)
/**
 * A silent gateway may count by itself: those that lose Redis within two minutes after it still
 * know of it, and leave it its part. Several windows of most limits.
 */
const GATEWAY_LIFE_MS = 120_000
/** Uncertainty of the expiry of registrations, in milliseconds. */
const EXPIRY_SPREAD_MS = 1000

/** The reply of register.lua. */
type Registered = readonly [
  seenUs: number,
  gateways: number,
  sinceUs: number,
  ownUs: number,
  anyUs: number,
  watched: number,
]

const isRegistered = (reply: readonly number[]): reply is Registered => reply.length === 6

/** The state of a server when this gateway registered. Times are epoch milliseconds of Redis's clock. */
interface Registration {
  readonly gateways: number
  readonly seenAt: number
  readonly sinceAt: number
  /** The registrations before, of this gateway and of any, that the server has; 0 if it has none. */
  readonly ownBefore: number
  readonly anyBefore: number
  /** True while some gateway shows the summaries. */
  readonly isWatched: boolean
}

/**
 * Returns the instant until which a server's data count calls, if they are older than this
 * gateway's registration `before`; 0 if the instant is unknown, undefined if they are not older.
 */
function outdatedSince(before: Registration, { seenAt, ownBefore, anyBefore }: Registration) {
  // The clock was set back.
  if (seenAt < before.seenAt) return undefined
  if (anyBefore > 0 && anyBefore < before.seenAt) return anyBefore
  // Another gateway has registered since the return of the old data.
  if (ownBefore > 0) return ownBefore < before.seenAt ? ownBefore : undefined
  // A gateway that was suspended for longer has been removed.
  return seenAt - before.seenAt < GATEWAY_LIFE_MS - EXPIRY_SPREAD_MS ? 0 : undefined
}

/**
 * Creates the registrations of the gateway `id` with each server, by which gateways count each
 * other, and see that a server has lost data.
 */
export function createRegistrations(
  client: RedisClient,
  runner: Runner,
  options: RedisStoreOptions,
  id: string,
) {
  const { prefix, clock = SYSTEM_CLOCK } = options
  const checkClock = createClockCheck(options)
  /** The last registration at each server, by its hash tag. */
  const registered = new Map<string, Registration>()

  async function ask(server: string, tag: string): Promise<Registration> {
    const keys = [gatewaysKey, sinceKey, seenKey, watchedKey].map((keyAt) => keyAt(prefix, tag))
    const params: ScriptParams = [keys.length, ...keys, id, GATEWAY_LIFE_MS]
    const reply = await runner.deadlinesOf(server).within(() => runner.callOnce(server, REGISTER, params))
    if (!isRegistered(reply)) throw invalidReply()
    const [seenUs, gateways, sinceUs, ownUs, anyUs, watched] = reply
    return {
      gateways,
      seenAt: seenUs / 1000,
      sinceAt: sinceUs / 1000,
      ownBefore: ownUs / 1000,
      anyBefore: anyUs / 1000,
      isWatched: watched === 1,
    }
  }

  /** Reports calls that a server has lost since this gateway's registration `before`. */
  function reportLoss(server: string, before: Registration | undefined, now: Registration): void {
    if (before === undefined) return
    const isEmptied = before.sinceAt !== now.sinceAt
    const countedUntil = isEmptied ? undefined : outdatedSince(before, now)
    if (isEmptied) options.onEmptied?.(before.seenAt, now.sinceAt)
    if (countedUntil !== undefined) options.onOutdated?.(countedUntil, before.seenAt)
    if (isEmptied || countedUntil !== undefined) options.onLoss?.(server)
  }

  return {
    /** Registers with the server of a hash tag, checks its clock, and reports what it has lost. */
    async register(server: string, tag: string): Promise<void> {
      const sentAt = clock.date()
      const now = await ask(server, tag)
      checkClock(server, { sentAt, shownAt: now.seenAt, readAt: clock.date() })
      const before = registered.get(tag)
      const tags = new Set(client.tags().values())
      for (const known of registered.keys()) if (!tags.has(known)) registered.delete(known)
      registered.set(tag, now)
      reportLoss(server, before, now)
    },

    /** Returns the last known number of gateways that share the store, at least 1. */
    gateways: (): number => Math.max(1, ...[...registered.values()].map(({ gateways }) => gateways)),

    /** True if some gateway showed the summaries at the last registration with a server. */
    isWatched: (): boolean => [...registered.values()].some(({ isWatched }) => isWatched),

    /** Removes the registrations. If the command is lost, this gateway is forgotten a little later. */
    withdraw(): void {
      for (const tag of registered.keys()) client.commands.zrem(gatewaysKey(prefix, tag), id).catch(() => {})
    },
  }
}
