import { expect, it } from 'vitest'
import { prettyLine } from '../../src/observe/pretty.ts'

it.each([
  [{ level: 'info', time: 'x', msg: 'sluice drains' }, 'sluice drains'],
  [
    { level: 'warn', time: 'x', msg: 'Redis unavailable', server: 'redis', cause: undefined },
    'Redis unavailable server=redis',
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
    'POST /sync/a 429 0.3 ms client acme refused by sync',
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
    'GET /x 200 2 ms client acme 9 left of requests shadowOver=["trial"]',
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
    'GET /x 502 2 ms "The upstream broke off." cause=data: reset',
  ],
])('%j is shown on one line', (line, shown) => {
  expect(prettyLine(line)).toBe(shown)
})

it('lets no word that callers choose begin a line or move a cursor', () => {
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
  expect(prettyLine(line)).toBe('GET /\\u009b31m 400 1 ms client a\\u000a\\u001b[2Jsluice stopped "b\\u000d"')
})
