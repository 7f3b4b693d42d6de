import { bindHost, cidr, pemFile, servedHost } from './addresses.ts'
import { bool, crossField, duration, int, list, port, section, size } from './values.ts'

const tls = section({
  cert: pemFile.describe('The gateway’s certificate, followed by its intermediate certificates.'),
  key: pemFile.describe('The private key of that certificate.'),
  clientCa: pemFile.optional().describe('CAs of the client certificates that callers need to connect.'),
  requestClientCert: bool
    .optional()
    .describe('true requests client certificates without requiring one, for tokens bound to one.'),
})
  .superRefine(
    crossField(function* ({ clientCa, requestClientCert }) {
      if (clientCa === undefined || requestClientCert !== false) return
      const message = 'contradicts "clientCa", for which every caller is asked; take one of the two out'
      yield { path: ['requestClientCert'], message }
    }),
  )
  .describe('HTTPS, with PEM files relative to this one; plain HTTP, unless set.')

export const listen = section({
  host: bindHost.default('0.0.0.0').describe('The address that callers connect to.'),
  port: port.prefault(8080).describe('The port that callers connect to; 0 takes a free one.'),
  tls: tls.optional(),
  trustedProxies: list(cidr, 0, 'a list of address ranges')
    .default([])
    .describe('Address ranges of proxies whose X-Forwarded-* and Client-Cert are trusted; none by default.'),
  hosts: list(servedHost, 1, 'a list of host names')
    .optional()
    .describe('Hosts of routes that name none, and of DPoP proofs; others get 400. Any host by default.'),
  maxHeaderSize: size('1kB', '1MB').prefault('16kB').describe('Largest head of a request; beyond, 431.'),
  headersTimeout: duration('1s', '1h').prefault('15s').describe('For a request’s head to arrive; then 408.'),
  requestTimeout: duration('1s', '1d').prefault('60s').describe('For a whole request to arrive; then 408.'),
  keepAliveTimeout: duration('1ms', '1d').prefault('75s').describe('How long an idle connection is kept.'),
  maxConnections: int(1, 1_000_000).prefault(10_000).describe('Most connections at a time; more are closed.'),
  maxConnectionsPerAddress: int(1, 1_000_000)
    .prefault(1000)
    .describe('Most connections at a time from one address (IPv6: its /64); not for trustedProxies.'),
})
  .superRefine(
    crossField(function* ({ headersTimeout, requestTimeout }) {
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
