import { expect, it } from 'vitest'
import { prettyLines } from '../../src/observe/pretty.ts'

const shownAs = (line: object): string =>
  prettyLines(`${JSON.stringify({ level: 'info', time: '2026-11-22T08:15:30.123Z', ...line })}\n`)

it.each([
  [{ msg: 'gateway stopped' }, 'INFO: gateway stopped'],
  [
    { level: 'warn', msg: 'Redis unavailable', server: 'redis', cause: undefined },
    'WARN: Redis unavailable server=redis',
  ],
  [
    {
      msg: 'request',
      method: 'POST',
      path: '/sync/a',
      status: 429,
      durationMs: 0.3,
      client: 'acme',
      decision: 'refused',
      limit: 'sync',
      remaining: 0,
      source: 'gateway',
    },
    'INFO: POST /sync/a 429 0.3 ms client acme refused by sync',
  ],
  [
    {
      msg: 'request',
      method: 'GET',
      host: 'api.example.com',
      path: '/x',
      status: 200,
      durationMs: 2,
      decidedAt: 1763632800000.123,
      client: 'acme',
      decision: 'admitted',
      limit: 'requests',
      remaining: 9,
      source: 'upstream',
      shadowOver: ['trial'],
    },
    'INFO: GET /x 200 2 ms client acme 9 left of requests shadowOver=["trial"]',
  ],
  [
    {
      msg: 'request',
      method: 'GET',
      path: '/x',
      status: 502,
      durationMs: 2,
      source: 'gateway',
      error: 'The upstream broke off.',
      cause: 'data: reset',
    },
    'INFO: GET /x 502 2 ms "The upstream broke off." cause=data: reset',
  ],
])('formats %j as one line', (line, shown) => {
  expect(shownAs(line)).toBe(`[08:15:30.123] ${shown}\n`)
})

it('escapes control characters in text that callers choose', () => {
  const line = {
    msg: 'request',
    method: 'GET',
    path: '/\u009b31m',
    status: 400,
    durationMs: 1,
    client: 'a\n\u001b[2Jsluice stopped',
    source: 'gateway',
    error: 'b\r',
  }
  expect(shownAs(line)).toContain(
    ': GET /\\u009b31m 400 1 ms client a\\u000a\\u001b[2Jsluice stopped "b\\u000d"\n',
  )
})

it('does not change text that is not JSON', () => {
  expect(prettyLines('{ a: 1 }\nnull\n')).toBe('{ a: 1 }\nnull\n')
})
