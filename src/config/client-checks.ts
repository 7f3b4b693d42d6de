import type { Limit } from '../policy/limit.ts'
import { asList } from '../runtime/json.ts'
import type { Settings } from './schema.ts'
import { type Issue, issueAt, issueAtKey, type Path } from './yaml/issue.ts'

/** Yields clients that are listed twice, or whose settings fit no issuer or no limit. */
export function* clientIssues({ clients, limits, tokens }: Settings): Generator<Issue> {
  const issuers = asList(tokens ?? [])
  const firsts = new Map<string, number>()
  for (const [i, { id, issuer: name = issuers[0]?.issuer, limits: own }] of clients.entries()) {
    const issuer = issuers.find(({ names }) => name !== undefined && names.includes(name))
    if (name !== undefined && issuer === undefined)
      yield issueAt(['clients', i, 'issuer'], 'is not an issuer of "tokens"; write one of them, or remove it')
    const key = JSON.stringify([issuer?.issuer ?? name, id])
    const first = firsts.get(key)
    if (first === undefined) firsts.set(key, i)
    else yield issueAt(['clients', i, 'id'], `is also in clients[${first}]; merge them`)
    for (const [name, { windowMs }] of Object.entries(own)) {
      const limit = limits.find((limit) => limit.name === name)
      const isShared = limits.some((other) => other.counts === name)
      if (limit !== undefined)
        yield* ownLimitIssues(limit, isShared, windowMs, ['clients', i, 'limits', name])
    }
  }
}

/** Yields a client's own limit, or its window, that the limit of that name does not admit. */
function* ownLimitIssues(
  limit: Limit,
  isShared: boolean,
  windowMs: number | undefined,
  path: Path,
): Generator<Issue> {
  const { name, per, calendar, isConcurrent, counts, together } = limit
  if (!per.includes('client')) {
    yield issueAtKey(path, 'is not counted per client; add client to its "per" or remove this')
    return
  }
  if (windowMs === undefined) return
  if (calendar !== undefined || isConcurrent === true || counts !== undefined || isShared)
    yield issueAt(
      [...path, 'window'],
      'does not apply to a calendar, calls at once or a shared counter; remove it',
    )
  else if (typeof together === 'number' && together > windowMs)
    yield issueAt([...path, 'window'], `is shorter than "together" of "${name}"; write at least that`)
}
