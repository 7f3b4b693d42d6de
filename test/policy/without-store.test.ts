import { expect, it } from 'vitest'
import { everyRouteNeedsStore } from '../../src/policy/without-store.ts'
import { completed, load } from '../config/load-text.ts'

const REDIS = 'redis: { url: "redis://127.0.0.1:1" }'
const DENY = `{ ${REDIS}, onOutage: deny }`

/** Returns whether a gateway with this store, limits and routes can decide no call without Redis. */
async function needs(store: string, limits: string, ...routes: string[]): Promise<boolean> {
  const matched = routes.map((route, i) => `  - { match: "/${i}/*", ${route} }`)
  const text = `store: ${store}\nlimits:\n${limits}\nroutes:\n${matched.join('\n')}\n`
  const { config } = await load(completed(text))
  return everyRouteNeedsStore(config.routes, config.store)
}
const PLAIN = '  a: { per: [client], limit: 9, window: 1m }\n  b: { per: [client], limit: 9, window: 1h }'
const limited = (...names: string[]) => `upstream: data, authenticate: bearer, limits: [${names.join()}]`
const OPEN = 'upstream: data, authenticate: none'

it.each([
  ['every route has a limit under deny', true, DENY, PLAIN, [limited('a'), limited('b')]],
  ['one route has no limit', false, DENY, PLAIN, [limited('a', 'b'), OPEN]],
  [
    'the others are answered by the gateway itself',
    ...[true, DENY, PLAIN],
    ['respond: health, authenticate: none', 'respond: limits, authenticate: bearer', limited('a', 'b')],
  ],
  ['the store counts by itself', false, `{ ${REDIS} }`, PLAIN, [limited('a', 'b')]],
  ['it counts in memory', false, 'memory', PLAIN, [limited('a', 'b')]],
  [
    'the limits of every route replace the mode of the store by deny',
    ...[true, `{ ${REDIS}, onOutage: allow }`],
    '  a: { per: [client], limit: 9, window: 1m }\n  b: { per: [client], limit: 9, window: 1h, onOutage: deny }',
    [limited('a', 'b'), limited('b')],
  ],
  [
    'the limit of one route replaces deny',
    ...[false, DENY],
    '  a: { per: [client], limit: 9, window: 1m }\n  b: { per: [client], limit: 9, window: 1h, onOutage: local }',
    [limited('a', 'b'), limited('b')],
  ],
  [
    'its only limit applies to some calls',
    ...[false, DENY],
    '  a: { per: [client], limit: 9, window: 1m, unless: { header: psu-ip-address, is: ip } }',
    [limited('a')],
  ],
  [
    'its only limit is skipped by calls without a user',
    ...[false, DENY],
    '  a: { per: [client, user], limit: 9, window: 1m, missing: skip }',
    [limited('a')],
  ],
  [
    'only a shadow has the mode deny',
    ...[false, DENY],
    '  a: { per: [client], limit: 9, window: 1m, onOutage: local }\n  b: { per: [client], limit: 9, window: 1h, shadow: true }',
    [limited('a', 'b')],
  ],
] as [string, boolean, string, string, string[]][])(
  'needs Redis for every call if %s: %s',
  async (_, expected, store, limits, routes) => {
    expect(await needs(store, limits, ...routes)).toBe(expected)
  },
)
