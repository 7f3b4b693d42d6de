import type { JsonObject } from '../runtime/json.ts'
import { type Issue, type Path, writePath } from './yaml/issue.ts'
import { mapTexts } from './yaml/source.ts'

/** A text that needs variables or a file which are not here, as where `check --offline` runs. */
export interface Unknown extends Issue {
  /** Names the variables, or the file: the same ones get the same text. */
  readonly source: string
  /** Returns the text with this in place of what is unknown. */
  complete(standIn: string): string
}

const NUMBERS = ['1000', '100', '10', '1', '0.5', '1.2', '1m', '1kB', '10%']
const OTHERS = ['false', 'true', '192.0.2.1', '2099-01-01T00:00:00Z', 'none', 'local', 'info', 'json']

/**
 * Returns texts; a setting accepts at least one of them. They differ for each unknown: equal ports would
 * conflict, and if hosts were equal, only the first would match.
 */
function placeholders(i: number): readonly string[] {
  const name = `unknown-${i}`
  const host = `${name}.invalid`
  return [host, name, `https://${host}`, `redis://${host}:6379`, `${50_000 + i}`, ...NUMBERS, ...OTHERS]
}

/**
 * Returns a file with texts in place of the unknown ones, so that everything else can be checked: each
 * gets the first of some texts that its settings accept. `mistakesIn` finds the mistakes of such a file.
 */
export function withStandIns(
  file: JsonObject,
  unknown: readonly Unknown[],
  names: readonly string[],
  mistakesIn: (file: JsonObject) => readonly Issue[],
): JsonObject {
  if (unknown.length === 0) return file
  const places = new Map(unknown.map((one) => [writePath(one.path), one]))
  const sources = [...new Set(unknown.map(({ source }) => source))]
  /** The texts that are left to try, by the source of what is unknown. */
  const left = new Map(sources.map((source, i) => [source, [...placeholders(i), ...names]]))
  for (;;) {
    const filled = mapTexts(file, (text, path) => {
      const place = places.get(writePath(path))
      return place === undefined ? text : place.complete(left.get(place.source)![0]!)
    })
    const mistakes = mistakesIn(filled)
    const isRefused = ({ path: place }: Unknown): boolean => mistakes.some(({ path }) => leads(path, place))
    const refused = new Set(unknown.filter(isRefused).map(({ source }) => left.get(source)!))
    const further = [...refused].filter(({ length }) => length > 1)
    if (further.length === 0) return filled
    for (const texts of further) texts.shift()
  }
}

/** True if a path leads to another, or to what it is in: a mistake of a union is at the union. */
const leads = (path: Path, other: Path): boolean => path.every((step, i) => step === other[i])
