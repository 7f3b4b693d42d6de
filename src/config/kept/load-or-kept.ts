import { stampBeforeRead } from '../file-stamp.ts'
import { loadConfig, type Loaded, type LoadOptions } from '../load.ts'
import { readText } from '../text.ts'
import { ConfigError, type LocatedIssue, problemLine } from '../yaml/issue.ts'
import { toError } from '../../runtime/to-error.ts'
import { type Kept, keptFileOf, readKept } from './kept-file.ts'

/** The configuration with which a process starts. */
export interface Started extends Loaded {
  /** Set if it is the one of `configuration.keep`, because of these mistakes. */
  readonly kept?: KeptInForce
}

export interface KeptInForce {
  readonly file: string
  /** Epoch milliseconds. */
  readonly writtenAt: number
  /** The mistakes of the current files, one per line. */
  readonly problems: readonly string[]
}

/**
 * Loads the configuration for a process that starts. If it has mistakes, loads the one that
 * `configuration.keep` holds. Rejects with a `ConfigError` if there is none, or it cannot be used.
 */
export async function loadOrKept(options: LoadOptions): Promise<Started> {
  const { file, overrides = [], env = process.env } = options
  const stamp = stampBeforeRead(file)
  const text = options.text ?? (await readText(file).catch(() => ''))
  const keptFile = keptFileOf(text, file, overrides, env)
  const kept = keptFile === undefined ? undefined : await readOrProblem(keptFile, file)
  const usable = kept !== undefined && 'text' in kept ? kept : undefined
  const unusable = kept !== undefined && 'message' in kept ? kept : undefined
  try {
    const loaded = await loadConfig({ ...options, isolate: true, kept: usable })
    return unusable === undefined ? loaded : withWarning(loaded, unusable)
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    const { problems } = error
    if (unusable !== undefined) throw new ConfigError([...problems, unusable])
    if (usable === undefined) throw error
    const loaded = await loadKept(usable, options, problems)
    return { ...loaded, files: [stamp, ...loaded.files] }
  }
}

async function readOrProblem(keptFile: string, file: string): Promise<Kept | LocatedIssue | undefined> {
  try {
    return await readKept(keptFile, file)
  } catch (error) {
    return { where: keptFile, path: '', message: `the kept configuration ${toError(error).message}` }
  }
}

const withWarning = (loaded: Loaded, warning: LocatedIssue): Loaded => ({
  ...loaded,
  config: { ...loaded.config, warnings: [warning, ...loaded.config.warnings] },
})

async function loadKept(
  kept: Kept,
  options: LoadOptions,
  problems: readonly LocatedIssue[],
): Promise<Started> {
  const { file, text, teams, writtenAt } = kept
  try {
    const loaded = await loadConfig({ ...options, text, teams, isolate: true, kept })
    return { ...loaded, kept: { file, writtenAt, problems: problems.map(problemLine) } }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    const message = 'the kept configuration is not valid either; its mistakes follow'
    throw new ConfigError([...problems, { where: file, path: '', message }, ...error.problems])
  }
}
