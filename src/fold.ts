/** What marks a letter without being one, and what is not seen at all. */
const UNSEEN = /[\p{M}\p{Default_Ignorable_Code_Point}]/gu
// oxlint-disable-next-line no-control-regex
const NOT_ASCII_AT_ALL = /[^\u0000-\u007f]/
// oxlint-disable-next-line no-control-regex
const NOT_ASCII = /[^\u0000-\u007f]/gu
/** Passes after which every text that is known has come to rest; most need two. */
const MAX_PASSES = 4

/**
 * A path segment in canonical spelling, percent-encoded, as what it shares with every spelling that frameworks or databases take
 * for the same: decoded, without case, compatibility forms, marks, invisible characters, and blanks at its ends.
 */
export function foldSegment(segment: string): string {
  return segment.includes('%') ? foldText(decode(segment)) : segment.toLowerCase()
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}

function foldText(text: string): string {
  let folded = text
  for (let pass = 0; pass < MAX_PASSES; pass++) {
    const again = foldOnce(folded)
    const rests = again === folded || !NOT_ASCII_AT_ALL.test(again)
    folded = again
    if (rests) break
  }
  return folded.trim()
}

/** Upper-casing first brings together what has several lower-case forms, such as ς and σ, or ß and ss. */
function foldOnce(text: string): string {
  return text
    .normalize('NFKD')
    .replaceAll(NOT_ASCII, inAscii)
    .replaceAll(UNSEEN, '')
    .toUpperCase()
    .toLowerCase()
    .normalize('NFKC')
}

/** The collation of a language that adds nothing to Unicode's own, at its first level: as databases compare without accents. */
const collation = new Intl.Collator('en', { sensitivity: 'base' })
/** What other characters may be the same as, in the order of the collation: nothing, or one of these. */
const ASCII = ['', 'ae', 'oe', ...Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i))]
  .filter((text) => text === text.toLowerCase())
  .toSorted(collation.compare)

/** For each code point the place in `ASCII` of what it is the same as, plus one; `NONE`; or 0 while nobody has looked. */
let places: Uint8Array | undefined
const NONE = 255

/** `o` for ø and `1` for ١: a letter or digit that is the same as one of ASCII by the collation, as that one. */
function inAscii(char: string): string {
  places ??= new Uint8Array(0x11_00_00)
  const code = char.codePointAt(0)!
  if (places[code] === 0) places[code] = placeOf(char)
  return places[code] === NONE ? char : ASCII[places[code]! - 1]!
}

function placeOf(char: string): number {
  let low = 0
  let high = ASCII.length
  while (low < high) {
    const middle = (low + high) >> 1
    const order = collation.compare(ASCII[middle]!, char)
    if (order === 0) return middle + 1
    if (order < 0) low = middle + 1
    else high = middle
  }
  return NONE
}
