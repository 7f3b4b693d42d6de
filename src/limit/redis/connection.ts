import { openClient, type RedisClient } from './client.ts'
import { checkInfo, configError, isGeneric, type StoreConfigError } from './diagnose.ts'
import type { RedisCredentials, RedisTopology } from './options.ts'

/** The longest that a start waits for Redis. */
const START_MS = 2000

export interface RedisConnectionOptions extends RedisCredentials {
  readonly topology: RedisTopology
  readonly onLost?: () => void
  /** Called once when Redis turns out, after `connect`, not to be what the configuration says. */
  readonly onWrong?: (error: StoreConfigError) => void
  /** Gets what the operator should know of a Redis that can be used; once unless it changes. */
  readonly onWarning?: (warning: string) => void
}

/** The connection to Redis, and whether Redis is what the configuration says. */
export class RedisConnection {
  readonly client: RedisClient
  readonly #options: RedisConnectionOptions
  #warning: string | undefined
  #lastError: Error | undefined
  #onWrong: (wrong: StoreConfigError) => void = () => {}
  #up = false
  #closed = false
  /** True once what is connected now was found right. */
  #isRight = false
  #wrong: StoreConfigError | undefined

  constructor(options: RedisConnectionOptions) {
    this.#options = options
    this.client = openClient(
      options.topology,
      options,
      (error) => this.#failed(error),
      (up) => this.#changed(up),
    )
  }

  /**
   * Connects and calls `ask`. Resolves with false if Redis or a part of it is out of reach, which is retried in the
   * background; rejects with a StoreConfigError if Redis is not what the configuration says.
   */
  async connect(ask: () => Promise<unknown>): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined
    const failed = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`No answer within ${START_MS} ms.`)), START_MS)
      this.#onWrong = reject
    })
    try {
      await Promise.race([failed, this.client.connect().then(ask)])
      return true
    } catch (error) {
      const wrong = configError(error)
      if (wrong === undefined) return false
      this.close()
      throw wrong
    } finally {
      clearTimeout(timer)
      this.#onWrong = (wrong) => this.#options.onWrong?.(wrong)
    }
  }

  /** Throws a StoreConfigError if Redis was found not to be what the configuration says. */
  assertRight(): void {
    if (this.#wrong !== undefined) throw this.#wrong
  }

  /** Compares a new connection with the configuration; rejects with a StoreConfigError, or if Redis does not answer. */
  async check(): Promise<void> {
    if (this.#isRight) return
    try {
      const warning = await this.#compare()
      this.#isRight = true
      this.#wrong = undefined
      if (warning !== undefined && warning !== this.#warning) this.#options.onWarning?.(warning)
      this.#warning = warning
    } catch (error) {
      const wrong = configError(error)
      if (wrong !== undefined) this.#report(wrong)
      throw wrong ?? this.#explained(error as Error, undefined)
    }
  }

  async #compare(): Promise<string | undefined> {
    const masters = this.client.masters()
    const [first] = masters
    if (first === undefined) throw new Error('the cluster gives no node its slots')
    // The first answer of any, since one of them may hang.
    const info = await Promise.any(masters.map((node) => node.info())).catch((all: AggregateError) => {
      throw all.errors[0]
    })
    const warning = checkInfo(this.#options.topology, info)
    const { db = 0 } = first.options
    // Where the server refuses the database, ioredis goes on in database 0, which may be another's.
    if (db !== 0) await first.select(db)
    return warning
  }

  /** Adds the reason to a failure while the server is not connected; reconnects to one that refuses writes. */
  explain<T>(asked: Promise<T>, server: string): Promise<T> {
    return asked.catch((error: Error) => {
      if (/^(?:READONLY|NOAUTH|MASTERDOWN)\b/.test(error.message)) this.client.reconnect(server)
      throw this.#explained(error, this.client.reason(server))
    })
  }

  #explained(error: Error, reason: Error | undefined): Error {
    if (this.#up && reason === undefined) return error
    const { message } = reason ?? this.#lastError ?? error
    return new Error(`Redis is not connected: ${message}`, { cause: error })
  }

  close(): void {
    this.#closed = true
    this.client.close()
  }

  #failed(error: Error & { readonly lastNodeError?: Error }): void {
    // That a connection is closed, or that all nodes fail, says less than an error before.
    if (this.#lastError === undefined || !(isGeneric(error) || error.lastNodeError)) {
      this.#lastError = error.lastNodeError ?? error
    }
    const wrong = configError(error)
    // One wrong node of a cluster says nothing against those that were found right.
    if (wrong !== undefined && !this.#isRight) this.#report(wrong)
  }

  #changed(up: boolean): void {
    if (up === this.#up || this.#closed) return
    this.#up = up
    this.#isRight = false
    if (up) {
      this.#lastError = undefined
      this.check().catch(() => {})
    } else this.#options.onLost?.()
  }

  #report(wrong: StoreConfigError): void {
    const isNew = wrong.advice !== this.#wrong?.advice
    this.#wrong = wrong
    if (isNew) this.#onWrong(wrong)
  }
}
