import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import { paramPart } from '../../src/policy/key.ts'
import type { Limit } from '../../src/policy/limit.ts'
import { compileParameters } from '../../src/policy/parameter-kinds.ts'
import { matchReadings, refuseReadings } from '../../src/downstream/readings.ts'
import { parsePattern, type Pattern } from '../../src/downstream/pattern.ts'
import { createRouter, type Route, type Router } from '../../src/downstream/router.ts'
import { type Target, parseTarget } from '../../src/downstream/target.ts'
import { FRAMEWORKS } from '../edge/frameworks.ts'
import { PATIENCE_MS, runs } from '../helpers/runs.ts'
import { anyText } from '../helpers/any-text.ts'
import { words } from '../helpers/words.ts'

const HOST = 'api.example.com'
const read = (target: string): Target | Refusal =>
  parseTarget(target, [HOST], { serves: (host) => host === HOST, servesOthers: true })
const ANY_HOST = { serves: () => false, servesOthers: true }

const escaped = fc.nat(255).map((byte) => `%${byte.toString(16).padStart(2, '0')}`)
const character = anyText({ minLength: 1, maxLength: 1 }).map(encodeURIComponent)
/** Pieces that compose aliases of a path. */
const piece = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom('/', '/', '/', 'sync', 'v3', 'ab:cd', 'ab%3Acd', 'x') },
  fc.constantFrom(
    '.',
    '..',
    '%2e',
    '%2E',
    '%252e',
    '//',
    '\\',
    ...words('%5c %2f %2F %252f ; %3b ;x=y # ? %3F %23 /// //x'),
  ),
  fc.constantFrom(
    ...words('%00 %0a %0d %7f %c2%85 % %% %u0061 %25 %ff %c0%af %e2%80%a8 %ef%bb%bf'),
    ' ',
    '\t',
  ),
  fc.constantFrom(
    ...words('%73 %53 SYNC Sync %EF%BD%93 %C5%BF %E2%84%AA %C3%9F %CC%81 %CD%85 %20 %C2%A0 + * : @ & ='),
  ),
  fc.constantFrom(
    '.json',
    '.XML',
    '%2ehtml',
    'index.php',
    '.PHP',
    '/index.php/',
    '/a.cgi/',
    '?/',
    '%3F/',
    '(S(x))',
    '(a(',
  ),
  fc.constantFrom('http://', 'http:', `http://${HOST}`, `//${HOST}`, HOST, 'user@', ':80', '[::1]'),
  escaped,
  character,
  fc.string({ maxLength: 3 }),
)
const grown = fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(''))
const shaped = fc
  .tuple(
    fc.constantFrom(
      '',
      '/v3',
      '/%76',
      '/index.php',
      '/a.cgi',
      '/a.wsgi',
      '/(S(x))',
      '/?',
      '/app?',
      '/app%3F',
    ),
    fc.constantFrom('/sync', '/SYNC', '/%73ync', '/sync%2e'),
    grown,
    fc.constantFrom('', '/', '?x', '/?/sync/y', '.json', '.xml/', '.csv?x'),
  )
  .map(([version, sync, id, end]) => `${version}${sync}/${id}${end}`)
const target = fc.oneof(
  grown,
  grown.map((text) => `/${text}`),
  shaped,
  anyText(),
)

function route(match: string, counted: readonly string[], more: Partial<Route> = {}): Route {
  const pattern = parsePattern(match) as Pattern
  return { ...pattern, match, authenticate: 'bearer', scope: [], maxBody: 1, counted, ...more }
}
const SYNCS = [
  route('POST /sync/:connection', ['connection']),
  route('POST /:version/sync/:connection', ['connection']),
  route('/*', []),
]
const PAR = route('POST /oidc/request', [], { authenticate: 'par' })
const toSyncs = createRouter(SYNCS)
const toPar = createRouter([PAR, route('/*', [])])
const PLAIN = compileParameters(
  { segments: [{ param: 'connection' }], limits: [{ per: ['connection'] } as unknown as Limit] },
  {},
)

/** Returns the match of a POST, as the gateway finds it; `refused` if its readings disagree, or if it has no route. */
function matchOf(router: Router<Route>, found: Target) {
  if (found.isAmbiguous) {
    const readings = matchReadings(router, 'POST', found)
    if (readings instanceof Refusal || refuseReadings(readings) !== undefined) return 'refused'
  }
  const match = router('POST', HOST, found.segments)
  return match !== undefined && 'route' in match ? match : 'refused'
}

/** Returns the counter that a POST is charged to, or `refused`; undefined if it is not a sync. */
function counterOf(found: Target): string | undefined {
  const match = matchOf(toSyncs, found)
  if (match === 'refused') return 'refused'
  const { connection } = match.params
  if (connection === undefined) return undefined
  return PLAIN(match) === undefined ? paramPart(connection) : 'refused'
}

describe('any target', () => {
  it(
    'any target is a 400, or has one canonical spelling without anything ambiguous',
    () => {
      let taken = 0
      fc.assert(
        fc.property(target, (text) => {
          const found = read(text)
          if (found instanceof Refusal) {
            expect(found.status).toBe(400)
            return
          }
          taken++
          const { path, segments, query, host } = found
          expect(host).toBe(HOST)
          if (text.startsWith('/')) expect(found.received).toBe(text)
          expect(read(path + query)).toEqual({ ...found, received: path + query })
          expect(path).toMatch(/^\/(?:[A-Za-z0-9._~!$&'()*+,=:@;/-]|%[0-9A-F]{2})*$/)
          expect(path.replace(/(?<=.)\/$/, '')).toBe(`/${segments.join('/')}`)
          expect(text.endsWith(query)).toBe(true)
          for (const segment of segments) {
            const plain = decodeURIComponent(segment)
            expect(plain).not.toMatch(/^\.{1,2}$/)
            expect(plain).not.toMatch(/\p{Cc}/u)
            if (!found.isAmbiguous) expect(plain).not.toMatch(/^$|[/\\%;?#]/)
          }
          // It can be a complete target of a request line.
          expect(found.received).toMatch(/^\/[!-~\u0080-\u00ff]*$/)
          expect(found.received).not.toContain('#')
        }),
        runs(2500),
      )
      expect(taken).toBeGreaterThan(10)
    },
    PATIENCE_MS,
  )

  it(
    'any target that a framework of the upstream routes as a sync is charged as a sync of the same connection',
    () => {
      let syncs = 0
      fc.assert(
        fc.property(fc.oneof(shaped, target), (text) => {
          const found = read(text)
          if (found instanceof Refusal) return
          const received = { method: 'POST', target: found.received, field: () => undefined }
          let counter: string | undefined
          let isCounted = false
          for (const [name, framework] of Object.entries(FRAMEWORKS)) {
            const id = framework(received)
            if (id === undefined) continue
            if (!isCounted) counter = counterOf(found)
            isCounted = true
            if (counter === 'refused') return
            syncs++
            expect(counter, `${name} runs a sync of ${id}`).toBe(paramPart(encodeURIComponent(id)))
          }
        }),
        runs(100_000),
      )
      expect(syncs).toBeGreaterThan(10)
    },
    2 * PATIENCE_MS,
  )

  it(
    'any target that a framework of the upstream routes to the PAR endpoint is guarded',
    () => {
      const pieces = fc.array(
        fc.oneof(
          fc.constantFrom(...words('/ oidc request OIDC %6fidc reques%74 Request /oidc/request x')),
          piece,
        ),
        { maxLength: 6 },
      )
      let pushes = 0
      fc.assert(
        fc.property(pieces, fc.constantFrom('', '/oidc/request', '/oidc', '/'), (parts, start) => {
          const found = read(start + parts.join(''))
          if (found instanceof Refusal) return
          const received = { method: 'POST', target: found.received, field: () => undefined }
          for (const [name, framework] of Object.entries(FRAMEWORKS)) {
            // Suffixes of a literal segment are the operator's responsibility.
            if (name === 'Rails') continue
            if (framework(received, /^(\/oidc\/request)\/?$/) === undefined) continue
            pushes++
            const match = matchOf(toPar, found)
            if (match === 'refused') continue
            expect(match, `${name} takes ${found.path}`).toMatchObject({ route: PAR })
          }
        }),
        runs(2000),
      )
      expect(pushes).toBeGreaterThan(10)
    },
    PATIENCE_MS,
  )

  it(
    'any target with any Host is refused, or has one host name and port',
    () => {
      const host = fc.oneof(
        anyText(),
        fc
          .array(
            fc.constantFrom(
              'api',
              '.',
              'example.com',
              ':',
              '80',
              '@',
              '/',
              '\\',
              '[::1]',
              '[',
              ']',
              ',',
              ' ',
              '%',
              '#',
              '?',
              '_',
              '-',
            ),
          )
          .map((parts) => parts.join('')),
      )
      fc.assert(
        fc.property(host, (value) => {
          const found = parseTarget('/', [value], ANY_HOST)
          if (found instanceof Refusal) return
          expect(found.host).toMatch(/^(?:\[[0-9a-f:.]+\]|[a-z0-9_~-]+(?:\.[a-z0-9_~-]+)*)$/)
          expect(parseTarget('/', [found.host], ANY_HOST)).toMatchObject({ host: found.host })
        }),
        runs(2000),
      )
    },
    PATIENCE_MS,
  )
})
