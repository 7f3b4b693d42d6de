import type { Redis } from 'ioredis'
import { type Clock, SYSTEM_CLOCK } from '../../runtime/clock.ts'
import { toError } from '../../runtime/to-error.ts'
import { createPace, REPLACE_SILENT_MS, REPLACE_WRONG_MS } from './back-off.ts'
import { openClient } from './client.ts'
import { TimeoutError } from '../store.ts'
import { checkInfo, configError, isGeneric, type StoreConfigError } from './diagnose.ts'
import type { RedisConfig } from './options.ts'
import { grantAdvice, isRefused, missingCommands } from './permissions.ts'

/** Maximum time that a start waits for Redis, in milliseconds. */
const START_MS = 2000

/** Minimum pause between two trials of the commands that Redis refuses, in milliseconds. */
const REFUSED_EVERY_MS = 1000

export interface RedisStoreOptions extends RedisConfig {
  readonly prefix: string
  /** Timeout of a script call. A call that Redis reads later is not charged. */
  readonly timeoutMs?: number
  /** The gateway; random by default. */
  readonly id?: string
  /** Changes the scripts in tests. */
  readonly edit?: (script: string) => string
  readonly clock?: Clock
  /** Replaces the connection by ioredis in the simulation. */
  readonly open?: typeof openClient
  readonly onLost?: () => void
  /** Called once if Redis contradicts the configuration, at `connect` only if this may pass. */
  readonly onMisconfigured?: (error: StoreConfigError) => void
  /** Called with the reason if a server is unavailable at `connect`. */
  readonly onUnavailable?: (cause: Error) => void
  /** Called with a fault of a Redis that can be used; once unless the fault changes. */
  readonly onWarning?: (warning: string) => void
  /** Called when Redis lost its data, with the time whose calls are lost, in epoch milliseconds of Redis's clock. */
  readonly onEmptied?: (countedUntil: number, emptySince: number) => void
  /**
   * Called when Redis returned with old data: calls counted after `countedUntil`, at least until
   * `lostUntil`, are lost. Epoch milliseconds of Redis's clock; 0 if unknown.
   */
  readonly onOutdated?: (countedUntil: number, lostUntil: number) => void
  /** Called when a server lost data, in either of these ways. */
  readonly onLoss?: (server: string) => void
}

export type RedisConnection = ReturnType<typeof createConnection>

export function createConnection(options: RedisStoreOptions) {
  let lastWarning: string | undefined
  /** The last warning about refused commands, and when they were tried. */
  let lastRefusal: string | undefined
  let triedAt = -Infinity
  let lastError: Error | undefined
  let onMisconfigured: RedisStoreOptions['onMisconfigured']
  let isUp = false
  let isClosed = false
  /** True after the current connection has passed `check`. */
  let isVerified = false
  let misconfiguration: StoreConfigError | undefined
  const { clock = SYSTEM_CLOCK, open = openClient } = options
  const client = open(options, failed)
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
      if (first === undefined) throw new Error('no node of the cluster has slots')
      // Use the first answer, since a node may hang.
      const info = await Promise.any(masters.map((node) => node.info())).catch((all: AggregateError) => {
        throw all.errors[0]
      })
      const warning = checkInfo(options, info)
      // If the server refuses the database, ioredis silently uses database 0, which may be another application's.
      if (first.options.db) await first.select(first.options.db)
      isVerified = true
      misconfiguration = undefined
      if (warning !== undefined && warning !== lastWarning) options.onWarning?.(warning)
      lastWarning = warning
    } catch (error) {
      throw report(error) ?? explained(toError(error), undefined)
    }
  }

  function explained(error: Error, reason: Error | undefined): Error {
    if (isUp && reason === undefined) return error
    const { message } = reason ?? lastError ?? error
    return new Error(`Redis is not connected: ${message}`, { cause: error })
  }

  function failed(error: Error & { readonly lastNodeError?: Error }): void {
    // A closed connection, or a failure of all nodes, is a less specific reason than an earlier error.
    if (lastError === undefined || !(isGeneric(error) || error.lastNodeError)) {
      lastError = error.lastNodeError ?? error
    }
    // One misconfigured node of a cluster does not affect nodes that have passed the check.
    if (!isVerified) report(error)
  }

  function changed(up: boolean): void {
    if (up === isUp || isClosed) return
    isUp = up
    isVerified = false
    if (!up) return options.onLost?.()
    lastError = undefined
    check().catch(() => {})
  }

  /** Returns the StoreConfigError of an error, if there is one, and reports a new one. */
  function report(error: unknown): StoreConfigError | undefined {
    const wrong = configError(error)
    if (wrong === undefined) return undefined
    const isNew = wrong.advice !== misconfiguration?.advice
    misconfiguration = wrong
    if (isNew) onMisconfigured?.(wrong)
    return wrong
  }

  /** Warns of the commands that Redis refuses to the user, or of an error; once unless they change. */
  async function warnOfRefused(remedy?: Error): Promise<void> {
    if (clock.now() - triedAt < REFUSED_EVERY_MS) return
    triedAt = clock.now()
    const missing = await missingCommands(client.commands, options.prefix).catch(() => [])
    const warning = missing.length === 0 ? remedy?.message : grantAdvice(missing).message
    if (warning !== undefined && warning !== lastRefusal) options.onWarning?.(warning)
    lastRefusal = warning
  }

  /** Returns an error with the remedy, if Redis refused a command. */
  function withRemedy(error: Error): Error {
    if (!isRefused(error)) return error
    const remedy = configError(error) ?? error
    void warnOfRefused(remedy)
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
    /** Connects and calls `ask`; resolves and rejects as `RedisStore.connect`. */
    async connect(ask: () => Promise<unknown>): Promise<boolean> {
      const connecting = new Promise<unknown>((resolve, reject) => {
        const late = new Error(`No answer within ${START_MS} ms.`)
        clock.after(START_MS, () => reject(explained(late, undefined)))
        onMisconfigured = reject
        const connected = client.connect().catch((error: Error) => {
          throw explained(error, undefined)
        })
        connected.then(ask).then(resolve, reject)
      })
      const failure = await connecting.then(
        () => undefined,
        (error: Error) => report(error) ?? error,
      )
      onMisconfigured = options.onMisconfigured
      if (misconfiguration === undefined) {
        if (failure !== undefined) options.onUnavailable?.(failure)
        return failure === undefined
      }
      if (!misconfiguration.mayPass) {
        close()
        throw misconfiguration
      }
      onMisconfigured?.(misconfiguration)
      return false
    },
    /** Throws the StoreConfigError if Redis contradicts the configuration. */
    assertConfigured(): void {
      if (misconfiguration !== undefined) throw misconfiguration
    },
    /** Adds the reason to an error while the server is not connected; reconnects to a server that refuses writes. */
    explain: <T>(asked: Promise<T>, server: string): Promise<T> =>
      asked.catch((error: Error) => {
        if (/^(?:READONLY|NOAUTH|MASTERDOWN)\b/.test(error.message)) reconnect(server, error)
        throw explained(withRemedy(error), client.reason(server))
      }),
    warnOfRefused,
  }
}
