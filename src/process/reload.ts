import type { ReloadRecord } from '../admin/overview/source.ts'
import type { KeptInForce } from '../config/kept/load-or-kept.ts'
import type { InForce, Loaded } from '../config/load.ts'
import type { Config, StoreConfig } from '../config/config.ts'
import { withLogin } from '../limit/redis/options.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { isObject } from '../runtime/json.ts'
import { toError } from '../runtime/to-error.ts'
import { keepConfiguration } from './keep-configuration.ts'

type Version = Pick<Loaded, 'file' | 'text' | 'teams' | 'hash' | 'content' | 'leftOut' | 'states'> & {
  readonly loadMs: number
}

/** The configuration at the start, and the function that loads it again. */
export interface Source extends Version {
  /** Set if the files have mistakes, and the configuration of `configuration.keep` is in force. */
  readonly kept?: KeptInForce
  /**
   * Loads the configuration, and lists the changes since `before`. Rejects with every
   * mistake, one per line.
   */
  load(before: InForce): Promise<Version & Pick<Loaded, 'config' | 'changes'>>
}

/** `file-change`: reload only if the text, or a file that it names, has changed; `signal`: always. */
export type ReloadTrigger = 'file-change' | 'signal'

const MAX_RELOADS = 20
/** Maximum problems that are kept of one reload: each of 100,000 clients may cause one. */
const MAX_PROBLEMS = 20
/** Maximum warnings of one configuration that are logged: each of 100,000 clients may cause one. */
const MAX_WARNINGS = 100
/**
 * Sections that are read only at the start, except parts of `listen`, the login at Redis, and the
 * operators and certificates of `admin`.
 */
const RESTART_ONLY = ['listen', 'forwardAuth', 'admin', 'store', 'log', 'tracing'] as const
/** The sections of `RESTART_ONLY` whose secrets a reload replaces. */
const SECRETS_OF = ['admin', 'store'] as const

/** Creates the holder of the configuration in force, which never changes without `source`. */
export function createConfiguration(
  started: Config,
  source: Source | undefined,
  parts: { apply(config: Config): Promise<void>; readonly log: Log; readonly metrics: Metrics },
) {
  const { apply, log, metrics } = parts
  let config = started
  let version: Version | undefined = source
  /** Set while the configuration of `configuration.keep` is in force. */
  let kept = source?.kept
  let rejected = kept?.problems.join('\n')
  const reloads: ReloadRecord[] = []
  if (source !== undefined) metrics.configLoaded(source.hash)

  /** Records the end of a reload, also in the metrics. Problems reject it, and are remembered until the next end. */
  function record(hash: string, problems: readonly string[], changes: readonly string[]): void {
    rejected = problems.length === 0 ? undefined : problems.join('\n')
    if (rejected === undefined) metrics.configLoaded(hash)
    else metrics.configFailed()
    const at = new Date().toISOString()
    reloads.unshift({ at, hash, problems: problems.slice(0, MAX_PROBLEMS), changes })
    reloads.length = Math.min(reloads.length, MAX_RELOADS)
  }
  function warn(): void {
    const { warnings } = config
    for (const { where, path, message } of warnings.slice(0, MAX_WARNINGS)) log.warn({ where, path }, message)
    const more = warnings.length - MAX_WARNINGS
    if (more > 0) log.warn({ more }, 'more warnings; "sluice check --json" lists them all')
  }
  function showTeams({ leftOut: problems, states }: Version): void {
    metrics.configFiles(states)
    if (problems.length === 0) return
    const fields = { ...states, problems: problems.slice(0, MAX_PROBLEMS) }
    log.error(fields, 'teams’ files with mistakes left out; their last valid versions are in force, else 503')
  }
  /** Takes a version that was loaded from the files themselves, and that is in force. */
  async function take(next: Version, settings: Config): Promise<void> {
    version = next
    kept = undefined
    metrics.configKept(false)
    showTeams(next)
    const { keep } = settings.configuration
    if (keep !== undefined) await keepConfiguration(keep, next, next.file, log)
  }

  return {
    config: () => config,
    hash: () => version?.hash ?? null,
    reloads,
    /** Returns the mistakes of teams' files that are left out, one per line. */
    leftOut: () => version?.leftOut.slice(0, MAX_PROBLEMS) ?? [],
    /** Returns when the configuration in force was kept, in epoch milliseconds; null if it was not. */
    keptAt: () => kept?.writtenAt ?? null,
    warn,
    /** Shows the configuration at the start, which is in force, and keeps it. Never rejects. */
    async begin(): Promise<void> {
      if (source === undefined) return
      if (kept === undefined) return await take(source, config)
      const ageSeconds = Math.round((Date.now() - kept.writtenAt) / 1000)
      const problems = kept.problems.slice(0, MAX_PROBLEMS)
      log.error({ file: kept.file, ageSeconds, problems }, 'configuration invalid; the kept one is in force')
      record(source.hash, kept.problems, [])
      metrics.configKept(true)
      showTeams(source)
    },
    /** Loads the configuration again, one reload at a time; never rejects. */
    async reload(trigger: ReloadTrigger): Promise<void> {
      if (source === undefined || version === undefined) return
      const before = version
      try {
        const loaded = await source.load({
          text: before.text,
          teams: before.teams,
          upstreams: config.upstreams,
        })
        const { hash, loadMs } = loaded
        const isSame = loaded.content === before.content
        if (isSame && trigger === 'file-change') {
          if (rejected === undefined && loaded.leftOut.join() === before.leftOut.join()) return
          await take(loaded, loaded.config)
          if (rejected === undefined) return
          record(hash, [], [])
          log.info({ hash }, 'configuration valid again and unchanged')
          return
        }
        const next = keepRestartOnly(config, loaded.config)
        await apply(next)
        const secrets = SECRETS_OF.flatMap((key) => changedKeys(key, next[key], config[key]))
        config = next
        await take(loaded, next)
        warn()
        const onlyFiles = hash === before.hash && !isSame
        const changes = onlyFiles ? ['files that it names have changed'] : loaded.changes
        record(hash, [], changes)
        log.info({ hash, loadMs, changes }, 'configuration reloaded')
        if (secrets.length > 0) log.info({ keys: secrets }, 'secrets renewed')
        const keys = RESTART_ONLY.flatMap((key) => changedKeys(key, loaded.config[key], next[key]))
        if (keys.length > 0) log.warn({ keys }, 'settings changed that need a restart')
      } catch (error) {
        const { message } = toError(error)
        // The same mistake is logged and counted once, even if several watched files changed.
        if (trigger === 'file-change' && message === rejected) return
        const problems = message.split('\n')
        record(before.hash, problems, [])
        log.error({ problems }, 'configuration rejected; the previous one stays in force')
      }
    },
  }
}

function keepRestartOnly(current: Config, next: Config): Config {
  const { listen, forwardAuth, log, tracing, prefix } = current
  const { trustedProxies, hosts } = next.listen
  const tls = renewed(listen.tls, next.listen.tls)
  const { token, tokens } = next.admin
  const admin = { ...current.admin, token, tokens, tls: renewed(current.admin.tls, next.admin.tls) }
  const store = renewedStore(current.store, next.store)
  const kept = { forwardAuth, admin, store, prefix, log, tracing }
  return { ...next, ...kept, listen: { ...listen, trustedProxies, hosts, tls } }
}

type ServerFiles = NonNullable<Config['admin']['tls']>

/** Replaces TLS settings, except whether callers are asked for certificates, which needs a restart. */
function renewed<T extends ServerFiles>(current: T | undefined, next: T | undefined): T | undefined {
  if (current === undefined || next === undefined) return current
  const { cert, key, minVersion, ciphers } = next
  const asked = current.clientCa === undefined || next.clientCa === undefined ? current : next
  const { clientCa, crl } = asked
  return { ...current, cert, key, minVersion, ciphers, clientCa, crl }
}

/** Replaces the login at Redis. */
function renewedStore(current: StoreConfig, next: StoreConfig): StoreConfig {
  if (current === 'memory' || next === 'memory') return current
  return { ...current, redis: withLogin(current.redis, next.redis) }
}

/** Returns the paths of the settings within `path` that differ, as the file names them; `path` if one side has none. */
function changedKeys(path: string, next: unknown, current: unknown): readonly string[] {
  if (JSON.stringify(next) === JSON.stringify(current)) return []
  if (!isObject(next) || !isObject(current)) return [path.replaceAll(/\.topology|Ms$/g, '')]
  return Object.keys({ ...next, ...current }).flatMap((key) =>
    changedKeys(`${path}.${key}`, next[key], current[key]),
  )
}
