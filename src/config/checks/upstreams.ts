import { httpUrl } from '../sections/addresses.ts'
import { halfOf } from './store.ts'
import type { Path } from '../yaml/locate.ts'
import type { Outline } from './outline.ts'
import type { Mistake } from '../yaml/source.ts'

/** Upstreams without an address or with two kinds of them, and addresses that do not go together. */
export function* upstreams({ upstreams }: Outline): Generator<Mistake> {
  for (const [name, given] of Object.entries(upstreams ?? {})) {
    if (typeof given !== 'object' || given === null || Array.isArray(given)) continue
    const { url, urls, tls } = given as Readonly<Record<string, unknown>>
    const path = ['upstreams', name]
    if (url === undefined && urls === undefined) {
      const message = 'is missing; write an address such as http://data.internal:4000, or "urls" for several'
      yield { path: [...path, 'url'], message }
    } else if (url !== undefined && urls !== undefined) {
      yield {
        path: [...path, 'urls'],
        message: 'stands beside "url"; take one of the two out',
        key: true,
      }
    }
    yield* tlsOf(tls, originOf(url ?? (Array.isArray(urls) ? urls[0] : undefined)), [...path, 'tls'])
    const origins = Array.isArray(urls) ? urls.map(originOf) : []
    for (const [i, one] of origins.entries()) {
      if (one === undefined) continue
      const at = [...path, 'urls', i]
      if (origins.indexOf(one) < i) yield { path: at, message: `stands twice; take one out` }
      else if (origins[0] !== undefined && one.split(':')[0] !== origins[0].split(':')[0])
        yield { path: at, message: 'differs from the first one in scheme; write all alike' }
    }
  }
}

function* tlsOf(tls: unknown, origin: string | undefined, path: Path): Generator<Mistake> {
  if (tls === undefined) return
  if (origin?.startsWith('http:') === true) {
    yield { path, message: 'has no meaning for http addresses; write https, or take it out', key: true }
  }
  yield* halfOf(tls, path)
}

function originOf(url: unknown): string | undefined {
  return typeof url === 'string' ? httpUrl(url)?.origin : undefined
}
