import { isObject, type JsonObject } from '../../runtime/json.ts'
import { isSecret } from '../schema.ts'
import { type Issue, issueAt, type Path } from '../yaml/issue.ts'
import { mapTexts } from '../yaml/source.ts'

const REFERENCE = /\$\{\w+\}/g
const DEFAULT = /\$\{\w+:-([^}]*)\}/g
const URL_START = /^[\w+.-]+:\/\//
/** Matches a URL with a password. */
const PASSWORD = /^[\w+.-]+:\/\/[^/?#]*:[^/?#]+@/

/**
 * Yields secrets that a file with `configuration.keep` has itself, in place of a reference: they would
 * be in the copy, too.
 */
export function writtenSecrets(file: JsonObject): readonly Issue[] {
  const { configuration } = file
  if (!isObject(configuration) || configuration['keep'] === undefined) return []
  const found: Issue[] = []
  mapTexts(file, (text, path) => {
    if (holdsSecret(text, path))
      found.push(
        issueAt(path, 'would be copied by configuration.keep; write ${NAME} or file:/path in its place'),
      )
    return text
  })
  return found
}

/** True for a secret that is not only a reference to a file or to the environment. */
function holdsSecret(text: string, path: Path): boolean {
  const written = text.replaceAll(REFERENCE, '').replaceAll(DEFAULT, '$1')
  if (URL_START.test(written)) return PASSWORD.test(written)
  if (!isSecret(path) || /username$/i.test(String(path.at(-1)))) return false
  const hasReference = written.length !== text.replaceAll(DEFAULT, '$1').length
  return !text.startsWith('file:') && !hasReference && written !== ''
}
