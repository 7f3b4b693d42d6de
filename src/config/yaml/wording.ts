import type { YAMLError } from 'yaml'

/** What zod hands to an `error` function, as far as the wording needs it. */
interface Raised {
  readonly code?: string | undefined
  readonly input?: unknown
}

/** Knows more about an input that is there; undefined where the general words are enough. */
export type Explain = (input: unknown) => string | undefined

/** The `error` option of a value that must be `what`. The value is never repeated, because it may hold a secret. */
export function mustBe(what: string, explain?: Explain) {
  return {
    error: ({ input }: Raised): string => {
      if (input === undefined) return `is missing; write ${what}`
      if (input === null) return `is empty; write ${what}`
      return explain?.(input) ?? `must be ${what}`
    },
  }
}

/** The `error` option of a mapping: how its other mistakes are worded, and which keys it knows. */
export function mustBeMapping(
  keys: readonly string[],
  what = `a mapping with ${keys.length === 1 ? `"${keys[0]}"` : `keys of ${keys.join(', ')}`}`,
) {
  const { error } = mustBe(what)
  return { error: (raised: Raised) => (raised.code === 'unrecognized_keys' ? keys.join(' ') : error(raised)) }
}

/** Words an unknown key, with `known` the keys separated by spaces that `mustBeMapping` left as the message. */
export function unknownKey(key: string, known: string): string {
  const keys = known.split(' ')
  const meant = nearest(key, keys)
  if (meant !== undefined) return `unknown key; did you mean "${meant}"?`
  return `unknown key; write ${keys.length === 1 ? `"${keys[0]}"` : `one of ${keys.join(', ')}`}`
}

/** Words a reference to an upstream or a limit that is not defined. */
export function undefinedName(kind: string, name: string, known: readonly string[]): string {
  const meant = nearest(name, known)
  const others = known.length === 0 ? '' : ` or write ${oneOf(known)}`
  const hint = meant === undefined ? `define it under "${kind}s"${others}` : `did you mean "${meant}"?`
  return `there is no such ${kind}; ${hint}`
}

/** `a`, `a or b`, `a, b or c`. */
export function oneOf(words: readonly string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`
}

const PLAINER: Readonly<Record<string, string>> = {
  DUPLICATE_KEY: 'this key stands here again; take one of the two out',
  MULTIPLE_DOCS: 'a second document starts here; a configuration is one document, so take the "---" out',
  NON_STRING_KEY: 'holds a key that is not a word; write a plain one',
  RESOURCE_EXHAUSTION: 'this nests too deeply; take some out',
  TAB_AS_INDENT: 'a tab indents this line; YAML takes spaces alone',
  TAG_RESOLVE_FAILED: 'a tag (!name) means nothing here; take it out',
}

/** Words what the YAML parser found, without the text behind the colon, which may be a secret. */
export function wordError({ code, message, pos }: YAMLError, text: string): string {
  const plainer = PLAINER[code]
  if (plainer !== undefined) return plainer
  const [line] = text.slice(text.lastIndexOf('\n', pos[0] - 1) + 1).split('\n', 1) as [string]
  const isUnquoted = /^[^#]*[{,[][^"'#]*\$\{/.test(line.slice(0, 1000))
  const hint = isUnquoted ? '; within { } and [ ], put quotes around "${NAME}"' : ''
  return `${message.split(/\n|: /, 1)[0]}${hint}`
}

/** The one of `known` that `word` was probably meant to be: at most a third of it differs, or only case and dashes. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  let best: string | undefined
  let least = Math.min(3, Math.ceil(word.length / 3)) + 1
  for (const candidate of known) {
    const distance = plain(candidate) === plain(word) ? 0 : edits(word, candidate)
    if (distance < least) {
      least = distance
      best = candidate
    }
  }
  return best
}

function plain(word: string): string {
  return word.toLowerCase().replaceAll(/[-_ ]/g, '')
}

/** The edits between two words: insert, delete or replace (Levenshtein). */
function edits(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const replaced = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, replaced))
    }
    row = next
  }
  return row[b.length]!
}
