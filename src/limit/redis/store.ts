import { randomUUID } from 'node:crypto'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { mergedKey } from '../key.ts'
import type { Quota } from '../quota.ts'
import type { SharedFields } from '../versioned-fields.ts'
import type { Allowance, Charge, Merge, OwnCalls, RemoteStore } from '../store.ts'
import { createBackground } from './background.ts'
import { createConnection } from './connection.ts'
import { createDeadlines } from './deadlines.ts'
import { createDecide } from './decide.ts'
import { assertRoom, isOutOfMemory } from './info.ts'
import { createMarks } from './marks.ts'
import type { loginOf } from './options.ts'
import { createRegistrations } from './registrations.ts'
import { createRunner } from './runner.ts'
import { createScan } from './scan.ts'
import { createRedisFields } from './redis-fields.ts'
import type { RedisStoreOptions } from './store-options.ts'
import { createSummaries, type SentSummary, type SharedSummary } from './summaries.ts'

/** Timeout of what no request waits for, in milliseconds: the pages of a scan, and summaries. */
const SLOW_TIMEOUT_MS = 10_000

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
   * If `isShown`, writes the summary of a gateway, and returns those of the other gateways, not
   * checked, with their ages by Redis's clock. Deletes old and damaged fields, and all of too many.
   * Otherwise writes it only while others are shown at another gateway, and returns none. Rejects if
   * Redis does not answer.
   */
  shareSummary(sent: SentSummary): Promise<readonly SharedSummary[]>
  /** Makes new connections use another login; those that are open stay. */
  renew(login: ReturnType<typeof loginOf>): void
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
  const runner = createRunner(connection, options)
  const decide = createDecide(client, runner, options, id)
  const background = createBackground(connection, runner, options, id)
  const registrations = createRegistrations(client, runner, options, id)
  const scan = createScan(connection, withinSlowTimeout)
  const marks = createMarks({
    timeoutMs,
    clock,
    expire: (mark, ms) => explain(commands.pexpire(mark, ms), client.server(mark)),
    remove: (mark) => explain(commands.unlink(mark), client.server(mark)),
  })
  const summaries = createSummaries(connection, {
    prefix,
    within: withinSlowTimeout,
    dateNow: (key) => store.dateAt(key, clock.now()),
    isWatched: registrations.isWatched,
  })

  const store: RedisStore = {
    listen: runner.listen,
    connect: () =>
      connection.connect(() => Promise.all(store.servers().map((server) => store.probe(server)))),

    warnOfRefused: connection.warnOfRefused,

    charge: (quotas: readonly Quota[], own?: OwnCalls, lease?: string) => decide(quotas, true, own, lease),
    endLeases: background.endLeases,
    renewLeases: background.renewLeases,
    slot: client.slot,
    id,

    async peek(quotas: readonly Quota[], own?: OwnCalls): Promise<readonly Allowance[]> {
      const charges = await Promise.all(quotas.map((quota) => decide([quota], false, own)))
      return charges.flatMap(({ allowances }) => allowances)
    },

    /**
     * Merges calls, then reads their key. Rejects if the calls may not be in the log, or could not be
     * read: the merge is sent again.
     */
    merge: (own: Merge): Promise<Charge> =>
      marks.during(mergedKey(own.quota.key, id, own.number), async () => {
        await background.merge(own)
        return decide([own.quota], false)
      }),
    settle: background.settle,

    keys: scan.keys,
    reset: scan.reset,

    overrides: createRedisFields(connection, options),
    shareSummary: summaries.share,
    server: client.server,
    servers: (): readonly string[] => [...client.tags().keys()],
    reconnect: connection.reconnect,
    isFull: isOutOfMemory,
    renew: client.renew,
    spreadMs: (key) => runner.clocks.spreadMs(client.server(key)),
    dateAt: (key, localMs) => runner.clocks.dateAt(client.server(key), localMs),

    /**
     * Registers this gateway with a server. Resolves if the server can decide calls, or has left the
     * cluster. Rejects with `needsRoom` if it is nearly full.
     */
    async probe(server: string, needsRoom = false): Promise<void> {
      const { within } = runner.deadlinesOf(server)
      await within(connection.check)
      const tag = client.tags().get(server)
      if (tag === undefined) return
      await registrations.register(server, tag)
      void connection.inspectAgain()
      // A server that is not connected reports nothing.
      if (needsRoom) assertRoom(await within(async () => (await client.node(server)?.info('memory')) ?? ''))
    },

    gateways: registrations.gateways,

    async close(): Promise<void> {
      marks.close()
      // These commands are sent before the connection ends.
      registrations.withdraw()
      summaries.withdraw()
      connection.close()
    },
  }
  return store
}
