import { type ReadFile, stampBeforeRead } from '../file-stamp.ts'
import { readTeamText, reason } from '../text.ts'
import { asList } from '../../runtime/json.ts'
import type { Texts } from '../texts.ts'
import { ConfigError, type Issue, issueAt } from '../yaml/issue.ts'
import { type Env, substitute } from '../yaml/source.ts'
import { findFiles, shownPath } from './glob.ts'
import type { ReadTeam } from './team-file.ts'

/** Matches line feeds and other control characters, with which a name would look like two lines. */
const CONTROL = /\p{Cc}/u
const CONTROLS = /\p{Cc}/gu
const WRONG_NAME = 'has a line feed or another control character in its name; rename the file'

/**
 * Reads the files that `include` matches. A file that cannot be read has a problem, and no text.
 * `stamps` are those of the files, and of the folders that were listed. A folder that cannot be read is
 * a mistake: its teams must not end as if their files were removed.
 */
export async function readTeams(globs: readonly string[], mainFile: string) {
  const { files, folders, unmatched, unread } = findFiles(shownPath('.', mainFile), globs)
  const stamps: ReadFile[] = [...folders]
  const teams: ReadTeam[] = []
  for (const path of files) {
    const file = shownPath(path, mainFile)
    stamps.push(stampBeforeRead(file))
    if (CONTROL.test(path)) {
      const where = file.replaceAll(CONTROLS, '\ufffd')
      teams.push({ path, text: '', problem: { where, path: '', message: WRONG_NAME } })
      continue
    }
    try {
      teams.push({ path, text: await readTeamText(file) })
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      teams.push({ path, text: '', problem: error.problems[0] })
    }
  }
  return {
    teams,
    stamps,
    warnings: unmatched.map((glob) => unmatchedWarning(glob)),
    mistakes: unread.map(({ folder, error }) =>
      issueAt(['include'], `matches files in ${folder}, which ${reason(error)}`),
    ),
  }
}

const unmatchedWarning = (glob: string): Issue => ({
  path: ['include'],
  message: `matches no file: "${glob}"; write the files, or remove it`,
})

/** Returns a main file's text with those of the files that it includes, without any check. */
export async function readTexts(text: string, file: string, include: unknown, env: Env): Promise<Texts> {
  const globs = asList(include ?? []).filter((glob) => typeof glob === 'string')
  const written = globs.map((glob) => substitute(glob, env))
  const { teams } = await readTeams(written, file)
  return { text, teams }
}
