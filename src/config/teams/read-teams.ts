import { type ReadFile, stampBeforeRead } from '../file-stamp.ts'
import { readText } from '../text.ts'
import { asList } from '../../runtime/json.ts'
import type { Texts } from '../texts.ts'
import { ConfigError, type Issue } from '../yaml/issue.ts'
import { type Env, substitute } from '../yaml/source.ts'
import { findFiles, shownPath } from './glob.ts'
import type { ReadTeam } from './team-file.ts'

/**
 * Reads the files that `include` matches. Adds them, and the folders that were listed, to `stamps`.
 * A file that cannot be read has a problem, and no text.
 */
export async function readTeams(globs: readonly string[], mainFile: string, stamps: ReadFile[]) {
  const { files, folders, unmatched } = findFiles(shownPath('.', mainFile), globs)
  stamps.push(...folders)
  const teams: ReadTeam[] = []
  for (const path of files) {
    const file = shownPath(path, mainFile)
    stamps.push(stampBeforeRead(file))
    try {
      teams.push({ path, text: await readText(file) })
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      teams.push({ path, text: '', problem: error.problems[0] })
    }
  }
  return { teams, warnings: unmatched.map((glob) => unmatchedWarning(glob)) }
}

const unmatchedWarning = (glob: string): Issue => ({
  path: ['include'],
  message: `matches no file: "${glob}"; write the files, or remove it`,
})

/** Returns a main file's text with those of the files that it includes, without any check. */
export async function readTexts(text: string, file: string, include: unknown, env: Env): Promise<Texts> {
  const globs = asList(include ?? []).filter((glob) => typeof glob === 'string')
  const { teams } = await readTeams(
    globs.map((glob) => substitute(glob, env)),
    file,
    [],
  )
  return { text, teams }
}
