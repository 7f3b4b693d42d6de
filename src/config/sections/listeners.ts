import { isLoopback } from '../../downstream/peers.ts'
import { FORWARD_AUTH_PROXIES } from '../../downstream/forward-auth.ts'
import { bindHost, cidr, pemFile, servedHost } from './addresses.ts'
import { bool, choice, crossField, duration, int, list, port, section, size, stringThat } from './values.ts'

const tls = section({
  cert: pemFile.describe('The gateway’s certificate, followed by its intermediate certificates.'),
  key: pemFile.describe('The private key of that certificate.'),
  clientCa: pemFile.optional().describe('CAs of the client certificates that callers need to connect.'),
  requestClientCert: bool.optional().describe('true requests client certificates without requiring them.'),
})
  .superRefine(
    crossField(function* ({ clientCa, requestClientCert }) {
      const message = 'contradicts "clientCa", which requests a certificate; remove one of them'
      if (clientCa !== undefined && requestClientCert === false)
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
    .describe('Hosts that routes without a host serve, and of DPoP proofs; others get 400. Default any.'),
  maxHeaderSize: size('1kB', '1MB').prefault('16kB').describe('Largest head of a request; beyond, 431.'),
  headersTimeout: duration('1s', '1h').prefault('15s').describe('For a request’s head to arrive; then 408.'),
  requestTimeout: duration('1s', '1d').prefault('60s').describe('For a whole request to arrive; then 408.'),
  keepAliveTimeout: duration('1ms', '1d').prefault('75s').describe('How long an idle connection is kept.'),
  maxConnections: int(1, 1_000_000).prefault(10_000).describe('Maximum connections; more are closed.'),
  maxConnectionsPerAddress: int(1, 1_000_000)
    .prefault(1000)
    .describe('Maximum connections from one address (IPv6: its /64); not for trustedProxies.'),
})
  .superRefine(
    crossField(function* ({ headersTimeout, requestTimeout }) {
      const message = `must be at most requestTimeout (${requestTimeout / 1000}s), which includes it`
      if (headersTimeout > requestTimeout) yield { path: ['headersTimeout'], message }
    }),
  )
  .transform(({ headersTimeout, requestTimeout, keepAliveTimeout, ...rest }) => ({
    ...rest,
    headersTimeoutMs: headersTimeout,
    requestTimeoutMs: requestTimeout,
    keepAliveTimeoutMs: keepAliveTimeout,
  }))
  .describe('The callers’ listener.')

const isToken = (token: string): boolean => /^[A-Za-z0-9._~+/-]{16,}=*$/.test(token)

const forwardAuthFields = {
  host: bindHost.default('127.0.0.1').describe('The address that the proxy asks.'),
  port: port.prefault(8090).describe('The port that the proxy asks; 0 takes a free one.'),
  from: choice(FORWARD_AUTH_PROXIES).describe('The proxy that asks, in its own fields.'),
}

export const forwardAuth = section(forwardAuthFields).describe(
  'A listener that answers a proxy whether a request may pass. It believes whoever reaches it.',
)

export const admin = section({
  host: bindHost.default('127.0.0.1').describe('The address of the admin listener.'),
  port: port.prefault(9090).describe('The port of the admin listener; 0 takes a free one.'),
  token: stringThat(isToken, 'a token of 16 characters or more, letters, digits and - . _ ~ + / =')
    .optional()
    .describe('Bearer token for the console’s data and for limits; required off loopback.'),
})
  .transform((settings) => ({ token: undefined, ...settings, onLoopback: isLoopback(settings.host) }))
  .describe('The operators’ listener: the console, health, metrics and limits. Keep callers away from it.')
