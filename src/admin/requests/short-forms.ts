import { decodeSegment } from '../../downstream/target.ts'
import { AmbiguousCaller, InvalidQuestion, UncountedCaller } from '../../errors.ts'
import { countedForm, showCaller } from '../../policy/counted-caller.ts'
import type { Caller } from '../../policy/facts.ts'
import type { FoundCaller } from '../../policy/found-caller.ts'
import { isDigest, isShortForm } from '../../policy/secret-values.ts'
import type { Limit } from '../../policy/limit.ts'
import { partOf } from '../../policy/words.ts'
import { type JsonObject, parseObject } from '../../runtime/json.ts'
import type { RequestLine } from './operator-api.ts'

/** Finds the part of a known caller that is shown as a text such as `user:mari…61adca1f`. */
type FindPart = (shown: string) => FoundCaller | Promise<FoundCaller>

/** Parses the header fields or the claims of a question; throws an InvalidQuestion. */
export function parseNamed(what: 'headers' | 'claims', text = '{}'): JsonObject {
  const named = parseObject(text)
  if (named !== undefined) return named
  throw new InvalidQuestion(`The ${what} must be a JSON object such as {"name":"value"}.`)
}

/**
 * Replaces the short forms of the user, the claims and the header fields of a question by the values
 * of a known caller; those of secrets by their digests. Rejects with an UncountedCaller or an
 * AmbiguousCaller if no value is known, or several are.
 */
export async function withWholeValues(line: RequestLine, find: FindPart): Promise<RequestLine> {
  async function whole(word: string, value: string): Promise<string> {
    if (!isShortForm(value)) return value
    const part = partOf(word)
    const shown = showCaller([{ word: part, value: countedForm(part)(value) }])
    const found = await find(shown)
    if (found === 'ambiguous')
      throw new AmbiguousCaller(`Several values are shown as "${shown}"; give the whole value.`)
    if (found === undefined)
      throw new UncountedCaller(`"${shown}" is shortened, and not known here; give the whole value.`)
    return found[0]!.value
  }
  async function wholeOf(what: 'headers' | 'claims', word: string): Promise<string | undefined> {
    if (line[what] === undefined) return undefined
    const named = Object.entries(parseNamed(what, line[what]))
    const values = named.map(
      async ([name, value]) =>
        [name, typeof value === 'string' ? await whole(`${word}:${name}`, value) : value] as const,
    )
    return JSON.stringify(Object.fromEntries(await Promise.all(values)))
  }
  const { user } = line
  const headers = await wholeOf('headers', 'header')
  const claims = await wholeOf('claims', 'claim')
  return {
    ...line,
    ...(user !== undefined && { user: await whole('user', user) }),
    ...(headers !== undefined && { headers }),
    ...(claims !== undefined && { claims }),
  }
}

/** Throws an InvalidQuestion for a value that is still shortened: its counters cannot be found. */
export function assertWhole({ request, user, claims, headers }: RequestLine): void {
  const inPath = request.split(/[/?#\s]+/).map(decodeSegment)
  const named = [parseNamed('claims', claims), parseNamed('headers', headers)].flatMap(Object.values)
  const short = [...inPath, user, ...named].find((value) => typeof value === 'string' && isShortForm(value))
  if (short !== undefined)
    throw new InvalidQuestion(`"${String(short)}" is shortened, and not known here; give the whole value.`)
}

/** Throws an InvalidQuestion if a limit compares or reads a claim whose digest only is known. */
export function assertReadable(
  { name, when = [], unless = [], claim }: Limit,
  { claims = {} }: Caller,
): void {
  const conditions = [...when, ...unless].filter(({ of }) => of === 'claim')
  const read = [...conditions, ...(claim === undefined ? [] : [claim])].map((one) => one.name)
  const secret = read.find((one) => isDigest(String(claims[one] ?? '')))
  if (secret !== undefined)
    throw new InvalidQuestion(`The limit "${name}" reads the claim "${secret}"; give its whole value.`)
}
