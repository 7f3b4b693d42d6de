import { z } from 'zod'
import { issueAt, mustBe } from '../yaml/issue.ts'
import { isHttpUrl } from './texts.ts'
import { atKey, bool, choice, duration, list, section, stringThat } from './values.ts'

/** Scheme, host and port. Apps send origins such as `capacitor://localhost`, extensions those of their ids. */
const ORIGIN = /^([a-z][a-z0-9+.-]*):\/\/[^\s/?#@\\*]+$/i
const OTHER_HOST = /^[^:]+:\/\/[a-z0-9.-]+(?::[0-9]+)?$/i

const allowedOrigin = stringThat((text) => {
  if (text === '*') return true
  if (text === 'null') return 'is the origin of any page in a sandbox; list origins, or write "*"'
  if (text.includes('*')) return 'is not an origin: write each origin in full, or only "*"'
  if (/^[^/]*:\/\/[^/]+\//.test(text)) return 'must end after the host or port; remove the path'
  const scheme = ORIGIN.exec(text)?.[1]?.toLowerCase()
  if (scheme === undefined) return false
  return /^https?$/.test(scheme) ? isHttpUrl(text) : OTHER_HOST.test(text)
}, 'the origin of pages: scheme, host and port, such as https://app.example.com').transform(normalizeOrigin)

/** Returns an origin as browsers send it: in lower case, without the scheme's own port. */
function normalizeOrigin(text: string): string {
  return isHttpUrl(text) ? new URL(text).origin : text.toLowerCase()
}

const FORM = 'a list of origins such as https://app.example.com'

export const cors = section(
  {
    origins: list(allowedOrigin, 1, FORM),
    credentials: bool.prefault(false),
    maxAgeMs: duration('0s', '1d').prefault('10m'),
  },
  function* ({ origins, credentials }) {
    const all = origins.indexOf('*')
    if (all !== -1 && origins.length > 1)
      yield issueAt(['origins', all], 'allows every origin; remove it, or the others')
    if (all !== -1 && credentials)
      yield atKey(
        'credentials',
        'cannot be combined with the origin "*": any page could act as its visitors; list the origins',
      )
    for (const [i, origin] of origins.entries())
      if (origins.indexOf(origin) < i) yield issueAt(['origins', i], `is a duplicate; remove one "${origin}"`)
  },
)

/** The `cors` of a route. */
export const routeCors = z.union(
  [choice(['none']), cors],
  mustBe('none, or a mapping such as { origins: ["https://app.example.com"] }'),
)
