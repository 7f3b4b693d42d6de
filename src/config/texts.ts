import { createHash } from 'node:crypto'
import { differences } from './shown-settings.ts'
import type { JsonObject } from '../runtime/json.ts'
import { readSource } from './yaml/source.ts'

/** The text of a team's file. */
export interface TeamText {
  /** Relative to the folder of the main file. */
  readonly path: string
  readonly text: string
}

/** The texts of the files of a configuration. */
export interface Texts {
  /** That of the main file. */
  readonly text: string
  readonly teams: readonly TeamText[]
}

/** Returns the SHA-256 of texts in hex: without teams, that of the main file. */
export function hashOf({ text, teams }: Texts): string {
  const all =
    teams.length === 0 ? text : JSON.stringify([text, ...teams.map(({ path, text }) => [path, text])])
  return createHash('sha256').update(all).digest('hex')
}

/**
 * Returns the differences between two texts of the main file `file`, in its words and without
 * secrets. `value` is the parsed text `after`.
 */
export const changesOfMain = (
  before: string,
  after: string,
  file: string,
  value: JsonObject,
): readonly string[] =>
  // Parsing 30,000 clients takes two seconds.
  before === after ? [] : differences(before, value, file)

/** Returns the differences between two configurations, as of their main files and those of their teams. */
export const changesBetween = (
  before: Texts,
  after: Texts,
  file: string,
  value: JsonObject,
): readonly string[] => [
  ...changesOfMain(before.text, after.text, file, value),
  ...changesOfTeams(before.teams, after.teams),
]

/** Yields the differences between the files of teams, each with the path of the file. */
export function* changesOfTeams(before: Texts['teams'], after: Texts['teams']): Generator<string> {
  const texts = new Map(after.map(({ path, text }) => [path, text]))
  const earlier = new Map(before.map(({ path, text }) => [path, text]))
  for (const path of [...new Set([...earlier.keys(), ...texts.keys()])].toSorted()) {
    const [old, text] = [earlier.get(path), texts.get(path)]
    if (old === undefined) yield `${path} added`
    else if (text === undefined) yield `${path} removed`
    else if (old !== text)
      for (const line of differences(old, readSource(text, path).value, path)) yield `${path}: ${line}`
  }
}
