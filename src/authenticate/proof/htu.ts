import { canonicalEscapes } from '../../downstream/target.ts'
import type { PublicUrl } from './sender.ts'

/** An http(s) URI of RFC 3986 characters, without user information. */
const HTTP_URI = /^https?:\/\/[^\s/?#@\\"<>^`{|}]+(?:[/?#][!#-;=?-[\]_a-z~]*)?$/i

/**
 * Reads the URL that a proof is for: its host, and all of it but query and fragment in the one spelling that RFC 3986
 * section 6.2 gives equal URLs; undefined where it is none.
 */
export function normalizeUrl(url: string): { readonly hostname: string; readonly href: string } | undefined {
  if (!HTTP_URI.test(url) || !URL.canParse(url)) return undefined
  const { origin, hostname, pathname } = new URL(url)
  const path = canonicalEscapes(pathname)
  return path === undefined ? undefined : { hostname, href: origin + path }
}

/** Is `htu` this URL (RFC 9449 section 4.3), at a host that is served here? */
export function isHtuOf(
  htu: unknown,
  { scheme, host, path }: PublicUrl,
  serves: (host: string) => boolean,
): boolean {
  if (typeof htu !== 'string') return false
  const claimed = normalizeUrl(htu)
  const asked = normalizeUrl(`${scheme}://${host}${path}`)
  // Whoever was sent a proof for their own host could name that host in a Host header here.
  return claimed !== undefined && claimed.href === asked?.href && serves(claimed.hostname)
}
