import { shownUrl } from '../authenticate/token/fetch-json.ts'
import type { Client, Config, Par, Tokens } from '../config/schema.ts'
import { rows, several } from './table.ts'
import { duration, size } from './units.ts'

/** Whose tokens are taken, and what is enforced at the PAR endpoint: a row of three for each. */
export function describeIdentity({ tokens, par }: Config): readonly (readonly string[])[] {
  return [
    ...tokens.map((one) => ['tokens', one.issuer, describeTokens(one)]),
    ...(par ? [['par', par.issuer, describePar(par)]] : []),
  ]
}

function describeTokens({ audience, jwks, introspection }: Tokens): string {
  const signed = `for ${several(audience)}, keys ${jwks === undefined ? 'by discovery' : `from ${placeOf(jwks)}`}`
  if (introspection === undefined) return signed
  return `${signed}; opaque ones looked up at ${shownUrl(introspection.url)}, which count for ${duration(introspection.maxAgeMs)}`
}

function placeOf(jwks: NonNullable<Tokens['jwks']>): string {
  return 'url' in jwks ? shownUrl(jwks.url) : jwks.file
}

function describePar({ audiences, assertionAudience, unknownClients, maxBody }: Par): string {
  const strict = assertionAudience === 'strict' || audiences.length === 0
  const whose = strict ? 'assertions for the issuer alone' : `assertions for it or ${several(audiences)}`
  return `${whose}; unknown clients: ${unknownClients}; bodies up to ${size(maxBody)}`
}

/** The clients of which something is checked at the PAR endpoint. */
export function describeClients({ clients }: Config): string {
  return rows(
    ['CLIENT', 'NAME', 'SIGNS', 'AUTHENTICATES', 'KEYS'],
    clients
      .filter((one) => one.requestObjectSigningAlg ?? one.authentication ?? one.jwks)
      .map((one) => [
        one.caller,
        one.name ?? '-',
        one.requestObjectSigningAlg ?? '-',
        one.authentication ?? '-',
        keysOf(one),
      ]),
  )
}

function keysOf({ jwks }: Client): string {
  if (jwks === undefined) return '-'
  return 'url' in jwks ? shownUrl(jwks.url) : String(jwks.keys.length)
}

/** What callers must show over TLS beside their tokens. */
export function describeClientCertificates(tls: Config['listen']['tls']): readonly string[] {
  if (tls?.clientCa !== undefined) return ['takes only clients with a certificate of clientCa']
  return tls?.requestClientCert === true ? ['asks for client certificates'] : []
}
