import { setTimeout as sleep } from 'node:timers/promises'
import { createRedisCheck, type RedisCheck } from './check.ts'
import { openClient, type RedisClient, saysOfItself } from './client.ts'
import { isVague } from './cluster.ts'
import type { RedisCredentials, RedisTopology } from './options.ts'
import { configError, type StoreConfigError } from './topology.ts'
import { wrongWire } from './wire.ts'

const START_MS = 2000
const RESUMED_AFTER_MS = 100
/** How often it is found out, while Redis is out of reach, what is spoken where it should be. */
const WIRE_EVERY_MS = 2000

export interface RedisLinkOptions extends RedisCredentials {
  readonly topology: RedisTopology
  /** Told when the connection is lost. */
  readonly onLost?: () => void
  /** Told once when Redis turns out, after `connect`, not to be what the configuration says. */
  readonly onWrong?: (error: StoreConfigError) => void
  /** Told of what the operator should know of a Redis that can be used. */
  readonly onWarning?: (warning: string) => void
}

/** The connection to Redis: is it there, is it the right one, and if not, why. */
export class RedisLink {
  readonly client: RedisClient
  readonly #check: RedisCheck
  readonly #onLost: () => void
  readonly #wrongWire: () => Promise<StoreConfigError | undefined>
  #lastError: Error | undefined
  #onError: (error: Error) => void = () => {}
  #wireSeenAt = Number.NEGATIVE_INFINITY
  #started = false
  #up = false
  #closed = false

  constructor(options: RedisLinkOptions) {
    const { topology, onLost = () => {}, onWarning = () => {} } = options
    this.#onLost = onLost
    this.#wrongWire = () => wrongWire(topology, options)
    this.client = openClient(topology, options, {
      onError: (error) => this.#failed(error),
      onChange: (up) => this.#changed(up),
      // Where sentinels tell of a failover while they are asked for the master, ioredis gives up for good.
      onEnd: () => void this.#resume(),
      onWarning,
    })
    this.#check = createRedisCheck({
      topology,
      info: () => this.#info(),
      onWrong: (error) => {
        if (this.#started) options.onWrong?.(error)
      },
      onWarning,
    })
  }

  /**
   * Connects, and asks something; false where Redis or a part of it is out of reach, which is tried again and again, and
   * compared once it is there. Rejects with a StoreConfigError where it is not what the configuration says or refuses the
   * credentials.
   */
  async connect(ask: () => Promise<unknown>): Promise<boolean> {
    const hopeless = new Promise<never>((_, reject) => {
      this.#onError = (error) => {
        const fatal = configError(error)
        if (fatal !== undefined) reject(fatal)
      }
    })
    try {
      await within(START_MS, Promise.race([hopeless, this.#start(ask)]))
      return true
    } catch (error) {
      const fatal = configError(error) ?? (await this.#wrongWire())
      if (fatal === undefined) return false
      this.close()
      throw fatal
    } finally {
      this.#started = true
      this.#onError = (error) => this.#check.hear(error)
    }
  }

  async #start(ask: () => Promise<unknown>): Promise<void> {
    await this.client.connect()
    await this.client.mastersReady()
    await ask()
  }

  /** Throws a StoreConfigError where what is connected to must not be asked. */
  assertRight(): void {
    this.#check.assertRight()
  }

  /** Compares what is connected to with the configuration; rejects with a StoreConfigError, or with why it cannot be asked. */
  look(): Promise<void> {
    return this.#check.look()
  }

  /** Adds to a failure what is known of its reason, and leaves a server that will not take writes. */
  tell<T>(asked: Promise<T>, key = ''): Promise<T> {
    return asked.catch((error: Error) => {
      // Without a key, nobody knows which node of a cluster it was.
      const isKnown = key !== '' || !this.client.isCluster
      if (isKnown && /^(?:READONLY|NOAUTH|MASTERDOWN)\b/.test(error.message)) this.client.reconnect(key)
      const why = key === '' ? undefined : this.client.why(this.client.server(key))
      if (this.#up && why === undefined) throw error
      const reason = why ?? this.#lastError
      const words = reason === undefined ? '.' : `: ${reason.message}`
      throw new Error(`Redis is not connected${words}`, { cause: error })
    })
  }

  close(): void {
    this.#closed = true
    this.client.close()
  }

  /** What a master says of itself: of a cluster's, the first to answer, for one may hang; of none before it told its slots. */
  #info(): Promise<string> {
    const masters = this.client.knowsMasters() ? this.client.masters() : []
    if (masters.length === 0 && (this.#lastError === undefined || isVague(this.#lastError))) {
      this.#lastError = new Error('the cluster gives no node its slots')
    }
    return this.tell(
      Promise.any(masters.map(saysOfItself)).catch(({ errors }: AggregateError) => {
        throw errors[0] ?? this.#lastError
      }),
    )
  }

  #failed(error: Error & { readonly lastNodeError?: Error }): void {
    // That a connection is closed, or that all nodes fail, says less than why, which was said before.
    if (this.#lastError === undefined || !(isVague(error) || error.lastNodeError)) {
      this.#lastError = error.lastNodeError ?? error
    }
    this.#onError(error)
    if (this.#started && !this.#up) void this.#lookAtWire()
  }

  async #lookAtWire(): Promise<void> {
    const now = performance.now()
    if (this.#closed || now - this.#wireSeenAt < WIRE_EVERY_MS) return
    this.#wireSeenAt = now
    const wrong = await this.#wrongWire()
    if (wrong !== undefined && !this.#up && !this.#closed) this.#check.refuse(wrong)
  }

  async #resume(): Promise<void> {
    await sleep(RESUMED_AFTER_MS, undefined, { ref: false })
    if (!this.#closed) await this.client.connect().catch(() => {})
  }

  #changed(up: boolean): void {
    if (up === this.#up || this.#closed) return
    this.#up = up
    this.#check.forget()
    if (!up) {
      this.#onLost()
      return
    }
    this.#lastError = undefined
    if (this.#started) this.#check.look().catch(() => {})
  }
}

async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Redis did not answer within ${ms} ms.`)), ms)
  })
  return await Promise.race([promise, late]).finally(() => clearTimeout(timer))
}
