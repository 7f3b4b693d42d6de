import { SYSTEM_CLOCK } from '../../runtime/clock.ts'
import type { RedisClient } from './client.ts'
import { checkInfo } from './diagnose.ts'
import { grantAdvice, missingCommands } from './permissions.ts'
import type { RedisStoreOptions } from './store-options.ts'

/** Minimum pause between two trials of the commands that Redis refuses, in milliseconds. */
const REFUSED_EVERY_MS = 1000

/** Minimum pause between two readings of INFO over one connection, in milliseconds. */
const INSPECT_EVERY_MS = 60_000

/** Warns of faults of a Redis that can be used: of each subject once, unless the fault changes. */
export function createServerWarnings(client: RedisClient, options: RedisStoreOptions) {
  const { clock = SYSTEM_CLOCK, onWarning } = options
  /** The last warning about each subject. */
  const last = new Map<'server' | 'password' | 'commands', string | undefined>()
  /** When refused commands were tried, and when INFO was read. */
  let triedAt = -Infinity
  let inspectedAt = -Infinity

  /** Passes on a warning, unless it is the last one about its subject. */
  function warn(subject: 'server' | 'password' | 'commands', warning: string | undefined): void {
    if (warning !== undefined && warning !== last.get(subject)) onWarning?.(warning)
    last.set(subject, warning)
  }

  return {
    /** Passes on what the check of a new connection found; undefined for nothing. */
    inspected(server: string | undefined, password: string | undefined): void {
      inspectedAt = clock.now()
      warn('server', server)
      warn('password', password)
    },

    /** Reads INFO again, at most once a minute, and warns of what was changed at the server. */
    async inspectAgain(): Promise<void> {
      const [first] = client.masters()
      if (first === undefined || onWarning === undefined) return
      if (clock.now() - inspectedAt < INSPECT_EVERY_MS) return
      inspectedAt = clock.now()
      warn('server', checkInfo(options, await first.info()))
    },

    /** Warns of the commands that Redis refuses to the user, or of an error. */
    async warnOfRefused(remedy?: Error): Promise<void> {
      if (clock.now() - triedAt < REFUSED_EVERY_MS) return
      triedAt = clock.now()
      const missing = await missingCommands(client.commands, options.prefix).catch(() => [])
      const warning = missing.length === 0 ? remedy?.message : grantAdvice(missing).message
      warn('commands', warning)
    },
  }
}
