import { type Name, namesOf } from './json-end.ts'
import { parsePath } from './path.ts'

/**
 * Where the number of points is that a call turned out to use: in a JSON body, in a response field,
 * or the size of bodies. As the file writes it; one of the keys.
 */
export interface Actual {
  /** The path of a number in the body of the response, as `parsePath` reads it. */
  readonly json?: string | undefined
  /** The name of a response field. */
  readonly field?: string | undefined
  readonly bytes?: 'request' | 'response' | 'both' | undefined
}

/** The place of a number, with the names of the path of `json`; none for other places. */
export interface NumberSource extends Actual {
  readonly names: readonly Name[]
}

/** Parses the path, which must have no mistake. */
export const sourceOf = ({ json, field, bytes }: Actual): NumberSource => ({
  json,
  field,
  bytes,
  names: json === undefined ? [] : namesOf(parsePath(json) as readonly string[]),
})

/** The points that a call used, or why they are not known, in words for the log. */
export type Used = number | Unsettled

/** Why a call was not charged by what it used. */
export class Unsettled {
  readonly reason: string
  constructor(reason: string) {
    this.reason = reason
  }
}

/** Describes where a number is, for operators: `json usage.total_tokens`. */
export function describeActual({ json, field, bytes }: Actual): string {
  if (json !== undefined) return `json ${json}`
  return field === undefined ? `bytes ${bytes}` : `field ${field}`
}
