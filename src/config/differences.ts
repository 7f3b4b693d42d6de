import { stringify } from 'yaml'
import { hideSecrets } from './hide-secrets.ts'
import { ConfigError, problemsOf } from './yaml/issue.ts'
import { isMapping, type Mapping, readSource } from './yaml/source.ts'

type Path = readonly (string | number)[]

/** Most differences that are listed. */
const MAX_DIFFERENCES = 20
/** Longest value that is shown, in characters. */
const MAX_CHARS = 100
/** The keys that name the items of a list: the first of these that each item has with other values. */
const NAMES = [['match'], ['id', 'issuer'], ['name'], ['from']]

/** Returns what differs between two texts of a configuration, in the file's words and without secrets; throws a ConfigError. */
export function differences(before: string, after: string, file = 'the file before'): readonly string[] {
  const all: string[] = []
  let more = 0
  for (const difference of compare(parse(before, file), parse(after, file), [])) {
    if (all.length < MAX_DIFFERENCES) all.push(difference)
    else more++
  }
  return more === 0 ? all : [...all, `${more} more`]
}

function parse(text: string, file: string): Mapping {
  const { value, mistakes, placeOf } = readSource(text)
  if (value === undefined) throw new ConfigError(problemsOf(mistakes, file, placeOf, () => undefined))
  return value
}

function* compare(before: unknown, after: unknown, path: Path): Generator<string> {
  if (isMapping(before) && isMapping(after)) {
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)]))
      yield* compare(before[key], after[key], [...path, key])
    return
  }
  const [items, others] = [named(before), named(after)]
  if (items !== undefined && others !== undefined) {
    for (const name of new Set([...items.keys(), ...others.keys()]))
      yield* compare(items.get(name), others.get(name), [...path, name])
    const order = [...items.keys()].filter((name) => others.has(name))
    if (order.join('\n') !== [...others.keys()].filter((name) => items.has(name)).join('\n'))
      yield shorten(`${shownPath(path)} are in another order: ${[...others.keys()].join(', ')}`)
    return
  }
  if (JSON.stringify(before) === JSON.stringify(after)) return
  const shown = (value: unknown): string => shorten(format(hideSecrets(value, path)))
  if (before === undefined) yield `${shownPath(path)} added: ${shown(after)}`
  else if (after === undefined) yield `${shownPath(path)} removed: ${shown(before)}`
  else yield `${shownPath(path)} ${shown(before)} → ${shown(after)}`
}

/** Returns the items of a list by their names; undefined of anything else. */
function named(value: unknown): ReadonlyMap<string, unknown> | undefined {
  if (!Array.isArray(value) || !value.every(isMapping)) return undefined
  for (const keys of NAMES) {
    const items = new Map(
      value.map((item) => [
        keys
          .map((key) => item[key])
          .filter((one) => typeof one === 'string')
          .join(' of '),
        item,
      ]),
    )
    if (items.size === value.length && !items.has('')) return items
  }
  return undefined
}

/** Joins the steps of a path as the file nests them, such as `limits.requests.limit` or `routes["/v3/*"].timeout`. */
function shownPath(path: Path): string {
  const steps = path.map((step) => (/^[\w-]+$/.test(String(step)) ? `.${step}` : `[${JSON.stringify(step)}]`))
  return steps.join('').replace(/^\./, '')
}

const format = (value: unknown): string =>
  typeof value === 'string' ? value : stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trimEnd()
const shorten = (text: string): string => (text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text)
