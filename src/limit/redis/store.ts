import { randomUUID } from 'node:crypto'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { gatewaysKey, type KeyFilter, mergedKey, summariesKey } from '../key.ts'
import type { Quota } from '../quota.ts'
import type { SharedFields } from '../shared-fields.ts'
import type { Allowance, Charge, Merge, OwnCalls, RemoteStore } from '../store.ts'
import { createConnection, type RedisStoreOptions } from './connection.ts'
import { createDeadlines } from './deadlines.ts'
import { hashTag } from './hash-slot.ts'
import { assertRoom, isOutOfMemory } from './info.ts'
import { createMarks } from './marks.ts'
import type { loginOf } from './options.ts'
import { createRedisFields } from './shared-fields.ts'
import { createScripts, GATEWAY_LIFE_MS } from './scripts.ts'

/** Maximum fields of the key of all summaries, which is deleted beyond. */
const MAX_SUMMARIES = 1000
/**
 * Age at which a summary is deleted, as its gateway is gone, or has lost Redis; expiry of the key of
 * all. One that is dated as far ahead is deleted, too: Redis's clock was set back, or another
 * program wrote it.
 */
const SUMMARY_LIFE_MS = 10_000

/** Timeout of what no request waits for, in milliseconds: the pages of a scan, and summaries. */
const SLOW_TIMEOUT_MS = 10_000

/** The summary of another gateway, by its id. */
interface SharedSummary {
  readonly field: string
  readonly summary: string
  readonly ageMs: number
}

/** Counters and overrides in a Redis that all gateways share. */
export interface RedisStore extends RemoteStore {
  /**
   * Connects. Resolves with false while a server is unavailable, and retries; rejects with a
   * StoreConfigError if Redis contradicts the configuration and time does not change that.
   */
  connect(): Promise<boolean>
  /** Warns of commands that Redis refuses to the gateway's user. */
  warnOfRefused(): Promise<void>
  readonly overrides: SharedFields
  /**
   * Writes the summary of a gateway, and returns those of the other gateways, not checked, with
   * their ages by Redis's clock. Deletes old and damaged fields, and all of too many. Rejects if
   * Redis does not answer.
   */
  shareSummary(sent: readonly [gateway: string, summary: string]): Promise<readonly SharedSummary[]>
  /** Makes new connections use another login; those that are open stay. */
  renew(login: ReturnType<typeof loginOf>): void
}

type Registration = Awaited<ReturnType<ReturnType<typeof createScripts>['register']>>
/** Uncertainty of the expiry of registrations, in milliseconds. */
const EXPIRY_SPREAD_MS = 1000

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
 * Creates a store in a Redis that all gateways share: a server, behind Sentinel, or a Cluster. A
 * command that cannot be sent at once fails.
 */
export function createRedisStore(options: RedisStoreOptions): RedisStore {
  const connection = createConnection(options)
  const { client, explain } = connection
  const { commands } = client
  const { prefix, id = randomUUID(), timeoutMs = 60_000, clock = SYSTEM_CLOCK } = options
  const { within: withinSlowTimeout } = createDeadlines(SLOW_TIMEOUT_MS, clock)
  const scripts = createScripts(connection, options, id)
  const marks = createMarks({
    timeoutMs,
    clock,
    expire: (mark, ms) => explain(commands.pexpire(mark, ms), client.server(mark)),
    remove: (mark) => explain(commands.unlink(mark), client.server(mark)),
  })
  const summaries = summariesKey(prefix)
  /** The gateway whose summary was written. */
  let summarized: string | undefined
  /** The last registration at each server, by its hash tag. */
  const registered = new Map<string, Registration>()

  /** Reports calls that a server has lost since this gateway's registration `before`. */
  function reportLoss(server: string, before: Registration | undefined, now: Registration): void {
    if (before === undefined) return
    const isEmptied = before.sinceAt !== now.sinceAt
    const countedUntil = isEmptied ? undefined : outdatedSince(before, now)
    if (isEmptied) options.onEmptied?.(before.seenAt, now.sinceAt)
    if (countedUntil !== undefined) options.onOutdated?.(countedUntil, before.seenAt)
    if (isEmptied || countedUntil !== undefined) options.onLoss?.(server)
  }

  /** Yields the keys that a filter accepts: those of `named`, then page by page those of a scan, some of them twice. */
  async function* find({ named, glob, matches }: KeyFilter, signal?: AbortSignal) {
    connection.assertConfigured()
    const counts = await Promise.all(
      named.map((key) => withinSlowTimeout(() => explain(commands.exists(key), client.server(key)))),
    )
    yield named.filter((_, i) => counts[i]! > 0)
    if (glob === undefined) return
    // A glob without a wildcard in its hash tag matches keys of one slot.
    const isOfOneSlot = !/[*?[\\]/.test(hashTag(glob))
    for (const server of isOfOneSlot ? [client.server(glob)] : store.servers()) {
      const node = client.node(server)
      if (node === undefined) throw new Error(`Redis is not connected: ${server}.`)
      let cursor = '0'
      do {
        signal?.throwIfAborted()
        const page = () => explain(node.scan(cursor, 'MATCH', glob, 'COUNT', 1000), server)
        const [next, keys] = await withinSlowTimeout(page)
        yield keys.filter((key) => matches(key) && !named.includes(key))
        cursor = next
      } while (cursor !== '0')
    }
  }

  const store: RedisStore = {
    listen: scripts.listen,
    connect: () =>
      connection.connect(() => Promise.all(store.servers().map((server) => store.probe(server)))),

    warnOfRefused: connection.warnOfRefused,

    charge: (quotas: readonly Quota[], own?: OwnCalls, lease?: string) =>
      scripts.decide(quotas, true, own, lease),
    endLeases: scripts.endLeases,
    renewLeases: scripts.renewLeases,
    slot: client.slot,
    id,

    async peek(quotas: readonly Quota[], own?: OwnCalls): Promise<readonly Allowance[]> {
      const charges = await Promise.all(quotas.map((quota) => scripts.decide([quota], false, own)))
      return charges.flatMap(({ allowances }) => allowances)
    },

    /**
     * Merges calls, then reads their key; the outcome of refunds is known without a reading.
     * Rejects if the calls may not be in the log, or could not be read: the merge is sent again.
     */
    merge: (own: Merge): Promise<Charge | undefined> =>
      marks.during(mergedKey(own.quota.key, id, own.number), async () => {
        await scripts.merge(own)
        return own.calls.length === 0 ? undefined : await scripts.decide([own.quota], false)
      }),

    async keys(filter: KeyFilter, max = Infinity, signal?: AbortSignal): Promise<readonly string[]> {
      const found = new Set<string>()
      for await (const keys of find(filter, signal)) {
        for (const key of keys) found.add(key)
        if (found.size >= max) break
      }
      return [...found].slice(0, max)
    },

    async reset(filter: KeyFilter, signal?: AbortSignal): Promise<number> {
      let freed = 0
      for await (const keys of find(filter, signal)) {
        // One command per key, since the keys of a cluster may have several slots.
        const counts = keys.map((key) => explain(commands.unlink(key), client.server(key)))
        for (const count of await Promise.all(counts)) freed += count
      }
      return freed
    },

    overrides: createRedisFields(connection, options),
    async shareSummary([gateway, summary]) {
      const date = store.dateAt(summaries, clock.now())
      if (date === undefined) throw new Error('Redis has not answered yet.')
      const nowMs = Math.round(date)
      summarized = gateway
      const written = commands.hset(summaries, gateway, `${nowMs} ${summary}`)
      const expiring = commands.pexpire(summaries, SUMMARY_LIFE_MS)
      const asked = [commands.hgetall(summaries), written, expiring] as const
      const [fields] = await withinSlowTimeout(() => explain(Promise.all(asked), client.server(summaries)))
      const all = Object.entries(fields).map(([field, value]) => {
        const [at = ''] = value.split(' ', 1)
        return { field, summary: value.slice(at.length + 1), ageMs: nowMs - Number(at) }
      })
      const isCurrent = ({ ageMs }: { ageMs: number }): boolean => Math.abs(ageMs) <= SUMMARY_LIFE_MS
      const old = all.filter((one) => !isCurrent(one)).map(({ field }) => field)
      if (all.length > MAX_SUMMARIES) commands.unlink(summaries).catch(() => {})
      else if (old.length > 0) commands.hdel(summaries, ...old).catch(() => {})
      return all.filter((one) => one.field !== gateway && isCurrent(one))
    },
    server: client.server,
    servers: (): readonly string[] => [...client.tags().keys()],
    reconnect: connection.reconnect,
    isFull: isOutOfMemory,
    renew: client.renew,
    spreadMs: (key) => scripts.clocks.spreadMs(client.server(key)),
    dateAt: (key, localMs) => scripts.clocks.dateAt(client.server(key), localMs),

    /**
     * Registers this gateway with a server. Resolves if the server can decide calls, or has left the
     * cluster. Rejects with `needsRoom` if it is nearly full.
     */
    async probe(server: string, needsRoom = false): Promise<void> {
      await scripts.check(server)
      const tag = client.tags().get(server)
      if (tag === undefined) return
      const now = await scripts.register(server, prefix, tag)
      const before = registered.get(tag)
      const tags = new Set(client.tags().values())
      for (const known of registered.keys()) if (!tags.has(known)) registered.delete(known)
      registered.set(tag, now)
      reportLoss(server, before, now)
      if (needsRoom) assertRoom(await scripts.memory(server))
    },

    /** Returns the last known number of gateways that share the store, at least 1. */
    gateways: (): number => Math.max(1, ...[...registered.values()].map(({ gateways }) => gateways)),

    async close(): Promise<void> {
      marks.close()
      // Sent before the connection ends. If the command is lost, this gateway is forgotten a little later.
      for (const tag of registered.keys()) commands.zrem(gatewaysKey(prefix, tag), id).catch(() => {})
      if (summarized !== undefined) commands.hdel(summaries, summarized).catch(() => {})
      connection.close()
    },
  }
  return store
}
