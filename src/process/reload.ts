import type { Loaded } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'

/** The configuration in force at the start, and how to load it again. */
export interface Source {
  readonly text: string
  /** Of the text. */
  readonly hash: string
  /** Of the text, and of the files and secrets that it names. */
  readonly content: string
  readonly loadMs: number
  /** Also says what differs from the text `before`. Rejects with an error whose message lists every mistake, a line each. */
  load(before: string): Promise<Omit<Source, 'load'> & Pick<Loaded, 'config' | 'changes'>>
}

/** How a reload ended: with no problems, or rejected. */
export interface ReloadRecord {
  /** ISO 8601. */
  readonly at: string
  /** Of the text in force from then on. */
  readonly hash: string
  readonly problems: readonly string[]
  /** What has changed, in the file's words. */
  readonly changes: readonly string[]
}

/** `file-change`: reload only if the text, or a file that it names, differs from what is in force; `signal`: in any case. */
export type ReloadTrigger = 'file-change' | 'signal'

/** The change of a reload whose text is the same. */
const OTHER_FILES = 'files that it names have changed'

/** Sections that are read at the start only, but for parts of `listen`. */
const RESTART_ONLY = ['listen', 'admin', 'store', 'log', 'tracing'] as const

/**
 * Returns what reloads the configuration, one at a time; a bad one changes nothing. `apply` is to be whole or not at all.
 * `record` gets each end that is logged.
 */
export function createReload(
  started: Config,
  source: Source,
  apply: (config: Config) => void | Promise<void>,
  log: Log,
  metrics: Metrics,
  record: (end: ReloadRecord) => void = () => {},
): (trigger: ReloadTrigger) => Promise<void> {
  let { text, hash, content } = source
  let rejected: string | undefined
  let last: Promise<void> = Promise.resolve()
  metrics.configLoaded(hash)

  const ended = (problems: readonly string[], changes: readonly string[] = []): void =>
    record({ at: new Date().toISOString(), hash, problems, changes })

  async function reload(trigger: ReloadTrigger): Promise<void> {
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
      const isText = loaded.hash !== hash
      const changes = isText || loaded.content === content ? loaded.changes : [OTHER_FILES]
      ;({ text, hash, content } = loaded)
      ended([], changes)
      log.info({ hash, loadMs: loaded.loadMs, changes }, 'configuration reloaded')
      const keys = RESTART_ONLY.flatMap((key) => changedKeys(key, loaded.config[key], next[key]))
      if (keys.length > 0) log.warn({ keys }, 'settings changed that need a restart')
    } catch (error) {
      const { message } = error as Error
      // The same mistake is logged and counted once, however many of the watched files changed.
      if (trigger === 'file-change' && message === rejected) return
      rejected = message
      metrics.configFailed()
      const problems = message.split('\n')
      ended(problems)
      log.error({ problems }, 'configuration rejected; the previous one stays in force')
    }
  }
  return (trigger) => (last = last.then(() => reload(trigger)))
}

/** Returns a new configuration with those settings that only a start reads as they were at the start. */
function keepRestartOnly(started: Config, next: Config): Config {
  const { admin, store, log, tracing } = started
  const { trustedProxies, hosts } = next.listen
  const tls = renewed(started.listen.tls, next.listen.tls)
  return { ...next, admin, store, log, tracing, listen: { ...started.listen, trustedProxies, hosts, tls } }
}

/** Certificates and keys may change; whether callers are asked for theirs may not. */
function renewed(started: Config['listen']['tls'], next: typeof started) {
  if (started === undefined || next === undefined) return started
  const clientCa = started.clientCa && (next.clientCa ?? started.clientCa)
  return { ...started, cert: next.cert, key: next.key, clientCa }
}

/** Returns the settings of a section that differ, as the file names them; the section itself if it is of another kind. */
function changedKeys(section: string, next?: object | string, current?: object | string): readonly string[] {
  if (JSON.stringify(next) === JSON.stringify(current)) return []
  if (typeof next === 'string' || typeof current === 'string') return [section]
  const [mine, other] = [next, current] as (Record<string, unknown> | undefined)[]
  return Object.keys({ ...mine, ...other })
    .filter((key) => JSON.stringify(mine?.[key]) !== JSON.stringify(other?.[key]))
    .map((key) => `${section}.${key.replace(/Ms$/, '')}`)
}
