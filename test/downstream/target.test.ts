import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import { loggablePath, loggableTarget, parseHost, parseTarget } from '../../src/downstream/target.ts'
import { anyText } from '../helpers/any-text.ts'
import { words } from '../helpers/words.ts'

const served = { serves: (host: string): boolean => host === 'api.example.com', servesOthers: true }
const read = (target: string, ...hosts: string[]) =>
  parseTarget(target, hosts.length > 0 ? hosts : ['api.example.com'], served)
const pathOf = (target: string): string => {
  const found = read(target)
  if (found instanceof Refusal) throw found
  return found.path
}

describe('one canonical path', () => {
  it.each([
    ['/', '/'],
    ['/transactions', '/transactions'],
    ['/sync/a%3Ab', '/sync/a:b'],
    ['/sync/a%3ab', '/sync/a:b'],
    ['/sync/a:b', '/sync/a:b'],
    ['/sync/%61', '/sync/a'],
    ['/%73ync/x', '/sync/x'],
    ['/sync/%c3%a9', '/sync/%C3%A9'],
    ['/sync/a%20b', '/sync/a%20b'],
    ['/sync/%F0%9F%92%B6', '/sync/%F0%9F%92%B6'],
    ['/Sync/a:b/', '/Sync/a:b/'],
    ['/a/...', '/a/...'],
    ['/a/.well-known/x', '/a/.well-known/x'],
    ['/a/%2Ewell-known', '/a/.well-known'],
    ['/a%3Fb', '/a%3Fb'],
    ['/http:/x', '/http:/x'],
    ['/a.php', '/a.php'],
    ['/a.php/', '/a.php/'],
    ['/a.phpx/b', '/a.phpx/b'],
    ['/php/b', '/php/b'],
    ['/a/?/b', '/a/'],
    ['/?b=/c', '/'],
    ['/a(b)/c', '/a(b)/c'],
    ['/sync%2fx', '/sync%2Fx'],
    ['/a%5cb', '/a%5Cb'],
    ['/a\\b', '/a%5Cb'],
    ['/100%25', '/100%25'],
    ['/a%253a', '/a%253a'],
    ['/a;b=%3B', '/a;b=%3B'],
    ['//a//b/', '//a//b/'],
    ['/a"<>[]^`{|}b', '/a%22%3C%3E%5B%5D%5E%60%7B%7C%7Db'],
    ['/((x))', '/((x))'],
    [`/${'%C3%A9'.repeat(170)}`, `/${'%C3%A9'.repeat(170)}`],
    [`/a/${'x'.repeat(5000)}`, `/a/${'x'.repeat(5000)}`],
    [`/a%20b/${'x'.repeat(5000)}`, `/a%20b/${'x'.repeat(5000)}`],
  ])('%s becomes %s', (target, path) => {
    expect(pathOf(target)).toBe(path)
  })

  it('keeps the query byte for byte', () => {
    expect(read('/a%3Ab?x=%3a&y=//..&z=a;b\\&%zz?')).toMatchObject({
      path: '/a:b',
      query: '?x=%3a&y=//..&z=a;b\\&%zz?',
    })
  })

  it('stays the same if parsed again', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom(...'aA0-._~!:@/%2e2f3b5c?é;\\# '), maxLength: 24 }),
        (text) => {
          const once = read(`/${text}`)
          if (once instanceof Refusal) return
          expect(once.received).toBe(`/${text}`)
          const received = once.path + once.query
          expect(read(received)).toEqual({ ...once, received })
        },
      ),
      { numRuns: 3000 },
    )
  })
})

describe('refuses targets that no server may get', () => {
  it.each([
    [
      'dot segments',
      ['/.', '/..', '/a/./b', '/a/../b', '/a/..', '/%2e', '/a/%2E%2e/b', '/a/.%2e', '/./', '/a/../'],
    ],
    ['control characters', ['/a%00', '/a%0a', '/a%0D', '/a%7f', '/a%C2%85', '/a%1F', '/a%09']],
    ['broken percent-encodings', ['/%', '/%4', '/%zz', '/a%3', '/%u0041', '/a%g1']],
    ['broken UTF-8', ['/%ff', '/%c3', '/%c3%28', '/%ed%a0%80', '/%f5%80%80%80']],
    ['overlong UTF-8', ['/%c0%af', '/%c1%81', '/%e0%80%af', '/%f0%80%80%af', '/%c0%ae%c0%ae/x']],
    ['fragments', ['/a#b', '/a?b#c', '/sync/x#']],
    ['characters that are not allowed raw in a path', ['/a b', '/é', '/\u0000', '/\u007f']],
    [
      'targets that are not a path',
      ['', '*', 'a', '?', '?x', 'api.example.com:80', '@/', 'ftp://api.example.com/', 'http:/x'],
    ],
    [
      'foreign absolute forms',
      [
        'http://evil.example/x',
        'http://api.example.com@evil/',
        'http://u:p@api.example.com/x',
        'http://[::1/x',
        'http:///x',
        'http://',
        'http://api.example.com:1/x',
        'http://a:99999/',
      ],
    ],
    ['absolute forms of such paths', ['http://api.example.com/../x', 'http://api.example.com\\x']],
  ])('%s', (_, targets) => {
    for (const target of targets) {
      const answer = read(target)
      expect(answer, target).toBeInstanceOf(Refusal)
      expect((answer as Refusal).status).toBe(400)
    }
  })

  it('no text makes it throw', () => {
    fc.assert(fc.property(anyText(), anyText(), (a, b) => void parseTarget(a, [b], served)))
  })
})

it.each([
  ['/a/b', false],
  ['/a%20b', false],
  ['/a%3Fb', true],
  ['/a%23b', true],
  ['/100%', false],
  ['/a.php', false],
  ['/php/b', false],
  ['/a?/b', true],
  ['/a.php/', false],
  ['/a.php/b', true],
  ['/a%2ephp/b', true],
  ['/(s(x))', true],
  ['/a%2Fb', true],
  ['/a%5Cb', true],
  ['/a%25', true],
  ['/a;b', true],
  ['/a%3Bb', true],
  ['//a', true],
  ['/a//', true],
])('%s may be read in several ways: %s', (target, isAmbiguous) => {
  const found = read(target)
  expect(found instanceof Refusal ? false : found.isAmbiguous).toBe(isAmbiguous)
})

describe('the host', () => {
  it('the host is parsed without port, case and root dot', () => {
    expect(read('/', 'API.example.com.:8080')).toMatchObject({ host: 'api.example.com' })
    expect(read('/', '[::1]:80')).toMatchObject({ host: '[::1]' })
  })

  it('the host of an absolute form must be served, and equal the Host field', () => {
    expect(read('http://API.example.com/a?b')).toMatchObject({
      path: '/a',
      query: '?b',
      host: 'api.example.com',
    })
    expect(read('HTTPS://api.example.com')).toMatchObject({ path: '/' })
    expect(read('http://api.example.com?b')).toMatchObject({ path: '/', query: '?b' })
    expect(read('http://api.example.com/', 'other.example')).toBeInstanceOf(Refusal)
  })

  it.each([[[]], [['a', 'a']], [['a', 'b']]])('the host must be sent exactly once: %j', (hosts) => {
    expect(parseTarget('/', hosts, served)).toBeInstanceOf(Refusal)
  })

  it.each(['', 'a b', ...words('a/b a@b a:b a:1:2 a,b [::1 a# a?x é %61 a:123456 ..')])(
    'the host is not %j',
    (host) => {
      expect(parseHost(host)).toBeUndefined()
    },
  )
})

it.each([
  ['/v3/tx?access_token=S', '/v3/tx'],
  ['/v3/tx#access_token=S', '/v3/tx…'],
  ['/v3/tx;access_token=S', '/v3/tx…'],
  ['/v3/tx%C0%BFaccess_token=S', '/v3/tx…'],
  ['/v3/tx%u003Faccess_token=S', '/v3/tx…'],
  ['http://user:S@api.example.com/v3/tx', '/v3/tx'],
  ['http://api.example.com?S', ''],
  ['user:S@api.example.com:443', ''],
  ['S@x', ''],
  ['//S@x/', '…'],
  [String.raw`/\u:S@h/x`, '/…'],
  ['/http://u:S@h/x', '/http:…'],
  ['*', '*'],
  ['/a:b/c', '/a:b/c'],
])('logs the refused target %s as %s', (target, shown) => {
  expect(loggableTarget(target)).toBe(shown)
})

it.each([
  ['/v3/tx%3Faccess_token=S', '/v3/tx…'],
  ['/v3/tx%3baccess_token=S', '/v3/tx…'],
  ['/v3/tx%23access_token=S', '/v3/tx…'],
  ['/v3/tx%25253faccess_token=S', '/v3/tx…'],
  ['*', '*'],
  ['/a:b/%2F', '/a:b/%2F'],
])('truncates the path %s before a possible query', (path, shown) => {
  expect(loggablePath(path)).toBe(shown)
})

it('logs which host is not served', () => {
  expect(parseTarget('/x', ['localhost:8080'], { ...served, servesOthers: false })).toMatchObject({
    ...{ status: 400, cause: 'the host localhost is not in listen.hosts, and no route names it' },
  })
})
