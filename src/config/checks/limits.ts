import { instantMs } from '../compile/instant.ts'
import type { Path } from '../yaml/locate.ts'
import type { Outline, OutlinedLimit } from './outline.ts'
import type { Mistake } from '../yaml/source.ts'
import { dangling, oneOf } from '../yaml/wording.ts'

/** Limits whose keys name a part twice, and changes that do not follow one another. */
export function* limits(file: Outline): Generator<Mistake> {
  for (const [name, limit] of Object.entries(file.limits ?? {})) {
    yield* repeated(limit.per, ['limits', name, 'per'])
    yield* changes(limit, ['limits', name, 'changes'])
  }
}

function* changes({ changes }: OutlinedLimit, path: Path): Generator<Mistake> {
  let latestMs = -Infinity
  for (const [i, { announced = '', from = '' }] of changes.entries()) {
    const fromMs = instantMs(from)
    if (instantMs(announced) > fromMs) {
      const message = 'is after "from"; announce a change before it takes effect'
      yield { path: [...path, i, 'announced'], message }
    }
    if (fromMs === latestMs) {
      const message = 'is when another change takes effect; take one of the two out'
      yield { path: [...path, i, 'from'], message }
    } else if (fromMs < latestMs) {
      const message = 'is before that of an earlier change; write them in the order in which they take effect'
      yield { path: [...path, i, 'from'], message }
    } else if (!Number.isNaN(fromMs)) latestMs = fromMs
  }
}

/** Clients that stand twice, or are of an issuer whose tokens nobody takes, and own limits that stand in for nothing. */
export function* clientsOf({ clients, limits, tokens }: Outline): Generator<Mistake> {
  const issuers = (tokens ?? []).map(({ issuer }) => issuer).filter((issuer) => issuer !== undefined)
  const first = new Map<string, number>()
  for (const [i, { id, issuer = issuers[0], limits: own }] of clients.entries()) {
    if (issuer !== undefined && !issuers.includes(issuer)) {
      const known = issuers.length === 0 ? 'take it out' : `write ${oneOf(issuers)}, or take it out`
      yield { path: ['clients', i, 'issuer'], message: `is the issuer of none of "tokens"; ${known}` }
    }
    if (id !== undefined) {
      const one = JSON.stringify([issuer, id])
      const before = first.get(one)
      if (before === undefined) first.set(one, i)
      else {
        const message = `stands twice, first in clients[${before}]; make one of the two`
        yield { path: ['clients', i, 'id'], message }
      }
    }
    for (const name of limits === null ? [] : Object.keys(own)) {
      const path = ['clients', i, 'limits', name]
      const limit = Object.hasOwn(limits!, name) ? limits![name]! : undefined
      if (limit === undefined) {
        yield { path, message: dangling('limit', name, Object.keys(limits!)), key: true }
      } else if (limit.per.length > 0 && !limit.per.includes('client')) {
        const message = `is a limit that is not counted per client, so no client has one of its own; add client to its "per" or take this out`
        yield { path, message, key: true }
      }
    }
  }
}

/** Words that stand twice in a list. */
export function* repeated(words: readonly (string | undefined)[], path: Path): Generator<Mistake> {
  for (const [i, word] of words.entries()) {
    if (word !== undefined && words.indexOf(word) < i) {
      yield { path: [...path, i], message: `stands twice; take one "${word}" out` }
    }
  }
}
