import type { Redis } from 'ioredis'
import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { toError } from '../../runtime/to-error.ts'
import { createPace, REPLACE_SILENT_MS, REPLACE_WRONG_MS } from './back-off.ts'
import { openClient } from './client.ts'
import { TimeoutError } from '../store.ts'
import { createConnectionFaults } from './connection-faults.ts'
import { checkInfo, configError, isGeneric } from './diagnose.ts'
import { warningOfOpenness } from './no-password.ts'
import { isRefused } from './permissions.ts'
import { createServerWarnings } from './server-warnings.ts'
import type { RedisStoreOptions } from './store-options.ts'

/** Maximum time that a start waits for Redis, in milliseconds. */
const START_MS = 2000

export type RedisConnection = ReturnType<typeof createConnection>

/**
 * Opens the connection to a Redis. It is up while a server answers, and verified once that server
 * has been compared with the configuration.
 */
export function createConnection(options: RedisStoreOptions) {
  let isUp = false
  let isClosed = false
  /** True after the current connection has passed `check`. */
  let isVerified = false
  const { clock = SYSTEM_CLOCK, open = openClient } = options
  const faults = createConnectionFaults()
  const client = open(options, failed)
  const warnings = createServerWarnings(client, options)
  const mayReplace = createPace(clock)
  const emitter = client.commands as Redis
  emitter.on('error', failed).on('sentinelError', failed)
  emitter.on('ready', () => changed(true)).on('close', () => changed(false))

  /** Compares a new connection with the configuration; rejects with a StoreConfigError, or if Redis does not answer. */
  async function check(): Promise<void> {
    if (isVerified) return
    try {
      const masters = client.masters()
      const [first] = masters
      if (first === undefined)
        throw new Error('no node of the cluster has slots, or the nodes announce no addresses')
      // Use the first answer, since a node may hang.
      const info = await Promise.any(masters.map((node) => node.info())).catch((all: AggregateError) => {
        throw all.errors[0]
      })
      const warning = checkInfo(options, info)
      // If the server refuses the database, ioredis silently uses database 0, which may be another application's.
      if (first.options.db) await first.select(first.options.db)
      const openness = await warningOfOpenness(first)
      isVerified = true
      faults.verified()
      warnings.inspected(warning, openness)
    } catch (error) {
      throw faults.report(error) ?? explained(toError(error))
    }
  }

  /** Adds to an error why its server is not connected; `reason` if that is known of this server. */
  function explained(error: Error, reason?: Error): Error {
    if (isUp && reason === undefined && !isGeneric(error)) return error
    const known = reason ?? faults.last() ?? error
    const text = isGeneric(known) ? 'the connection was closed' : known.message
    return new Error(`Redis is not connected: ${text}`, { cause: error })
  }

  function failed(error: Error): void {
    faults.record(error)
    // One misconfigured node of a cluster does not affect nodes that have passed the check.
    if (!isVerified) faults.report(error)
  }

  function changed(up: boolean): void {
    if (up === isUp || isClosed) return
    isUp = up
    isVerified = false
    if (!up) return options.onLost?.()
    faults.connected()
    check().catch(() => {})
  }

  /** Returns an error with the remedy, if Redis refused a command. */
  function withRemedy(error: Error): Error {
    if (!isRefused(error)) return error
    const remedy = configError(error) ?? error
    void warnings.warnOfRefused(remedy)
    return remedy
  }

  /** Replaces the connection to a server that is silent or wrong, and less often while that does not help. */
  function reconnect(server: string, cause: Error): void {
    const firstMs = cause instanceof TimeoutError ? REPLACE_SILENT_MS : REPLACE_WRONG_MS
    if (mayReplace(server, firstMs)) client.reconnect(server)
  }

  function close(): void {
    isClosed = true
    client.close()
  }

  return {
    client,
    check,
    close,
    reconnect,
    /** Warns of what was changed at the server; does not reject. */
    async inspectAgain(): Promise<void> {
      if (isVerified) await warnings.inspectAgain().catch(() => {})
    },
    /** Connects and calls `ask`; resolves and rejects as `RedisStore.connect`. */
    async connect(ask: () => Promise<unknown>): Promise<boolean> {
      const connecting = new Promise<unknown>((resolve, reject) => {
        const late = new Error(`No answer within ${START_MS} ms.`)
        clock.after(START_MS, () => reject(explained(late)))
        faults.listen(reject)
        const connected = client.connect().catch((error: Error) => {
          throw explained(error)
        })
        connected.then(ask).then(resolve, reject)
      })
      const failure = await connecting.then(
        () => undefined,
        (error: Error) => faults.report(error) ?? error,
      )
      faults.listen(options.onMisconfigured)
      const misconfiguration = faults.misconfiguration()
      if (misconfiguration === undefined) {
        if (failure !== undefined) options.onUnavailable?.(failure)
        return failure === undefined
      }
      if (!misconfiguration.mayPass) {
        close()
        throw misconfiguration
      }
      options.onMisconfigured?.(misconfiguration)
      return false
    },
    /** Throws the StoreConfigError if Redis contradicts the configuration. */
    assertConfigured(): void {
      const misconfiguration = faults.misconfiguration()
      if (misconfiguration !== undefined) throw misconfiguration
    },
    /** Adds the reason to an error while the server is not connected; reconnects to a server that refuses writes. */
    explain: <T>(asked: Promise<T>, server: string): Promise<T> =>
      asked.catch((error: Error) => {
        if (/^(?:READONLY|NOAUTH|MASTERDOWN)\b/.test(error.message)) reconnect(server, error)
        throw explained(withRemedy(error), client.reason(server))
      }),
    warnOfRefused: warnings.warnOfRefused,
  }
}
