import { basename, extname } from 'node:path'
import { parsePattern, type Pattern } from '../../downstream/pattern.ts'
import type { Owner } from '../../downstream/router.ts'
import type { ServedRoute } from '../resource-route.ts'

/** The state of a team's file. `previous`: it has mistakes, and its last valid version is in force. */
export type TeamState = 'valid' | 'previous' | 'invalid'

/** A team of the configuration in force. */
export interface Team extends Owner {
  /** The path of its file, as shown. */
  readonly file: string
  readonly state: TeamState
  /** The pattern of what it owns, such as `/payments/*`. */
  readonly match: string
}

/** Returns the name of a team, by the path of its file. */
export const teamNameOf = (path: string): string => basename(path, extname(path))

/** Returns the route of everything that a team owns whose file has no valid version: a 503. */
export function unavailableRoute({ match, name }: Team): ServedRoute {
  const own = { respond: 'unavailable', authenticate: 'none' } as const
  const pattern = parsePattern(match) as Pattern
  return { ...pattern, ...own, match, scope: [], limits: [], maxBody: MAX_BODY, body: true, team: name }
}

/** Bytes: the default of `maxBody`, so that the 503 is what requests with a body get. */
const MAX_BODY = 10 * 1024 ** 2
