import { z } from 'zod'
import { HOP_BY_HOP, INSPECTED, plainName } from '../../upstream/header-policy.ts'
import type { Mistake } from '../yaml/problem.ts'
import { mustBe } from '../yaml/wording.ts'
import { origin, tlsName } from './addresses.ts'
import { certWithoutKey, tlsFiles } from './store.ts'
import { checkWhole, duration, int, list, name, section, textWhere } from './values.ts'

const tls = section({
  ...tlsFiles(),
  servername: tlsName().optional().describe('The name expected in its certificate; by default its host.'),
})
  .superRefine(checkWhole(certWithoutKey))
  .describe('TLS to an https backend, with PEM files relative to this file.')

/** A request field of an upstream's own. */
function fieldName() {
  return textWhere((field) => {
    const name = plainName(field.toLowerCase())
    if (INSPECTED.has(name) || HOP_BY_HOP.has(name) || name.startsWith('content-'))
      return 'is read by the gateway itself; take it out'
    return /^[\w!#$%&'*+.^`|~-]+$/.test(field)
  }, 'the name of a header field such as X-My-User')
}

const backend = section({
  url: origin().optional().describe('The backend’s address: scheme, host and port.'),
  urls: list(origin(), 1, 'a list of addresses such as http://10.0.0.1:4000')
    .optional()
    .describe('Instead of url: several addresses, used in turn; one that fails is skipped for a while.'),
  timeout: duration('1ms', '1d')
    .prefault('30s')
    .describe('Longest wait for the head of the response, and between bytes of its body; then 504.'),
  connectTimeout: duration('1ms', '1h').prefault('2s').describe('Longest wait for a new connection.'),
  maxConnections: int(1, 100_000).prefault(256).describe('Most connections, to all its addresses together.'),
  tls: tls.optional(),
  identityHeaders: list(fieldName(), 0, 'a list of header fields')
    .default([])
    .describe('Fields that identify the caller to this upstream, accepted from listen.trustedProxies only.'),
})

/** An upstream without an address or with two kinds of them, and addresses that do not go together. */
function* reachable({ url, urls = [], tls }: z.output<typeof backend>): Generator<Mistake> {
  const first = url ?? urls[0]
  if (first === undefined) {
    const message = 'is missing; write an address such as http://data.internal:4000, or "urls" for several'
    yield { path: ['url'], message }
  } else if (url !== undefined && urls.length > 0)
    yield { path: ['urls'], message: 'stands beside "url"; take one of the two out', key: true }
  if (tls !== undefined && first?.startsWith('http:') === true) {
    const message = 'has no meaning for http addresses; write https, or take it out'
    yield { path: ['tls'], message, key: true }
  }
  for (const [i, one] of urls.entries()) {
    if (urls.indexOf(one) < i) yield { path: ['urls', i], message: `stands twice; take one out` }
    else if (one.split(':')[0] !== urls[0]!.split(':')[0])
      yield { path: ['urls', i], message: 'differs from the first one in scheme; write all alike' }
  }
}

const upstream = backend
  .superRefine(checkWhole(reachable))
  .transform(({ url, urls = [], timeout, connectTimeout, ...rest }) => ({
    origins: url === undefined ? urls : [url],
    timeoutMs: timeout,
    connectTimeoutMs: connectTimeout,
    ...rest,
  }))
  .describe('A backend.')

/** The backends, in the order of the file. */
export const upstreams = z
  .record(name(), upstream, mustBe('a mapping of names to upstreams'))
  .transform((upstreams) => Object.entries(upstreams).map(([name, one]) => ({ name, ...one })))
  .describe('The backends, by name.')
