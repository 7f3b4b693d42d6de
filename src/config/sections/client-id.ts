import { isClientId } from '../../authenticate/token/claims.ts'

/** Matches characters that are not seen, and blanks that look like others: two clients must not look alike. */
const UNSEEN = /\p{Default_Ignorable_Code_Point}|[\p{Zl}\p{Zp}\u2800]|(?! )\p{Zs}/u

/** Returns true for the id of a client as the files may have it, or the mistake in it. */
export function clientIdIssue(id: string): true | string {
  if (id === '') return 'is empty; write the id of the client'
  if (!isClientId(id)) return 'must be 1 to 255 printable characters'
  const at = UNSEEN.exec(id)
  if (at === null) return true
  const code = at[0].codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')
  return `has the character U+${code}, which is not seen or looks like a blank; remove it`
}
