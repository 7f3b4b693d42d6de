import { readFileSync } from 'node:fs'
import { IS_SOURCE, packageFile } from './package.ts'

/** The text of a build, or of a branch or commit of Git: no character that a label or a line must escape. */
const REVISION_TEXT = /^[\w.-]{1,64}$/

/** Returns the text of a file of the package without the line feed at its end; undefined if it cannot be read. */
function readText(path: string): string | undefined {
  try {
    return readFileSync(packageFile(path), 'utf8').trim()
  } catch {
    return undefined
  }
}

/** Returns the commit of the checkout, as `.git` names it; its branch may be in `packed-refs`. */
function readCheckout(): string | undefined {
  const head = readText('.git/HEAD')
  const [, branch] = /^ref: (refs\/[\w./-]+)$/.exec(head ?? '') ?? []
  if (branch === undefined) return head
  const packed = readText('.git/packed-refs')?.split('\n') ?? []
  return readText(`.git/${branch}`) ?? packed.find((line) => line.endsWith(` ${branch}`))?.split(' ', 1)[0]
}

const found = IS_SOURCE ? readCheckout() : readText('dist/revision')
/**
 * The commit of this code, or `unknown`: of the build, or of the checkout whose sources run. That of
 * a build with uncommitted changes ends in `-dirty`.
 */
export const REVISION = found !== undefined && REVISION_TEXT.test(found) ? found : 'unknown'
