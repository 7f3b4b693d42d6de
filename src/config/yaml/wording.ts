import { nearest } from '../checks/nearest.ts'

/** What zod hands to an `error` function, as far as the wording needs it. */
interface Raised {
  readonly code?: string | undefined
  readonly input?: unknown
}

/** The `error` option of a value that must be `what`; `explain` may know more about an input that is there. */
export function must(what: string, explain?: (input: unknown) => string | undefined) {
  return {
    error: ({ input }: Raised): string => {
      if (input === undefined) return `is missing; write ${what}`
      if (input === null) return `is empty; write ${what}`
      return explain?.(input) ?? `must be ${what}, not ${show(input)}`
    },
  }
}

/** The same for a value that is never repeated, because it may hold a secret: so may a text where a mapping is wanted. */
export function mustSecretly(what: string, explain?: (input: unknown) => string | undefined) {
  return must(what, (input) => explain?.(input) ?? `must be ${what}`)
}

/** The `error` option of a mapping: how its other mistakes are worded, and which keys it knows. */
export function mustHave(keys: readonly string[]) {
  const { error } = mustSecretly(
    `a mapping with ${keys.length === 1 ? `"${keys[0]}"` : `keys of ${keys.join(', ')}`}`,
  )
  return { error: (raised: Raised) => (raised.code === 'unrecognized_keys' ? keys.join(' ') : error(raised)) }
}

/** Words an unknown key, with `known` the keys separated by spaces that `mustHave` left as the message. */
export function unknownKey(key: string, known: string): string {
  const keys = known.split(' ')
  const meant = nearest(key, keys)
  if (meant !== undefined) return `unknown key; did you mean "${meant}"?`
  return `unknown key; write ${keys.length === 1 ? `"${keys[0]}"` : `one of ${keys.join(', ')}`}`
}

/** Words a name that nothing bears. */
export function dangling(kind: string, name: string, known: readonly string[]): string {
  const meant = nearest(name, known)
  const hint =
    meant !== undefined
      ? `did you mean "${meant}"?`
      : known.length === 0
        ? `define it under "${kind}s"`
        : `define it under "${kind}s" or write ${oneOf(known)}`
  return `there is no ${kind} ${show(name)}; ${hint}`
}

/** `a`, `a or b`, `a, b or c`. */
export function oneOf(words: readonly string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`
}

/** A value in a few characters, to be repeated in a message; what may be credentials or a query is not. */
export function show(value: unknown): string {
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object' && value !== null) return 'a mapping'
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value)
  const plain = text.replace(/^.*@/s, '"***@').replace(/\?.*$/s, '?***"')
  return plain.length > 60 ? `${plain.slice(0, 56)}…"` : plain
}
