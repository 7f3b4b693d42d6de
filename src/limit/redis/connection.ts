import { openClient } from './client.ts'
import { TimeoutError } from './deadlines.ts'
import { checkInfo, configError, isGeneric, type StoreConfigError } from './diagnose.ts'
import type { RedisCredentials, RedisTopology } from './options.ts'

/** The longest that a start waits for Redis. */
const START_MS = 2000

export interface RedisConnectionOptions extends RedisCredentials {
  readonly topology: RedisTopology
  readonly onLost?: () => void
  /** Called once when Redis turns out, after `connect`, not to be what the configuration says. */
  readonly onMisconfigured?: (error: StoreConfigError) => void
  /** Gets what the operator should know of a Redis that can be used; once unless it changes. */
  readonly onWarning?: (warning: string) => void
}

export type RedisConnection = ReturnType<typeof createConnection>

/** Connects to Redis, and finds out whether it is what the configuration says. */
export function createConnection(options: RedisConnectionOptions) {
  let lastWarning: string | undefined
  let lastError: Error | undefined
  let onMisconfigured: RedisConnectionOptions['onMisconfigured']
  let isUp = false
  let isClosed = false
  /** True once what is connected now was found right. */
  let isVerified = false
  let known: StoreConfigError | undefined
  const client = openClient(options.topology, options, failed, changed)

  async function compare(): Promise<string | undefined> {
    const masters = client.masters()
    const [first] = masters
    if (first === undefined) throw new Error('the cluster gives no node its slots')
    // The first answer of any, since one of them may hang.
    const info = await Promise.any(masters.map((node) => node.info())).catch((all: AggregateError) => {
      throw all.errors[0]
    })
    const warning = checkInfo(options.topology, info)
    const { db = 0 } = first.options
    // Where the server refuses the database, ioredis goes on in database 0, which may be another's.
    if (db !== 0) await first.select(db)
    return warning
  }

  /** Compares a new connection with the configuration; rejects with a StoreConfigError, or if Redis does not answer. */
  async function check(): Promise<void> {
    if (isVerified) return
    try {
      const warning = await compare()
      isVerified = true
      known = undefined
      if (warning !== undefined && warning !== lastWarning) options.onWarning?.(warning)
      lastWarning = warning
    } catch (error) {
      const wrong = configError(error)
      if (wrong !== undefined) report(wrong)
      throw wrong ?? explained(error as Error, undefined)
    }
  }

  function explained(error: Error, reason: Error | undefined): Error {
    if (isUp && reason === undefined) return error
    const { message } = reason ?? lastError ?? error
    return new Error(`Redis is not connected: ${message}`, { cause: error })
  }

  function failed(error: Error & { readonly lastNodeError?: Error }): void {
    // That a connection is closed, or that all nodes fail, says less than an error before.
    if (lastError === undefined || !(isGeneric(error) || error.lastNodeError)) {
      lastError = error.lastNodeError ?? error
    }
    const wrong = configError(error)
    // One wrong node of a cluster says nothing against those that were found right.
    if (wrong !== undefined && !isVerified) report(wrong)
  }

  function changed(up: boolean): void {
    if (up === isUp || isClosed) return
    isUp = up
    isVerified = false
    if (up) {
      lastError = undefined
      check().catch(() => {})
    } else options.onLost?.()
  }

  function report(wrong: StoreConfigError): void {
    const isNew = wrong.advice !== known?.advice
    known = wrong
    if (isNew) onMisconfigured?.(wrong)
  }

  function close(): void {
    isClosed = true
    client.close()
  }

  return {
    client,
    check,
    close,
    /** Resolves as `RedisStore.connect`, once `ask` succeeded. */
    async connect(ask: () => Promise<unknown>): Promise<boolean> {
      let timer: NodeJS.Timeout | undefined
      const failed = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new TimeoutError(START_MS)), START_MS)
        onMisconfigured = reject
      })
      try {
        await Promise.race([failed, client.connect().then(ask)])
        return true
      } catch (error) {
        const wrong = configError(error)
        if (wrong === undefined) return false
        close()
        throw wrong
      } finally {
        clearTimeout(timer)
        onMisconfigured = options.onMisconfigured
      }
    },
    /** Throws a StoreConfigError if Redis was found not to be what the configuration says. */
    assertConfigured(): void {
      if (known !== undefined) throw known
    },
    /** Adds the reason to a failure while the server is not connected; reconnects to one that refuses writes. */
    explain: <T>(asked: Promise<T>, server: string): Promise<T> =>
      asked.catch((error: Error) => {
        if (/^(?:READONLY|NOAUTH|MASTERDOWN)\b/.test(error.message)) client.reconnect(server)
        throw explained(error, client.reason(server))
      }),
  }
}
