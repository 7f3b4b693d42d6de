import type { z } from 'zod'
import { origin, pemFile, tlsName } from './addresses.ts'
import { HOP_BY_HOP, JUDGED, plainName } from '../../upstream/header-policy.ts'
import { duration, list, section, textThat, whole } from './values.ts'

const tls = section({
  ca: pemFile().optional().describe('The authorities that are trusted; those of Node.js, unless set.'),
  servername: tlsName()
    .optional()
    .describe('The name that the certificate of the backend must bear; the host’s, unless set.'),
  cert: pemFile().optional().describe('The certificate that the gateway shows.'),
  key: pemFile().optional().describe('The private key of that certificate.'),
}).describe('How https is spoken to it, with PEM files relative to this one.')

/** A request field of an upstream's own. */
function fieldName() {
  return textThat(
    (field) => /^[\w!#$%&'*+.^`|~-]+$/.test(field) && !isGateways(field),
    'the name of a header field such as X-My-User',
    (field) => (isGateways(field) ? 'is read by the gateway itself; take it out' : undefined),
  )
}

function isGateways(field: string): boolean {
  const name = plainName(field.toLowerCase())
  return JUDGED.has(name) || HOP_BY_HOP.has(name) || name.startsWith('content-')
}

/** A backend. That it has an address was checked before. */
export const upstream = section({
  url: origin().optional().describe('The backend’s address: scheme, host and port.'),
  urls: list(origin(), 1, 'a list of addresses such as http://10.0.0.1:4000')
    .optional()
    .describe('In place of url: several addresses, used in turn; one that fails is passed over for a while.'),
  timeout: duration('1ms', '1d')
    .prefault('30s')
    .describe('Longest wait for the head of an answer, and between the bytes of its body.'),
  connectTimeout: duration('1ms', '1h').prefault('2s').describe('Longest wait for a connection.'),
  maxConnections: whole(1, 100_000)
    .default(256)
    .describe('Most connections to it at a time, to all of its addresses together.'),
  tls: tls.optional(),
  identityHeaders: list(fieldName(), 0, 'a list of header fields')
    .default([])
    .describe(
      'Fields by which it is told who calls: taken from trusted proxies alone, beside those that are known.',
    ),
})
  .transform(({ url, urls = [], timeout, connectTimeout, ...rest }) => ({
    origins: url === undefined ? urls : [url],
    timeoutMs: timeout,
    connectTimeoutMs: connectTimeout,
    ...rest,
  }))
  .describe('A backend.')

/** A backend as the file says it, with files not yet read. */
export type UpstreamSettings = z.output<typeof upstream>
