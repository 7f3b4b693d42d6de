import { describe, expect, it } from 'vitest'
import { matchReadings, readingsOf, refuseReadings } from '../../src/downstream/readings.ts'
import { type Pattern, parsePattern } from '../../src/downstream/pattern.ts'
import { createRouter, type Route } from '../../src/downstream/router.ts'
import { parseTarget, type Target } from '../../src/downstream/target.ts'
import { Refusal } from '../../src/errors.ts'

const HOST = 'api.example.com'
const targetOf = (text: string): Target =>
  parseTarget(text, [HOST], { serves: () => true, servesOthers: true }) as Target

function route(match: string, counted: readonly string[] = [], more: Partial<Route> = {}): Route {
  const pattern = parsePattern(match) as Pattern
  return { ...pattern, match, authenticate: 'bearer', scope: [], maxBody: 1, counted, ...more }
}

/** Returns the route that serves a target, or the refusal of its readings. */
function served(routes: readonly Route[], text: string, method = 'GET'): string | undefined {
  const router = createRouter(routes)
  const readings = matchReadings(router, method, targetOf(text))
  const refusal = readings instanceof Refusal ? readings : refuseReadings(readings)
  if (refusal !== undefined) return refusal.message
  const found = router(method, HOST, targetOf(text).segments)
  return found && 'route' in found ? found.route.match : undefined
}

const readingsIn = (text: string) => {
  const readings = readingsOf(targetOf(text), new Set())
  return readings instanceof Refusal ? readings.status : readings
}

describe('the readings of a path', () => {
  it.each([
    ['/a%2Fb', ['/a%2Fb', '/a/b']],
    ['/a%252Fb', ['/a%252Fb', '/a%2Fb', '/a/b']],
    ['/a\\b', ['/a%5Cb', '/a/b']],
    ['/a%2561', ['/a%2561', '/aa']],
    ['/100%25', ['/100%25']],
    ['/a;b/c', ['/a;b/c', '/a/c', '/a']],
    ['/a%3Bb/c', ['/a%3Bb/c', '/a/c']],
    ['//a//b', ['//a//b', '//b', '/a/b', '/a//b', '/', '/b']],
    ['/x/index.php/a/b', ['/x/index.php/a/b', '/a/b', '/x/a/b', '/x/index.php']],
    ['/\\host/a', ['/%5Chost/a', '//host/a', '/a', '/host/a']],
    ['///host/a', ['///host/a', '/a', '/host/a']],
    ['//host\\a', ['//host%5Ca', '//host/a', '/', '/host%5Ca', '/a', '/host/a']],
    ['/a%3Fb/c', ['/a%3Fb/c', '/a']],
    ['/a%3F/b', ['/a%3F/b', '/a', '/b', '/a/b']],
    ['/a%3f%2Fb&c', ['/a%3F%2Fb&c', '/a%3F/b&c', '/a', '/b&c', '/a/b&c', '/b', '/a/b']],
    ['/x/a.php%3F/b%3F/c', ['/x/a.php%3F/b%3F/c', '/x/a.php', '/b', '/x/b']],
    ['/x/a.dll/b', ['/x/a.dll/b', '/b', '/x/b', '/x/a.dll']],
    ['/a%23b/c', ['/a%23b/c', '/a']],
    ['/a%253Fb', ['/a%253Fb', '/a%3Fb', '/a']],
    ['/a(S(x))b/(A(x)F(y))/c', ['/a(S(x))b/(A(x)F(y))/c', '/ab//c', '/ab/c']],
    ['/?/a/b&c', ['/', '/a/b&c', '/a/b']],
    ['/x/a.php?/b', ['/x/a.php', '/b', '/x/b']],
    ['/x/?/b', ['/x/', '/b', '/x/b']],
    ['/x?/b', ['/x', '/b', '/x/b']],
    ['/?/b/', ['/', '/b/']],
    ['/x?b=/c', ['/x']],
  ])('%s may be %j', (text, readings) => {
    expect(readingsIn(text)).toEqual(readings)
  })

  it.each([
    '/a%2F..%2Fb',
    '/a/%252e%252e/b',
    '/a/..;x/b',
    '/a/..%5Cb',
    '/a\\..\\b',
    '/a/.%253Bx',
    '/a%2500',
    '/a%250d',
    '/a%25c0%25af',
    '/?/../a',
    '/x?/../b',
    '/x%3F/..;/b',
    '/x?/%00',
    '/?/a%00',
    `/%${'25'.repeat(50)}2F`,
    `/${'a.php/'.repeat(50)}`,
    `/a%2F${'x'.repeat(2100)}`,
  ])(
    '%s is refused on any route: a dot segment, a control character, too many readings or too long',
    (text) => {
      expect(readingsIn(text)).toBe(400)
    },
  )
})

describe('a path with several readings', () => {
  it.each([
    '/api/v4/projects/group%2Fproject',
    '/files/what%3F.txt',
    '/files/c%23.txt',
    '/@scope%2fname',
    '/api/queues/%2F/orders',
    '/remote.php/dav/files/ann',
    '/index.php/rest/V1/products',
    '/2.3/questions/1;2;3',
    '//v3/accounts',
    '/bucket/a//b.txt',
    '/a\\b',
    '/model/a%253Ab/invoke',
    '/(S(x))/a',
    '/?/v3/accounts',
  ])('%s is served if all routes are one', (text) => {
    expect(served([route('/*')], text)).toBe('/*')
  })

  const accounts = [route('GET /v3/accounts/:id', ['id']), route('GET /v3/open/:id'), route('/*')]

  it.each([
    '/v3%2Faccounts/1',
    '/v3/accounts%2F1',
    '//v3/accounts/1',
    '/v3//accounts/1',
    '//host/v3/accounts/1',
    '/v3/accounts;a=b/1',
    '/v3/accounts%3Ba/1',
    '/v3/accounts/1;a/b',
    '/v3\\accounts/1',
    '/v3%255Caccounts/1',
    '/index.php/v3/accounts/1',
    ...['dll', 'exe', 'wsgi', 'rb', 'shtml', 'axd', 'cfc', 'cfml', 'cgi', 'fcgi', 'pl'].map(
      (ending) => `/x.${ending}/v3/accounts/1`,
    ),
    '/app?/v3/accounts/1',
    '/v3?/accounts/1',
    '/app%3F/v3/accounts/1',
    '/index.php%3F/v3/accounts/1',
    '/v3%3F/accounts/1',
    '///host/v3/accounts/1',
    '//host\\v3/accounts/1',
    '/\\/host/v3/accounts/1',
    '/v3/accounts/1%3Fa/b',
    '/v3/accounts/1%23a/b',
    '/v3/index.php?/accounts/1',
    '/v3/?/accounts/1',
    '/(S(x))/v3/accounts/1',
    '/?/v3/accounts/1',
    '/v3/accounts/1%252Fx',
  ])('%s is refused if a reading is of another route', (text) => {
    expect(served(accounts, text)).toContain('Servers could read the path as')
  })

  it.each(['/v3/accounts/1;a', '/v3/accounts/1%3Ba', '/v3/accounts/a%2561', '/v3/accounts/(S(x))1'])(
    '%s is refused if a reading has another counted id',
    (text) => {
      expect(served(accounts, text)).toContain('Servers could read the path as')
    },
  )

  it.each(['/x.do/v3/accounts/1', '/x.action/v3/accounts/1', '/x.jsf/v3/accounts/1', '/x.js/v3/accounts/1'])(
    '%s has one reading: no server takes the rest as an argument',
    (text) => {
      expect(served(accounts, text)).toBe('/*')
      expect(targetOf(text).isAmbiguous).toBe(false)
    },
  )

  it('passes if its readings differ in what nothing counts', () => {
    expect(served(accounts, '/v3/open/1;a')).toBe('GET /v3/open/:id')
    expect(served(accounts, '/v3/open/a%2561')).toBe('GET /v3/open/:id')
  })

  it('names the readings in the refusal, without what could be a secret', () => {
    expect(served(accounts, '/v3%2Faccounts/1')).toBe(
      'Servers could read the path as "/v3%2Faccounts/1" (the route "/*") or as "/v3/accounts/1" ' +
        '(the route "GET /v3/accounts/:id"); send one with a single reading.',
    )
    expect(served(accounts, '/v3/accounts;token=S/1')).not.toContain('S/1')
    const long = served(accounts, `/v3%2Faccounts/${'x'.repeat(5000)}`)!
    expect(long.length).toBeLessThan(500)
  })

  it('is refused if only one reading has a route, and has none if no reading has', () => {
    expect(served([route('/a/b')], '/a%2Fb')).toContain('(no route)')
    expect(served([route('/a/b')], '/a//b')).toContain('(no route)')
    expect(served([route('POST /a/b'), route('GET /a%20b')], '/a;/b')).toContain('does not allow')
    expect(served([route('/x')], '/a%2Fb')).toBeUndefined()
  })

  it.each([
    '/oidc/request;a',
    '/oidc//request',
    '/oidc/x.php/request',
    '/oidc%2Frequest',
    '/oidc;x/request',
    '///x/oidc/request',
  ])('is refused if a reading is guarded: %s', (text) => {
    const par = route('POST /oidc/request', [], { authenticate: 'par' })
    expect(served([par, route('/*')], text, 'POST')).not.toBe('/*')
    expect(served([par, route('/x/*')], text, 'POST')).not.toBe('POST /oidc/request')
  })

  it('refuses a guarded route even if every reading leads to it', () => {
    const any = route('POST /par/*', [], { authenticate: 'par' })
    expect(served([any], '/par/a%2Fb', 'POST')).toContain('Servers could read')
  })

  it('leaves a script that the route names as it is', () => {
    const routes = [route('/remote.php/*'), route('/dav/*'), route('/*')]
    expect(served(routes, '/remote.php/dav/x')).toBe('/remote.php/*')
    expect(served(routes, '/Remote.PHP/dav/x')).toBe('/remote.php/*')
    expect(served(routes, '/other.php/dav/x')).toContain('Servers could read')
    expect(served(routes, '/remote.php/other.php/x')).toContain('Servers could read')
  })
})
