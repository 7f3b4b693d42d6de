import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { crossCheck } from '../../src/config/checks.ts'
import { compile } from '../../src/config/compile.ts'
import { type Settings, settings } from '../../src/config/schema.ts'
import { unreachableRoutes } from '../../src/config/unreachable-routes.ts'
import { warningsOf } from '../../src/config/warnings.ts'
import { covers } from '../../src/downstream/pattern.ts'

interface Written {
  readonly match: string
  readonly upstream: string
  readonly limits?: readonly string[]
}

const settingsWith = (
  routes: readonly Written[],
  names: readonly string[],
  hosts: readonly string[] | undefined,
): Settings =>
  settings.parse({
    listen: { port: 0, ...(hosts && { hosts }) },
    store: 'memory',
    upstreams: Object.fromEntries(names.map((name) => [name, { url: 'http://127.0.0.1:4000' }])),
    limits: Object.fromEntries(
      names.map((name) => [
        name,
        { per: ['header:x-id'], limit: 10, window: '1m', unless: [{ header: 'x-free', is: '1' }] },
      ]),
    ),
    routes: routes.map((route) => ({ ...route, authenticate: 'none' })),
  })

/** Returns items that call `onRead` at each read of a member. */
const watched = <T extends object>(items: readonly T[], onRead: () => void): T[] =>
  items.map(
    (item) =>
      new Proxy(item, {
        get(target, key, receiver) {
          onRead()
          return Reflect.get(target, key, receiver) as unknown
        },
      }),
  )

describe('a file with many routes, limits and upstreams', () => {
  async function readsOf(count: number): Promise<number> {
    const names = Array.from({ length: count }, (_, i) => `n${i}`)
    const routes = names.map((name, i) => ({
      match: `GET /service-${i}/:id`,
      upstream: name,
      limits: [name],
    }))
    let reads = 0
    const onRead = () => void reads++
    const {
      routes: given,
      limits,
      upstreams,
      ...rest
    } = settingsWith(routes, names, ['h.example', 'i.example'])
    const read = {
      ...rest,
      routes: watched(given, onRead),
      limits: watched(limits, onRead),
      upstreams: watched(upstreams, onRead),
    } as Settings
    expect([...crossCheck(read)]).toEqual([])
    const { compiled } = await compile(read, {
      directory: '.',
      sources: [],
      teams: [],
      tlsInForce: new Map(),
      offline: false,
    })
    const own = {
      routes: watched(compiled.routes, onRead),
      limits: watched(compiled.limits, onRead),
      upstreams: watched(compiled.upstreams, onRead),
    }
    // Each limit is by a field that callers choose.
    expect([...warningsOf({ ...compiled, ...own }, Date.now())]).toHaveLength(count)
    return reads
  }

  it('is checked in linear time', async () => {
    expect(await readsOf(1000)).toBeLessThan(6 * (await readsOf(200)))
  })
})

describe('unreachable routes', () => {
  const segment = fc.constantFrom('a', 'b', ':x', ':y')
  const patterns = fc
    .tuple(
      fc.constantFrom('', 'GET ', 'POST ', 'GET,POST '),
      fc.constantFrom('', '', 'h.example', 'i.example'),
      fc.uniqueArray(segment, { maxLength: 3 }),
      fc.boolean(),
    )
    .map(([methods, host, path, rest]) => `${methods}${host}/${[...path, ...(rest ? ['*'] : [])].join('/')}`)
  const listed = fc.constantFrom(undefined, ['h.example'], ['h.example', 'j.example'])

  it('are those that routes before cover, at each host', () => {
    fc.assert(
      fc.property(fc.array(patterns, { minLength: 1, maxLength: 12 }), listed, (written, hosts) => {
        const read = settingsWith(
          written.map((match) => ({ match, upstream: 'data' })),
          ['data'],
          hosts,
        )
        const expected = read.routes.flatMap((route, i) => {
          const earlier = read.routes.slice(0, i).map((one) => ({ ...one, hosts }))
          const own = route.host === undefined ? (hosts ?? [undefined]) : [route.host]
          const first = own.map((host) => earlier.findIndex((one) => covers(one, { ...route, host })))
          if (first.includes(-1)) return []
          const names = [...new Set(first)].map((j) => `"${earlier[j]!.match}" (routes[${j}])`)
          const message = `never matches: its requests match ${names.join(' and ')} before; put it first or remove it`
          return [{ path: ['routes', i, 'match'], message }]
        })
        expect([...unreachableRoutes(read)]).toEqual(expected)
      }),
      { numRuns: 300 },
    )
  })
})
