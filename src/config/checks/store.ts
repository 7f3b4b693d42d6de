import type { Path } from '../yaml/locate.ts'
import type { Outline } from './outline.ts'
import type { Mistake } from '../yaml/source.ts'

const KINDS = ['url', 'cluster', 'sentinels'] as const
const OF_SENTINELS = ['name', 'sentinelUsername', 'sentinelPassword'] as const
const PATH: Path = ['store', 'redis']

/** A Redis that is named in several ways or none, and settings that do not go together. */
export function* redis({ store }: Outline): Generator<Mistake> {
  const given = store.redis
  if (given === undefined) return
  const [kind, ...others] = KINDS.filter((kind) => given[kind] !== undefined)
  if (kind === undefined) yield { path: PATH, message: 'names no server; write url, cluster or sentinels' }
  for (const other of others) {
    yield { path: [...PATH, other], message: `stands beside "${kind}"; take one of the two out`, key: true }
  }
  if (kind === 'sentinels' && given['name'] === undefined) {
    const message = 'is missing; write the name by which the sentinels know the master'
    yield { path: [...PATH, 'name'], message }
  }
  for (const key of kind === 'sentinels' || kind === undefined ? [] : OF_SENTINELS) {
    if (given[key] === undefined) continue
    yield { path: [...PATH, key], message: 'goes with "sentinels" alone; take it out', key: true }
  }
  if (kind === 'sentinels' && given['sentinelUsername'] !== undefined && !('sentinelPassword' in given)) {
    const message = 'is of no use without "sentinelPassword"; write both or neither'
    yield { path: [...PATH, 'sentinelUsername'], message, key: true }
  }
  yield* unlike(given['cluster'], [...PATH, 'cluster'], 'scheme, user and password', accessOf)
  yield* unlike(given['sentinels'], [...PATH, 'sentinels'], 'scheme', (url) => url.protocol)
  yield* tls(given)
}

/** All nodes are spoken to in one way. */
function* unlike(urls: unknown, path: Path, what: string, how: (url: URL) => string): Generator<Mistake> {
  if (!Array.isArray(urls)) return
  const ways = urls.map((url) =>
    typeof url === 'string' && URL.canParse(url) ? how(new URL(url)) : undefined,
  )
  const [first] = ways
  const i = ways.findIndex((way) => way !== undefined && first !== undefined && way !== first)
  if (i === -1) return
  yield { path: [...path, i], message: `differs from the first one in ${what}; write all alike` }
}

function accessOf({ protocol, username, password }: URL): string {
  return JSON.stringify([protocol, username, password])
}

function* tls({ tls, url }: Readonly<Record<string, unknown>>): Generator<Mistake> {
  const path = [...PATH, 'tls']
  if (tls !== undefined && typeof url === 'string' && /^(?:unix:\/\/)?\//.test(url)) {
    yield { path, message: 'has no meaning on a socket file; take it out', key: true }
  }
  yield* halfOf(tls, path)
}

/** A certificate without its key, or a key without its certificate. */
export function* halfOf(tls: unknown, path: Path): Generator<Mistake> {
  if (typeof tls !== 'object' || tls === null) return
  for (const [one, other] of [
    ['cert', 'key'],
    ['key', 'cert'],
  ] as const) {
    if (!(one in tls) || other in tls) continue
    yield {
      path: [...path, one],
      message: `is of no use without "${other}"; write both or neither`,
      key: true,
    }
  }
}
