import { dirname, join, normalize, sep } from 'node:path'
import type { TeamSettings } from '../schema.ts'
import { type Issue, issueAt } from '../yaml/issue.ts'
import { teamNameOf } from './team.ts'

const NAMING_FILES = ['ca', 'cert', 'key'] as const

const UNIX_SOCKET =
  'has a Unix socket of the gateway’s machine, which a team may not name; define the upstream in the main file'

/**
 * Returns the folder with the files that a team may name, such as `teams/payments` for
 * `teams/payments.yaml`. The gateway can read the keys of other teams, and its own.
 */
export const folderOf = (file: string): string => join(dirname(file), teamNameOf(file))

/**
 * Yields the files of certificates and keys that are not in the folder of the team with this name, and
 * Unix sockets: the gateway may open those of other programs, such as Redis.
 */
export function* foreignFiles({ upstreams }: TeamSettings, team: string): Generator<Issue> {
  const begin = `${team}${sep}`
  for (const { name, tls = {}, origins } of upstreams) {
    for (const key of NAMING_FILES) {
      const path = tls[key]
      if (path === undefined || normalize(path).startsWith(begin)) continue
      const message = `must be in the folder "${team}" beside this file, such as ${team}/${key}.pem`
      yield issueAt(['upstreams', name, 'tls', key], message)
    }
    if (origins.some((origin) => origin.startsWith('unix:'))) yield issueAt(['upstreams', name], UNIX_SOCKET)
  }
}
