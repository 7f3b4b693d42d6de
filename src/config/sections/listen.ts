import { bindHost, cidr, pemFile, servedHost } from './addresses.ts'
import { checking, duration, flag, list, port, section, size, whole } from './values.ts'

const tls = section({
  cert: pemFile().describe('The certificate that callers are shown, and after it those that vouch for it.'),
  key: pemFile().describe('The private key of that certificate.'),
  clientCa: pemFile().optional().describe('The authorities of clients’ certificates, then required.'),
  requestClientCert: flag().optional().describe('true asks for certificates, for tokens bound to one.'),
})
  .superRefine(
    checking(function* ({ clientCa, requestClientCert }) {
      if (clientCa === undefined || requestClientCert !== false) return
      const message = 'contradicts "clientCa", for which every caller is asked; take one of the two out'
      yield { path: ['requestClientCert'], message }
    }),
  )
  .describe('HTTPS, with PEM files relative to this one; plain HTTP, unless set.')

/** Where callers are served. */
export const listen = section({
  host: bindHost().default('0.0.0.0').describe('The address that callers connect to.'),
  port: port().prefault(8080).describe('The port that callers connect to; 0 takes a free one.'),
  tls: tls.optional(),
  trustedProxies: list(cidr(), 0, 'a list of address ranges')
    .default([])
    .describe('The proxies whose X-Forwarded-* and Client-Cert are believed. Nobody, unless listed.'),
  hosts: list(servedHost(), 1, 'a list of host names')
    .optional()
    .describe('Hosts served, and taken in DPoP proofs, beside those of routes; any where none is listed.'),
  maxHeaderSize: size('1kB', '1MB').prefault('16kB').describe('Most bytes of a request’s head.'),
  headersTimeout: duration('1s', '1h').prefault('15s').describe('Longest time for a request’s head.'),
  requestTimeout: duration('1s', '1d').prefault('60s').describe('Longest time for a whole request.'),
  keepAliveTimeout: duration('1ms', '1d').prefault('75s').describe('How long an idle connection is kept.'),
  maxConnections: whole(1, 1_000_000).prefault(10_000).describe('Most connections at a time.'),
  maxConnectionsPerAddress: whole(1, 1_000_000)
    .prefault(1000)
    .describe('Most connections at a time from one address, IPv6 by its /64; trusted proxies may have more.'),
})
  .superRefine(
    checking(function* ({ headersTimeout, requestTimeout }) {
      if (headersTimeout <= requestTimeout) return
      const message = `must be at most requestTimeout (${requestTimeout / 1000}s), of which it is part`
      yield { path: ['headersTimeout'], message }
    }),
  )
  .transform(({ headersTimeout, requestTimeout, keepAliveTimeout, ...rest }) => ({
    ...rest,
    headersTimeoutMs: headersTimeout,
    requestTimeoutMs: requestTimeout,
    keepAliveTimeoutMs: keepAliveTimeout,
  }))
  .describe('Where callers are served.')
