import type { Compiled } from '../config.ts'
import { type Issue, issueAtKey } from '../yaml/issue.ts'

/**
 * Yields upstreams of teams that have an address of another team's upstream. Only a warning: a server
 * may belong to both, and another name of it cannot be recognised.
 */
export function* sharedAddressWarnings({ upstreams }: Compiled): Generator<Issue> {
  /** The first upstream of each team, by its address, then by the folder of the team. */
  const owners = new Map<string, Map<string, string>>()
  for (const { name, folder, origins } of upstreams) {
    if (folder === undefined) continue
    for (const origin of origins) {
      const ofOrigin = owners.get(origin) ?? new Map<string, string>()
      owners.set(origin, ofOrigin)
      if (!ofOrigin.has(folder)) ofOrigin.set(folder, name)
    }
  }
  for (const { name, folder, origins } of upstreams) {
    if (folder === undefined) continue
    const sharing = origins.map((origin) => owners.get(origin)!).find(({ size }) => size > 1)
    if (sharing === undefined) continue
    const [, other] = [...sharing].find(([owner]) => owner !== folder)!
    const message = `has an address of "${other}", which is another team's; correct it unless both own that server`
    yield issueAtKey(['upstreams', name], message)
  }
}
