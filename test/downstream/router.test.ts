import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { covers, parsePattern, type Pattern } from '../../src/downstream/pattern.ts'
import { matchReadings } from '../../src/downstream/readings.ts'
import { createRouteIndex } from '../../src/downstream/route-index.ts'
import { createRouter, type Owner, type Route } from '../../src/downstream/router.ts'
import { parseTarget, segmentsOf } from '../../src/downstream/target.ts'
import { Refusal } from '../../src/errors.ts'
import { scanningRouter } from './scan.ts'

const words = (list: string): readonly string[] => list.trim().split(/\s+/)

const pattern = (text: string): Pattern => {
  const parsed = parsePattern(text)
  if (typeof parsed === 'string') throw new Error(parsed)
  return parsed
}
const route = (
  text: string,
  authenticate: Route['authenticate'] = 'none',
): Route & { readonly text: string } => ({
  ...pattern(text),
  text,
  match: text,
  authenticate,
  scope: [],
  maxBody: 1,
  timeoutMs: undefined,
})
const matching = (routes: string[], method: string, path: string, host = 'localhost') => {
  const router = createRouter(routes.map((text) => route(text)))
  const found = router(method, host, segmentsOf(path))
  if (found === undefined) return undefined
  return 'allow' in found ? { allow: found.allow } : { text: found.route.text, params: { ...found.params } }
}

describe('matching', () => {
  it('returns the first route that matches', () => {
    const routes = ['POST /sync/:connection', 'POST /:version/sync/:connection', '/*']
    expect(matching(routes, 'POST', '/sync/a:b')).toEqual({ text: routes[0], params: { connection: 'a:b' } })
    expect(matching(routes, 'POST', '/v3/sync/x')).toEqual({
      text: routes[1],
      params: { version: 'v3', connection: 'x' },
    })
    expect(matching(routes, 'GET', '/sync/x')).toEqual({ text: '/*', params: {} })
    expect(matching(routes, 'POST', '/a/sync/x/y')).toEqual({ text: '/*', params: {} })
  })

  it.each([
    ['/v3/*', '/v3', true],
    ['/v3/*', '/v3/', true],
    ['/v3/*', '/v3/a/b', true],
    ['/v3/*', '/v30', false],
    ['/*', '/', true],
    ['/', '/', true],
    ['/a', '/A/', true],
    ['/A', '/a', true],
    ['/sync', '/%C5%BFYNC', true],
    ['/sync', '/sy%CC%81nc/', false],
    ['/sync', '/sync%E2%80%8B', false],
    ['/sync', '/sync%20', false],
    ['/sync', '/sinc', false],
    ['/sync', '/sync.json', false],
    ['/caf%C3%A9', '/CAFE', false],
    ['/caf%C3%A9', '/caf%C3%89', true],
    ['/a/:b', '/a', false],
    ['/a/:b', '/a/b/c', false],
    ['/oidc/request', '/OIDC/Request/', true],
  ])('%s and %s: %s', (route, path, taken) => {
    expect(matching([route], 'GET', path) !== undefined).toBe(taken)
  })

  it('returns the methods that a path allows, and GET includes HEAD', () => {
    const routes = ['GET /a', 'POST,put /a', 'DELETE /b']
    expect(matching(routes, 'DELETE', '/a')).toEqual({ allow: ['GET', 'HEAD', 'POST', 'PUT'] })
    expect(matching(routes, 'HEAD', '/a')).toMatchObject({ text: 'GET /a' })
    expect(matching(routes, 'GET', '/c')).toBeUndefined()
  })

  it('matches routes with a host only at that host', () => {
    const routes = ['id.example.com/*', '/*']
    expect(matching(routes, 'GET', '/x', 'id.example.com')).toMatchObject({ text: routes[0] })
    expect(matching(routes, 'GET', '/x', 'api.example.com')).toMatchObject({ text: '/*' })
  })
})

describe('a guarded path', () => {
  const routes = [
    route('GET,PUT /oidc/*', 'none'),
    route('POST id.example/oidc/request', 'par'),
    route('/oidc/*', 'none'),
    route('GET /only', 'none'),
  ]
  const router = createRouter(routes)
  const found = (method: string, path: string, host = 'id.example') => router(method, host, segmentsOf(path))

  it('allows only POST, even if other routes match', () => {
    expect(found('POST', '/OIDC/Request/')).toMatchObject({ route: routes[1] })
    for (const method of ['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PROPFIND', ''])
      expect(found(method, '/oidc/request')).toEqual({ allow: ['POST'], nearest: routes[1] })
  })

  it('a guarded path is guarded only at its host, without further segments', () => {
    expect(found('GET', '/oidc/request', 'other.example')).toMatchObject({ route: routes[0] })
    expect(found('POST', '/oidc/request', 'other.example')).toMatchObject({ route: routes[2] })
    expect(found('GET', '/oidc/request/x')).toMatchObject({ route: routes[0] })
    expect(found('POST', '/oidc/requests')).toMatchObject({ route: routes[2] })
    expect(found('POST', '/oidc/request-x')).toMatchObject({ route: routes[2] })
    expect(found('POST', '/oidc/request.', 'other.example')).toMatchObject({ route: routes[2] })
  })

  it.each(['.', ',', '+', '.json', ',x', '+x', '%20', '%C2%A0', '%E2%80%8B', '%CC%81', './', './x', '%3Fx'])(
    'a guarded path with the suffix %s matches no route',
    (end) => {
      for (const method of ['GET', 'POST', 'PUT', 'PROPFIND'])
        expect(found(method, `/OIDC/request${end}`)).toBeUndefined()
    },
  )

  it('a guarded path may itself contain such characters, or end in a parameter', () => {
    const dotted = createRouter([
      route('POST /par.v1', 'par'),
      route('POST /x/:y', 'par'),
      route('POST /z/*', 'par'),
      route('/*', 'none'),
    ])
    const taken = (path: string) => (dotted('POST', 'h', segmentsOf(path)) as { route?: Route })?.route?.match
    expect(['/par.v1', '/par', '/par.v10', '/x/a.', '/z/a.'].map(taken)).toEqual([
      'POST /par.v1',
      '/*',
      '/*',
      'POST /x/:y',
      'POST /z/*',
    ])
    expect(taken('/par.v1.')).toBeUndefined()
    expect(taken('/z.')).toBeUndefined()
  })

  it('a guarded path does not change the methods of other paths', () => {
    expect(found('PATCH', '/only')).toEqual({ allow: ['GET', 'HEAD'], nearest: routes[3] })
    expect(found('PROPFIND', '/only')).toMatchObject({
      allow: expect.arrayContaining(['PATCH']),
      nearest: undefined,
    })
    expect(found('GET', '/nowhere')).toBeUndefined()
  })
})

describe('patterns', () => {
  it.each([
    ['', 'write "[METHOD'],
    ['GET', 'write "[METHOD'],
    ['GET,POST', 'write "[METHOD'],
    ['FETCH /a', '"FETCH" is not a method'],
    ['CONNECT /a', '"CONNECT" is not a method'],
    ['host:80/a', 'without port'],
    ['/a/*/b', 'must be the last segment'],
    ['/a*', 'must be the last segment'],
    ['/:a/:a', 'occurs twice'],
    ['/:', 'cannot match'],
    ['/:1', 'cannot match'],
    ['/a//b', 'cannot match'],
    ['/a/../b', 'cannot match'],
    ['/a;b', 'cannot match'],
    ['/a%3ab', 'cannot match'],
    ['/a%2Fb', 'cannot match'],
    ['/a%3Fb', 'cannot match'],
    ['/a%23b', 'cannot match'],
    ['/a%253Ab', 'cannot match'],
  ])('%j is refused: %s', (text, words) => {
    expect(parsePattern(text)).toContain(words)
  })
})

describe('hidden routes', () => {
  it.each([
    ['/*', '/a', true],
    ['/*', 'POST host/a', true],
    ['/:x', '/a', true],
    ['/a', '/:x', false],
    ['/a', '/A', true],
    ['/a', '/%C3%A1', false],
    ['/%C3%A1', '/%C3%81', true],
    ['GET /a', '/a', false],
    ['GET /a', 'HEAD /a', true],
    ['/a', 'PROPFIND /a', false],
    ['PROPFIND,GET /a', 'PROPFIND /a', true],
    ['DELETE,GET,OPTIONS,PATCH,POST,PUT /a', '/a', true],
    ['GET,POST /a', 'POST /a', true],
    ['GET /a', 'POST /a', false],
    ['GET /a', 'GET,POST /a', false],
    ['host/*', '/*', false],
    ['host/*', 'host/a', true],
    ['/a/*', '/a', true],
    ['/a', '/a/*', false],
    ['/a/b', '/a', false],
    ['/:x/*', '/*', false],
  ])('%s hides %s: %s', (earlier, later, hidden) => {
    expect(covers(pattern(earlier), pattern(later))).toBe(hidden)
  })

  it('no request matches a hidden route and not the one that hides it', () => {
    const segment = fc.constantFrom('a', 'b', ':x')
    const path = fc
      .tuple(fc.array(segment, { maxLength: 3 }), fc.boolean())
      .map(
        ([segments, rest]) =>
          `/${[...segments.map((s, i) => (s === ':x' ? `:x${i}` : s)), ...(rest ? ['*'] : [])].join('/')}`,
      )
    const paths = words(String.raw`
      / /a /b /c /a/a /a/b /b/c /c/c /a/b/c /c/c/c /c/c/c/c /a/a/a/a /b/b/b/b /a/b/a /b/a/b
    `)
    fc.assert(
      fc.property(path, path, (one, two) => {
        const hidden = covers(pattern(one), pattern(two))
        const escapes = paths.filter(
          (p) => matching([two], 'GET', p) !== undefined && matching([one], 'GET', p) === undefined,
        )
        if (hidden) expect(escapes).toEqual([])
      }),
    )
  })
})

describe('the index', () => {
  const segment = fc.constantFrom('a', 'A', 'b', 'c.php', 'caf%C3%A9', ':x', ':y')
  const texts = fc
    .tuple(
      fc.constantFrom('', 'GET ', 'POST,PUT ', 'PROPFIND '),
      fc.constantFrom('', '', 'h.example', 'I.example'),
      fc.uniqueArray(segment, { maxLength: 4, selector: (one) => (one.startsWith(':') ? one : {}) }),
      fc.boolean(),
    )
    .map(
      ([methods, host, segments, rest]) =>
        `${methods}${host}/${[...segments, ...(rest ? ['*'] : [])].join('/')}`,
    )
  /** The hosts of all routes that name none, as `listen.hosts` states them. */
  const listed = fc.constantFrom(undefined, ['h.example'], ['h.example', 'j.example'])

  it('finds the same as a scan of the routes in order, for each reading of a target', () => {
    const kind = fc.constantFrom('none', 'none', 'none', 'none', 'par', 'resource', 'team')
    const tables = fc.record({
      hosts: listed,
      written: fc.array(fc.tuple(texts, kind), { maxLength: 20 }),
      isServed: fc.boolean(),
    })
    const piece = fc.constantFrom('a', 'b', 'B', 'C.PHP', 'CAF%c3%89', '%61', '', 'd', 'b.', 'b%2Fa', 'b;x')
    const requests = fc.record({
      method: fc.constantFrom('GET', 'HEAD', 'POST', 'DELETE', 'PROPFIND', 'BREW'),
      host: fc.constantFrom('h.example', 'I.EXAMPLE', 'j.example', 'k.example:80'),
      pieces: fc.array(piece, { maxLength: 5 }),
      end: fc.constantFrom('', '/'),
    })
    fc.assert(
      fc.property(tables, fc.array(requests, { minLength: 1, maxLength: 8 }), (table, asked) => {
        const { hosts, written, isServed } = table
        const routes = written.map(([text, kind]) => ({
          ...route(text, kind === 'par' ? 'par' : 'none'),
          hosts: pattern(text).host === undefined ? hosts : undefined,
          team: kind === 'team' ? 't' : undefined,
          respond: kind === 'resource' ? ('resource' as const) : undefined,
        }))
        const owners: Owner[] = [{ name: 't', owned: { ...pattern('/b/*'), hosts }, isServed }]
        const [indexed, scanned] = [createRouter(routes, owners), scanningRouter(routes, owners)]
        for (const { method, host, pieces, end } of asked) {
          const target = parseTarget(`/${pieces.join('/')}${end}`, [host], {
            serves: () => true,
            servesOthers: true,
          })
          if (target instanceof Refusal) continue
          expect(matchReadings(indexed, method, target)).toEqual(matchReadings(scanned, method, target))
        }
      }),
      { numRuns: 2000 },
    )
  })

  it('compares a path as often among ten thousand routes as among ten', () => {
    function comparisonsOf(count: number, path: string): number {
      const written = Array.from({ length: count }, (_, i) => `GET /service-${i}/:id`)
      const index = createRouteIndex([...written, 'POST /*'].map(pattern))
      let comparisons = 0
      const segments = new Proxy(segmentsOf(path), {
        get(target, key, receiver) {
          comparisons++
          return Reflect.get(target, key, receiver) as unknown
        },
      })
      index.first(
        { host: 'h', segments, length: segments.length },
        ({ methods }) => methods?.has('GET') === true,
      )
      return comparisons
    }
    for (const path of ['/service-9/x', '/service-x/x', '/'])
      expect(comparisonsOf(10_000, path)).toBe(comparisonsOf(10, path))
  })
})

describe('what teams own', () => {
  const route = (text: string, more: Partial<Route> = {}): Route => ({
    ...pattern(text),
    match: text,
    authenticate: 'none',
    scope: [],
    maxBody: 0,
    ...more,
  })
  const owned = (text: string, isServed = true) => ({ name: text, owned: pattern(`${text}/*`), isServed })
  const routedTo = (routes: readonly Route[], owners: Parameters<typeof createRouter>[1], path: string) => {
    const found = createRouter(routes, owners)('GET', 'localhost', segmentsOf(path))
    return found && 'route' in found ? found.route.match : undefined
  }
  const routes = [
    route('/*'),
    route('/a/main'),
    route('POST /a/par', { authenticate: 'par' }),
    route('/a/:id', { team: '/a' }),
    route('/b/*', { team: '/b' }),
  ]

  it('is served only by its routes, in any spelling, and by guarded routes', () => {
    const owners = [owned('/a'), owned('/b')]
    const paths = ['/a/x', '/A/main', '/a/x/y', '/a', '/ab', '/b', '/b/c/d']
    expect(paths.map((path) => routedTo(routes, owners, path))).toEqual([
      ...['/a/:id', '/a/:id', undefined, undefined, '/*', '/b/*', '/b/*'],
    ])
    const found = createRouter(routes, owners)('POST', 'localhost', segmentsOf('/a/par'))
    expect(found).toMatchObject({ route: { match: 'POST /a/par' } })
  })

  it('is served by routes of the main file that are below it only while its file is left out', () => {
    const leftOut = [route('/a/*', { team: '/a', respond: 'unavailable' })]
    const all = [...routes.slice(0, 2), ...leftOut]
    expect(['/a/main', '/a/x', '/x'].map((path) => routedTo(all, [owned('/a', false)], path))).toEqual([
      ...['/a/main', '/a/*', '/*'],
    ])
  })

  it('is only on its host', () => {
    const owners = [{ name: 't', owned: { ...pattern('t.example.com/*') }, isServed: true }]
    const match = createRouter([route('/*'), route('t.example.com/x', { team: 't' })], owners)
    expect(match('GET', 't.example.com', ['y'])).toBeUndefined()
    expect(match('GET', 'localhost', ['y'])).toMatchObject({ route: { match: '/*' } })
  })
})
