import { createHash } from 'node:crypto'
import type { Config } from './config.ts'
import { type ReadFile, stampBeforeRead } from './file-stamp.ts'
import { type FlagOverride, readMainFile } from './main-file.ts'
import { combine, type Combined } from './teams/combine.ts'
import { readTeams } from './teams/read-teams.ts'
import { readText } from './text.ts'
import { changesOfMain, changesOfTeams, hashOf, type Texts } from './texts.ts'
import { nodeWarnings, warningsOf } from './warnings.ts'
import { ConfigError, type LocatedIssue, problemLine } from './yaml/issue.ts'
import type { Env } from './yaml/source.ts'

/** A configuration that was read. */
export interface Loaded extends Texts {
  readonly config: Config
  /** The name of the main file, as given; `-` is standard input. */
  readonly file: string
  /** Differences from `LoadOptions.before`, if given, in the file's words and without secrets. */
  readonly changes: readonly string[]
  /** The SHA-256 of the texts in force, in hex. */
  readonly hash: string
  /**
   * The SHA-256 of everything that was read: the texts, the files that they name, and the
   * environment.
   */
  readonly content: string
  /** The files that were read, those of secrets, keys and certificates, too, and the folders that were listed. */
  readonly files: readonly ReadFile[]
  /** The mistakes of teams' files that are left out, one per line; empty unless `isolate` is set. */
  readonly leftOut: readonly string[]
  /** Variables and files that are not here, with `LoadOptions.offline`. */
  readonly notes: readonly LocatedIssue[]
  /** The number of teams' files in each state. */
  readonly states: Combined['states']
}

/** A configuration that is served. */
export interface InForce extends Texts {
  readonly upstreams: Config['upstreams']
}

export interface LoadOptions {
  readonly file: string
  readonly text?: string | undefined
  /** The configuration in force. */
  readonly before?: InForce | undefined
  readonly overrides?: readonly FlagOverride[]
  readonly env?: Env
  readonly nowMs?: number
  /**
   * Leaves out teams' files with mistakes, in place of rejecting the configuration. Their last valid
   * versions are those of `before`, or of `kept`.
   */
  readonly isolate?: boolean
  /** Content of `configuration.keep`, if the process starts. */
  readonly kept?: Texts | undefined
  /** Accepts variables that are not set, and files that are not here: the rest is checked. */
  readonly offline?: boolean
  /** Texts of teams' files, in place of the files. */
  readonly teams?: Texts['teams'] | undefined
}

/**
 * Reads, checks and compiles a configuration. Rejects with a `ConfigError`, whose mistakes are
 * those of the first step that finds any.
 */
export async function loadConfig(options: LoadOptions): Promise<Loaded> {
  const { file, before, kept, overrides = [], env = process.env, nowMs = Date.now() } = options
  const { offline = false } = options
  const mainFile = options.text === undefined && file !== '-' ? [stampBeforeRead(file)] : []
  const text = options.text ?? (await readText(file))
  const read = readMainFile(text, file, { overrides, env, offline })
  const { source, directory, padded } = read
  // Before the settings are compiled: the parsed earlier text and they need not be in memory together.
  const changes = before === undefined ? [] : changesOfMain(before.text, text, file, source.value)
  const found = await readTeams(read.settings.include ?? [], file)
  if (found.mistakes.length > 0) throw new ConfigError(read.locate(found.mistakes))
  const sources = [...mainFile, ...read.secretFiles, ...found.stamps]
  const { compiled, chosen, files, states, notes, locate } = await combine(
    options.teams ?? found.teams,
    read,
    {
      lastValid: options.isolate === true ? ((before ?? kept)?.teams ?? []) : undefined,
      isReload: before !== undefined,
      upstreams: before?.upstreams ?? [],
      directory,
      sources,
    },
  )
  const inForce = { text, teams: chosen.served.map(({ file: { path, text } }) => ({ path, text })) }
  const hash = hashOf(inForce)
  const all = [...locate(read.notes), ...notes]
  const issues = [...padded, ...found.warnings, ...warningsOf(compiled, nowMs)]
  return {
    config: {
      ...compiled,
      warnings: [...locate(issues).filter((one) => !isOf(one, all)), ...nodeWarnings(env)],
    },
    file,
    ...inForce,
    changes: before === undefined ? [] : [...changes, ...changesOfTeams(before.teams, inForce.teams)],
    hash,
    content: createHash('sha256').update(hash).update(JSON.stringify(compiled)).digest('hex'),
    files: [...sources, ...files],
    leftOut: chosen.problems.map(problemLine),
    notes: all.filter((one, i) => !isOf(one, all.slice(0, i))),
    states,
  }
}

/** True if an issue is about a value that is not known here, according to a note. */
const isOf = ({ where, path }: LocatedIssue, notes: readonly LocatedIssue[]): boolean =>
  notes.some((note) => note.where === where && note.path === path)
