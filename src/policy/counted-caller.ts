import { isIP } from 'node:net'
import { networkOf } from '../runtime/address.ts'
import { foldCase } from '../downstream/target.ts'
import { InvalidQuestion } from '../errors.ts'
import { keyOf } from '../limit/key.ts'
import { encodePart, encoderOf } from './key.ts'
import { digestOf, isDigest, isShortForm, shortenDigest, shortFormOf } from './secret-values.ts'
import { SHORTENED } from './secret-values.ts'
import { identityWords, partOf, wordOf } from './words.ts'

/**
 * A part of a counted caller: the word of `per`, and the value as limits count it: header fields in
 * lower case, IPv6 by its /64, the digest of what `parameters` make a secret.
 */
export interface CallerPart {
  readonly word: string
  readonly value: string
}

/**
 * A caller as limits count it, written by the words of `per`, in their order: `client:acme`,
 * `user:SUB`, `ip:192.0.2.7`, `header:x-api-key=VALUE`, `claim:consent_id=VALUE`, `token:SHA256`. A
 * part that is not one of these is a client.
 */
export type CountedCaller = readonly CallerPart[]

/** A counted caller, and the text that may be shown and logged. */
export interface ShownCaller {
  readonly parts: CountedCaller
  readonly shown: string
}

const UNNAMED = identityWords(false)
const NAMED = identityWords(true)
/** Matches the start of a part with its word. */
const START = `(?:${UNNAMED}):|(?:${NAMED}):[^ =]+=`
/** Matches a part of a caller that is not a bare client id. */
const PART = new RegExp(`^(?:(${UNNAMED}):|((?:${NAMED}):[^ =]+)=)(.*)$`, 's')
/** Matches a part that lacks its value, or whose word is in upper case. */
const MISWRITTEN = new RegExp(`^(?:${UNNAMED}|${NAMED}):`, 'i')
/** Matches the start of a further part, at `lastIndex`. */
const FURTHER_PART = new RegExp(START, 'y')
/**
 * Matches a value that is written in quotes, as a JSON string: it reads like a further part, or
 * like a list of callers.
 */
const AMBIGUOUS = new RegExp(`"|, | (?:${START})`)
export const MAX_SHOWN = 10_000
/** Maximum parts of a caller that is parsed. Real limits count by up to three. */
const MAX_PARTS = 16

const WHICH_CALLER = 'Which caller: client:ID, ip:192.0.2.7, header:x-api-key=VALUE or token:SHA256?'

/** True for a text that names its part of `per`, unlike a bare client id. */
export const isNamedPart = (text: string): boolean => PART.test(text)

/**
 * True for a client id that may be written without `client:`; others are more likely an address or
 * a part that is written wrong.
 */
export const isBareClient = (text: string): boolean => !MISWRITTEN.test(text) && isIP(text) === 0

export const identityOf = (per: readonly string[]): readonly string[] =>
  per.filter((word) => wordOf(word).isIdentity)

/**
 * Parses a caller, in time linear in its length; throws an InvalidQuestion that says how it is
 * written.
 */
export function parseCaller(text: string): CountedCaller {
  const parts = splitParts(text)
  if (parts.length > MAX_PARTS) throw new InvalidQuestion(`A caller has at most ${MAX_PARTS} parts.`)
  return parts.map(parsePart)
}

/**
 * Splits a caller at the blanks before its further parts, which are followed by an even number of
 * quotes. Other programs may have written the text, so one expression for all of that, which scans
 * the rest at each blank, would take the square of its length.
 */
function splitParts(text: string): readonly string[] {
  const parts: string[] = []
  let start = 0
  let isQuoted = text.split('"').length % 2 === 0
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '"') isQuoted = !isQuoted
    if (text[i] !== ' ' || isQuoted || !isFurtherPart(text, i + 1)) continue
    parts.push(text.slice(start, i))
    start = i + 1
  }
  return [...parts, text.slice(start)]
}

function isFurtherPart(text: string, at: number): boolean {
  FURTHER_PART.lastIndex = at
  return FURTHER_PART.test(text)
}

function parsePart(text: string): CallerPart {
  const [, simple, named, rest] = PART.exec(text) ?? []
  const word = partOf(simple ?? named ?? 'client')
  const value = countedForm(word)(unquoted(rest ?? text))
  if (!value || (rest === undefined && !isBareClient(text))) throw new InvalidQuestion(whichCaller(text))
  return { word, value }
}

const whichCaller = (text: string): string =>
  isIP(text) === 0 ? WHICH_CALLER : `Which caller: ip:${text}, or client:${text}?`

/** Returns the form in which limits count the values of a word; empty for an invalid value. */
export function countedForm(word: string): (value: string) => string {
  const { compares } = wordOf(word)
  if (compares === 'network') return addressOf
  if (compares === 'hash') return hashOf
  return compares === 'folded' ? foldUnlessDigest : (value) => value
}

const foldUnlessDigest = (value: string): string => (isDigest(value) ? value : foldCase(value))

/** Returns a caller as limits count it if the values of some words are secret: by their digests. */
export const withDigests = (caller: CountedCaller, secrets: ReadonlySet<string>): CountedCaller =>
  caller.map(({ word, value }) => {
    const isOpen = secrets.has(word) && !isDigest(value) && !isShortForm(value)
    return { word, value: isOpen ? digestOf(value) : value }
  })

function unquoted(text: string): string {
  if (!text.startsWith('"')) return text
  try {
    return String(JSON.parse(text))
  } catch {
    return text
  }
}

/** Returns the SHA-256 of a token, given in base64url or hex or in its short form, in base64url. */
function hashOf(text: string): string {
  if (/^[\da-f]{64}$/i.test(text)) return Buffer.from(text, 'hex').toString('base64url')
  return /^[\w-]{43}$/.test(text) || text.includes(SHORTENED) ? text : ''
}

/** Returns an address as limits count it: IPv4, or the /64 of IPv6. */
function addressOf(text: string): string {
  const [ip = ''] = text.split('/64', 1)
  if (isIP(ip) === 0) return ''
  const network = networkOf(ip)
  return network.endsWith('/64') ? `${network.slice(0, -3).replaceAll('-', ':')}::/64` : network
}

/**
 * Writes a value as a JSON string that has no quotes within its quotes, so that the quotes of all
 * parts are even.
 */
function inQuotes(value: string): string {
  const pieces = value.split('"').map((piece) => JSON.stringify(piece).slice(1, -1))
  return `"${pieces.join(String.raw`\u0022`)}"`
}

const formatPart = ({ word, value }: CallerPart): string =>
  `${word}${word.includes(':') ? '=' : ':'}${AMBIGUOUS.test(value) ? inQuotes(value) : value}`

/** Formats a caller with its whole values, as `parseCaller` reads it. */
export const formatCaller = (caller: CountedCaller): string => caller.map(formatPart).join(' ')

/** Formats a caller as it may be shown and logged: secret values are shortened. */
export const showCaller = (caller: CountedCaller): string =>
  formatCaller(caller.map(({ word, value }) => ({ word, value: showValue(word, value) })))

/** Returns the value of a word as it may be shown; `open` for a value that is not a secret. */
export function showValue(word: string, value: string, open: string = value): string {
  if (isDigest(value)) return shortenDigest(value)
  return wordOf(word).isSecret && !value.includes(SHORTENED) ? shortFormOf(value) : open
}

/**
 * Returns the key of a caller under a limit that counts by the caller's parts in their order; the
 * beginning of it if there are further ones.
 */
export function counterKey(prefix: string, name: string, caller: CountedCaller): string {
  const [first, ...rest] = caller.map(encodeValue)
  return [keyOf(prefix, name, first), ...rest].join(':')
}

/**
 * True for a caller that is written in the form in which it is shown: only a gateway that has seen
 * it knows it.
 */
export const isShortened = (caller: CountedCaller): boolean =>
  caller.some(({ word, value }) => {
    const { isSecret, mayBeSecret } = wordOf(word)
    if (isSecret && value.includes(SHORTENED)) return !isDigest(value)
    return mayBeSecret && isShortForm(value)
  })

/** Encodes a value as it is in keys. */
export function encodeValue({ word, value }: CallerPart): string {
  if (isDigest(value)) return encodePart(value)
  return encoderOf(word)(wordOf(word).compares === 'network' ? value.split('/64', 1)[0]! : value)
}
