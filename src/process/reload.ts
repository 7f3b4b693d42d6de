import type { Config } from '../config/schema.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'

/** What tells one configuration from another, and how long it took to load it. */
interface Reading {
  /** Of the text. */
  readonly hash: string
  /** Of the text, and of the files and secrets that it names. */
  readonly content: string
  readonly loadMs: number
}

/** Where a configuration came from, and how to read it again. */
export interface Source extends Reading {
  /** Rejects with an error whose message lists every mistake. */
  load(): Promise<Reading & { readonly config: Config }>
}

export interface ReloadParts {
  readonly config: Config
  readonly source: Source
  /** Puts what takes effect of a configuration into force, whole or not at all. */
  apply(config: Config): void | Promise<void>
  readonly log: Log
  readonly metrics: Pick<Metrics, 'configLoaded' | 'configFailed'>
}

/** `changed`: only if the text, or a file that it names, is another one than is in force; `asked`: in any case, since it may read secrets anew. */
export type Occasion = 'changed' | 'asked'

type ListenTls = Config['listen']['tls']

/** Where the settings stand that are read once, when the process starts. */
const AT_START = ['listen', 'admin', 'store', 'log'] as const

/** What of a new configuration takes effect in a process that started with another: all but what is read once. */
function inForce(started: Config, next: Config): Config {
  const { admin, store, log } = started
  const { trustedProxies, hosts } = next.listen
  const tls = renewed(started.listen.tls, next.listen.tls)
  return { ...next, admin, store, log, listen: { ...started.listen, trustedProxies, hosts, tls } }
}

/** Certificates and keys may change, whether callers are asked for theirs may not. */
function renewed(started: ListenTls, next: ListenTls): ListenTls {
  if (started === undefined || next === undefined) return started
  const clientCa = started.clientCa && (next.clientCa ?? started.clientCa)
  return { ...started, cert: next.cert, key: next.key, clientCa }
}

/** Reads the configuration again on demand, one at a time. A bad one changes nothing; it is logged and counted. */
export function createReload({
  config,
  source,
  apply,
  log,
  metrics,
}: ReloadParts): (occasion: Occasion) => Promise<void> {
  let { hash, content } = source
  let refused: string | undefined
  let under: Promise<void> = Promise.resolve()
  metrics.configLoaded(hash)

  async function reload(occasion: Occasion): Promise<void> {
    try {
      const loaded = await source.load()
      if (occasion === 'changed' && loaded.content === content) {
        if (refused !== undefined) {
          refused = undefined
          metrics.configLoaded(hash)
          log.info({ hash }, 'the configuration is again the one in force')
        }
        return
      }
      const current = inForce(config, loaded.config)
      await apply(current)
      refused = undefined
      metrics.configLoaded(loaded.hash, hash)
      ;({ hash, content } = loaded)
      log.info({ hash, loadMs: loaded.loadMs }, 'the configuration is read anew')
      const keys = AT_START.flatMap((section) => waiting(section, loaded.config[section], current[section]))
      if (keys.length > 0) log.warn({ keys }, 'these settings take effect with the next start')
    } catch (error) {
      const { message } = error as Error
      // What stays bad is told and counted once, however many of the watched files changed with it.
      if (occasion === 'changed' && message === refused) return
      refused = message
      metrics.configFailed()
      log.error(
        { problems: message.split('\n') },
        'the configuration was not taken; the one before stays in force',
      )
    }
  }
  return (occasion) => (under = under.then(() => reload(occasion)))
}

/** The settings of a section that are others than are in force, as the file names them; the section where it is of another kind. */
function waiting(section: string, next: object | string, current: object | string): readonly string[] {
  if (JSON.stringify(next) === JSON.stringify(current)) return []
  if (typeof next === 'string' || typeof current === 'string') return [section]
  const [mine, other] = [new Map(Object.entries(next)), new Map(Object.entries(current))]
  return [...new Set([...mine.keys(), ...other.keys()])]
    .filter((key) => JSON.stringify(mine.get(key)) !== JSON.stringify(other.get(key)))
    .map((key) => `${section}.${key.replace(/Ms$/, '')}`)
}
