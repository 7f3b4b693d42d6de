import { isAscii, isUtf8 } from 'node:buffer'
import { invalidRequest } from './refusal.ts'
import type { Refusal } from '../errors.ts'

/** The parameters of a form that have a value; of `resource`, which may repeat, the first. */
export type Form = ReadonlyMap<string, string>

const FORM = 'application/x-www-form-urlencoded'
const MAX_PARAMETERS = 100
const MAX_NAME = 128
/** Frameworks read meaning into the brackets of `a[]`, take `a.b` for `a_b`, or know no case. */
const NAME = /^[a-z0-9_]+$/
/** RFC 8707 section 2. */
const REPEATABLE = 'resource'
const UTF_8: ReadonlySet<string> = new Set(['utf-8', 'utf8'])
/** In these, and in UTF-8, ASCII bytes mean the same. */
const LIKE_ASCII: ReadonlySet<string> = new Set(['us-ascii', 'ascii', 'iso-8859-1', 'latin1', 'windows-1252'])

/**
 * Reads `application/x-www-form-urlencoded` (RFC 6749 appendix B) where it can be read in one way only; a refusal otherwise.
 * A parameter without a value counts as omitted (RFC 6749 section 3.1), `request` too: a client that must send an object has
 * sent none. Not so `request_uri`, which is refused with and without a value: it is the one parameter that must not be pushed at
 * all (RFC 9126 section 2.1), no client has a reason to write it, and a backend may take an empty one for given.
 */
export function readForm(contentType: string | undefined, body: Buffer): Form | Refusal {
  const charset = charsetOf(contentType)
  if (charset === undefined) return invalidRequest(`Send the parameters as ${FORM}.`)
  if (!UTF_8.has(charset) && !(LIKE_ASCII.has(charset) && isAscii(body))) {
    return invalidRequest('Send the form in UTF-8.')
  }
  if (!isUtf8(body)) return invalidRequest('The form is not UTF-8.')
  // Some parsers part parameters there too.
  if (body.includes(';')) return invalidRequest('Percent-encode each semicolon of the form.')
  const pairs = body.toString().split('&', MAX_PARAMETERS + 1)
  if (pairs.length > MAX_PARAMETERS) return invalidRequest(`Send at most ${MAX_PARAMETERS} parameters.`)

  const form = new Map<string, string>()
  const seen = new Set<string>()
  for (const pair of pairs) {
    if (pair === '') continue
    const equals = pair.indexOf('=')
    const name = decodeComponent(equals === -1 ? pair : pair.slice(0, equals))
    const value = equals === -1 ? '' : decodeComponent(pair.slice(equals + 1))
    if (name === undefined || name.length > MAX_NAME || !NAME.test(name)) {
      return invalidRequest('The form has a parameter whose name is malformed.')
    }
    if (value === undefined) {
      return invalidRequest(`The parameter ${name} is malformed; percent-encode its value as UTF-8.`)
    }
    if (name === 'request_uri') return invalidRequest('The parameter request_uri must not be pushed.')
    if (seen.has(name)) {
      if (name !== REPEATABLE) return invalidRequest(`Send the parameter ${name} once.`)
    } else if (value !== '') form.set(name, value)
    seen.add(name)
  }
  return form
}

/** Decodes one component of a form; undefined where it is not percent-encoded UTF-8, or holds a NUL. */
export function decodeComponent(text: string): string | undefined {
  try {
    const decoded = decodeURIComponent(text.replaceAll('+', ' '))
    return decoded.includes('\0') ? undefined : decoded
  } catch {
    return undefined
  }
}

/** The charset that a form's media type names, UTF-8 unless it names one; undefined where it is no form's. */
function charsetOf(contentType = ''): string | undefined {
  const [type = '', ...parameters] = contentType.split(';').map((part) => part.trim().toLowerCase())
  if (type !== FORM) return undefined
  const charsets = parameters.filter((parameter) => /^charset\b/.test(parameter))
  if (charsets.length === 0) return 'utf-8'
  const [, quoted, plain] = /^charset=(?:"([^"]*)"|([^"]*))$/.exec(charsets[0]!) ?? []
  return charsets.length === 1 ? (quoted ?? plain ?? '') : ''
}
