import type { RedisTopology } from './options.ts'
import { checkTopology, configError, isSaid, type StoreConfigError, topologyWarnings } from './topology.ts'

/** Knows whether the Redis that is connected to is the one that is configured. */
export interface RedisCheck {
  /** Throws a StoreConfigError where the one that is connected to must not be asked. */
  assertRight(): void
  /** There is a new connection, of which nothing is known yet. */
  forget(): void
  /**
   * Compares, unless what is connected to was found right already; rejects with a StoreConfigError, or with why it cannot
   * be asked.
   */
  look(): Promise<void>
  /** Takes note of an error of a connection, which may tell of a wrong password, certificate or address. */
  hear(error: unknown): void
  /** What is out of reach was found to be wrong, whatever it was before. */
  refuse(error: StoreConfigError): void
}

export interface RedisCheckOptions {
  readonly topology: RedisTopology
  /** What the server says of itself: the text of INFO. */
  readonly info: () => Promise<string>
  /** Told of each thing that is wrong, once until Redis is found right. */
  readonly onWrong: (error: StoreConfigError) => void
  /** Told, once each, of what the operator should know of a server that can be used. */
  readonly onWarning: (warning: string) => void
}

/** Compares the server with the configuration, once for each connection, and until it is right. */
export function createRedisCheck({ topology, info, onWrong, onWarning }: RedisCheckOptions): RedisCheck {
  const warned = new Set<string>()
  let isRight = false
  let refused: StoreConfigError | undefined
  let told: string | undefined

  function tell(error: StoreConfigError): void {
    if (isSaid(error.advice, told)) return
    told = error.advice
    onWrong(error)
  }

  return {
    assertRight() {
      if (refused !== undefined) throw refused
    },
    forget() {
      isRight = false
    },
    async look() {
      if (isRight) return
      try {
        const said = await info()
        checkTopology(topology, said)
        isRight = true
        refused = undefined
        told = undefined
        for (const warning of topologyWarnings(said)) {
          if (warned.size < warned.add(warning).size) onWarning(warning)
        }
      } catch (error) {
        const wrong = configError(error)
        if (wrong === undefined) throw error
        refused = wrong
        tell(wrong)
        throw wrong
      }
    },
    hear(error) {
      const wrong = configError(error)
      // Of a cluster, one node that is wrong takes nothing away from those that were found right.
      if (wrong !== undefined && !isRight) tell(wrong)
    },
    refuse: tell,
  }
}
