import { isName } from '../runtime/json.ts'
import { type Caller, type Facts, tokenHash } from './facts.ts'

/** Reads the value of a part from a request: undefined if it lacks the part, null if that is malformed. */
export type ReadPart = (caller: Caller, facts: Facts) => string | null | undefined

/** The rules of a word of `per`. */
interface Rules {
  /** The part of a request that has its values. */
  readonly from: 'token' | 'connection' | 'header' | 'route' | 'path'
  /** True for a word that is written with a name, such as `claim:NAME`. */
  readonly isNamed: boolean
  /** True if the name may be written in any case. */
  readonly foldsName: boolean
  /** True if it says who calls; the others say what is called. */
  readonly isIdentity: boolean
  /**
   * What limits compare: `exact` values, `folded` ones without case, the `network` of an address, the
   * `hash` of a token.
   */
  readonly compares: 'exact' | 'folded' | 'network' | 'hash'
  /** True if its values are secrets, or as good as secrets: only their short forms may be shown. */
  readonly isSecret: boolean
  /** True if `parameters` may make its values secrets, which are counted by their digests. */
  readonly mayBeSecret: boolean
  /** True if a request may lack it: the token must contain it, or the caller must send it. */
  readonly mayLack: boolean
  /** The party that chooses any number of its values: `callers` send them, `clients` get tokens with them. */
  readonly chosenBy: 'callers' | 'clients' | 'nobody'
  /** Returns the header field that it reads; undefined for a word that reads none. */
  readonly field: ((name: string) => string) | undefined
  /** The kind of its values without one in `parameters`; undefined for values that have no kinds. */
  readonly kind: 'plain' | 'text' | undefined
  /** Returns the reader of its values. `name` is that of a named word, or of a path parameter. */
  reader(name: string): ReadPart
}

const TARGET = {
  isNamed: false,
  foldsName: false,
  isIdentity: false,
  compares: 'folded',
  isSecret: false,
  mayBeSecret: false,
  mayLack: false,
  chosenBy: 'nobody',
  field: undefined,
  kind: undefined,
} as const satisfies Partial<Rules>
const IDENTITY = { ...TARGET, isIdentity: true, compares: 'exact' } as const satisfies Partial<Rules>

/** The words of `per`, in the order in which messages list them. */
const WORDS = {
  client: { ...IDENTITY, from: 'token', reader: () => (caller) => caller.client },
  user: {
    ...IDENTITY,
    from: 'token',
    mayBeSecret: true,
    mayLack: true,
    reader: () => (caller) => caller.user,
  },
  ip: { ...IDENTITY, from: 'connection', compares: 'network', reader: () => (caller) => caller.ip },
  route: { ...TARGET, from: 'route', compares: 'exact', reader: () => (_, facts) => facts.route?.match },
  token: {
    ...IDENTITY,
    from: 'token',
    compares: 'hash',
    isSecret: true,
    reader: () => (_, facts) => tokenHash(facts),
  },
  claim: {
    ...IDENTITY,
    from: 'token',
    isNamed: true,
    mayBeSecret: true,
    mayLack: true,
    chosenBy: 'clients',
    kind: 'text',
    reader:
      (name) =>
      ({ claims }) =>
        claimText(claims?.[name]),
  },
  header: {
    ...IDENTITY,
    from: 'header',
    isNamed: true,
    foldsName: true,
    compares: 'folded',
    isSecret: true,
    mayBeSecret: true,
    mayLack: true,
    chosenBy: 'callers',
    field: (name) => name,
    kind: 'plain',
    reader: (name) => (_, facts) => onlyValue(facts.field(name)),
  },
} as const satisfies Readonly<Record<string, Rules>>

/** A part of `per` that is none of the words is the name of a path parameter. */
const PATH_PARAMETER: Rules = {
  ...TARGET,
  from: 'path',
  mayBeSecret: true,
  chosenBy: 'callers',
  kind: 'plain',
  reader:
    (name) =>
    (_, { params }) =>
      params[name],
}

/** A word of `per` without its name; `parameter` for all path parameters. */
export type WordName = keyof typeof WORDS | 'parameter'
export interface Word extends Rules {
  readonly word: WordName
}

const ALL: readonly Word[] = [
  ...Object.entries(WORDS).map(([word, rules]) => ({ word: word as WordName, ...rules })),
  { word: 'parameter', ...PATH_PARAMETER },
]
const PARAMETER = ALL.at(-1)!
/** All words but that of path parameters, which have their own names. */
const WRITTEN = ALL.slice(0, -1)
const wordsBy = (isNamed: boolean): ReadonlyMap<string, Word> =>
  new Map(WRITTEN.filter((one) => one.isNamed === isNamed).map((one) => [one.word, one]))
const [NAMED, UNNAMED] = [wordsBy(true), wordsBy(false)]

/** Returns the word of a part of `per`, such as that of claims for `claim:consent_id`. */
export function wordOf(part: string): Word {
  const colon = part.indexOf(':')
  const word = colon === -1 ? UNNAMED.get(part) : NAMED.get(part.slice(0, colon))
  return word ?? PARAMETER
}

/** Returns the name in a part, such as `consent_id` of `claim:consent_id`; other parts are returned whole. */
export const nameIn = (part: string): string =>
  wordOf(part).isNamed ? part.slice(part.indexOf(':') + 1) : part

/** Returns the part of `per` that a text in the configuration means: names of header fields are in lower case. */
export function partOf(text: string): string {
  const word = text.split(':', 1)[0]!.toLowerCase()
  return word.length < text.length && NAMED.get(word)?.foldsName === true ? text.toLowerCase() : text
}

const formOf = ({ word, isNamed }: Word): string => (isNamed ? `${word}:NAME` : word)

/** Returns the forms in `per` of the words for which `isAsked` is true, such as `claim:NAME`. */
export const formsOf = (isAsked: (word: Word) => boolean = () => true): readonly string[] =>
  WRITTEN.filter(isAsked).map(formOf)

const inAnyCase = (word: string): string => `[${word[0]!.toUpperCase()}${word[0]}]${word.slice(1)}`
const namedForms = [...NAMED.values()].map(({ word, foldsName }) => (foldsName ? inAnyCase(word) : word))
/** Matches a part as the configuration may write it: a word, one with a name, or a path parameter. */
export const WRITTEN_PART = new RegExp(`^(?:[A-Za-z_][A-Za-z0-9_]*|(?:${namedForms.join('|')}):.+)$`, 's')

/** Returns the words that say who calls, with a name or without one, as alternatives of an expression. */
export const identityWords = (isNamed: boolean): string =>
  WRITTEN.filter((word) => word.isIdentity && word.isNamed === isNamed)
    .map(({ word }) => word)
    .join('|')

/** Returns the reader of the value that a request has for a part of `per`. */
export const valueReader = (part: string): ReadPart => wordOf(part).reader(nameIn(part))

/** Maximum length of a claim in a key, in characters. */
export const MAX_CLAIM = 255

/**
 * Returns a claim as text; null unless it is an integer, or a string of 1 to 255 characters
 * without control characters and lone surrogates. Unsafe integers may be rounded.
 */
function claimText(claim: unknown): string | null | undefined {
  if (Number.isSafeInteger(claim)) return String(claim)
  if (claim === undefined) return undefined
  return isName(claim) && claim.length <= MAX_CLAIM ? claim : null
}

/** Returns the value of a header field; null if it is there several times. */
const onlyValue = (values: readonly string[] | undefined): string | null | undefined =>
  values !== undefined && values.length > 1 ? null : values?.[0]
