import type { Loaded } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'

type Version = Pick<Loaded, 'text' | 'hash' | 'content'> & { readonly loadMs: number }

/** The configuration at the start, and the function that loads it again. */
export interface Source extends Version {
  /** Loads the configuration, and lists the changes since the text `before`. Rejects with every mistake, one per line. */
  load(before: string): Promise<Version & Pick<Loaded, 'config' | 'changes'>>
}

/** The outcome of a reload, which was rejected if it has problems; `at` is ISO 8601. */
export interface ReloadRecord {
  readonly at: string
  /** Hash of the text that is in force afterwards. */
  readonly hash: string
  readonly problems: readonly string[]
  readonly changes: readonly string[]
}

/** `file-change`: reload only if the text, or a file that it names, has changed; `signal`: always. */
export type ReloadTrigger = 'file-change' | 'signal'

/** The change that is reported if the text is the same. */
const OTHER_FILES = 'files that it names have changed'

/** Sections that are read only at the start, except parts of `listen`. */
const RESTART_ONLY = ['listen', 'forwardAuth', 'admin', 'store', 'log', 'tracing'] as const

interface ReloadParts {
  apply(config: Config): void | Promise<void>
  record(outcome: ReloadRecord): void
  readonly log: Log
  readonly metrics: Metrics
}

/** Creates the function that reloads the configuration, and never rejects; `record` gets each logged outcome. */
export function createReload(
  started: Config,
  source: Source,
  { apply, record, log, metrics }: ReloadParts,
): (trigger: ReloadTrigger) => Promise<void> {
  let { text, hash, content } = source
  let rejected: string | undefined
  metrics.configLoaded(hash)

  const ended = (problems: readonly string[], changes: readonly string[] = []): void =>
    record({ at: new Date().toISOString(), hash, problems, changes })

  return async (trigger) => {
    try {
      const loaded = await source.load(text)
      if (trigger === 'file-change' && loaded.content === content) {
        if (rejected === undefined) return
        rejected = undefined
        metrics.configLoaded(hash)
        ended([])
        log.info({ hash }, 'configuration valid again and unchanged')
        return
      }
      const next = keepRestartOnly(started, loaded.config)
      await apply(next)
      rejected = undefined
      metrics.configLoaded(loaded.hash, hash)
      const onlyFiles = loaded.hash === hash && loaded.content !== content
      const changes = onlyFiles ? [OTHER_FILES] : loaded.changes
      ;({ text, hash, content } = loaded)
      ended([], changes)
      log.info({ hash, loadMs: loaded.loadMs, changes }, 'configuration reloaded')
      const keys = RESTART_ONLY.flatMap((key) => changedKeys(key, loaded.config[key], next[key]))
      if (keys.length > 0) log.warn({ keys }, 'settings changed that need a restart')
    } catch (error) {
      const { message } = error as Error
      // The same mistake is logged and counted once, even if several watched files changed.
      if (trigger === 'file-change' && message === rejected) return
      rejected = message
      metrics.configFailed()
      const problems = message.split('\n')
      ended(problems)
      log.error({ problems }, 'configuration rejected; the previous one stays in force')
    }
  }
}

function keepRestartOnly(started: Config, next: Config): Config {
  const { forwardAuth, admin, store, log, tracing } = started
  const { trustedProxies, hosts } = next.listen
  const tls = renewed(started.listen.tls, next.listen.tls)
  return {
    ...next,
    forwardAuth,
    admin,
    store,
    log,
    tracing,
    listen: { ...started.listen, trustedProxies, hosts, tls },
  }
}

/** Replaces certificates and keys; whether callers are asked for certificates needs a restart. */
function renewed(started: Config['listen']['tls'], next: typeof started) {
  if (started === undefined || next === undefined) return started
  const clientCa = started.clientCa && (next.clientCa ?? started.clientCa)
  return { ...started, cert: next.cert, key: next.key, clientCa }
}

/** Returns the settings of a section that differ, as the file names them; the section if it is a string on one side. */
function changedKeys(section: string, next?: object | string, current?: object | string): readonly string[] {
  if (JSON.stringify(next) === JSON.stringify(current)) return []
  if (typeof next === 'string' || typeof current === 'string') return [section]
  const [a, b] = [next, current] as (Record<string, unknown> | undefined)[]
  return Object.keys({ ...a, ...b })
    .filter((key) => JSON.stringify(a?.[key]) !== JSON.stringify(b?.[key]))
    .map((key) => `${section}.${key.replace(/Ms$/, '')}`)
}
