import { hash, timingSafeEqual } from 'node:crypto'
import { type IncomingMessage, STATUS_CODES } from 'node:http'
import { isIP } from 'node:net'
import { TLSSocket } from 'node:tls'
import { isLoopback } from '../runtime/address.ts'
import type { Operator, Right } from './rights.ts'

/** An entry of `admin.tokens`: an operator with a token, or with the subject of a client certificate. */
interface NamedOperator {
  readonly name: string
  readonly token?: string | undefined
  readonly subject?: string | undefined
  readonly may: Right
}

/** Access to limits and the console: as one of the operators or, if none is configured, from this machine. */
export interface AdminAccess {
  /** The token that has all rights. */
  readonly token: string | undefined
  readonly tokens: readonly NamedOperator[]
  readonly onLoopback: boolean
  /** Names by which operators reach the listener, in lower case, besides its addresses and `localhost`. */
  readonly hosts: readonly string[]
}

/** A response of the operators' listener; an object as its body is JSON. */
export interface AdminResponse {
  readonly status: number
  readonly body: string | object
  readonly headers?: Readonly<Record<string, string>>
}

/** Returns a problem response (RFC 9457). */
export function problem(status: number, detail: string, headers?: AdminResponse['headers']) {
  const body = { type: 'about:blank', title: STATUS_CODES[status], status, detail }
  return { status, body, headers: { 'Content-Type': 'application/problem+json', ...headers } }
}

/** Names of operators without a name of their own. `src/config/sections/admin.ts` reserves them. */
const ANY_WITH_TOKEN = 'admin.token'
const ANY_ON_LOOPBACK = 'loopback'

/** Failures of addresses that sent wrong tokens; each function returns the response that refuses the address. */
export interface WrongTokens {
  refusal(address: string): AdminResponse | undefined
  count(address: string): AdminResponse | undefined
}

/**
 * Fields of requests that a proxy has forwarded. Its callers are not programs of this machine, even
 * if the proxy is: it may be this gateway itself, by a team's upstream with the listener's address.
 */
const FORWARDED = ['x-forwarded-for', 'forwarded', 'via']

/**
 * Recognises the operator of a request for limits or the console's data, or returns the response
 * that refuses it. The Host of a page whose name is rebound to this address (DNS rebinding) is that
 * name, also if the page knows the token. Without any token, allows only programs of this machine
 * and the console.
 */
export function recognize(
  request: IncomingMessage,
  access: AdminAccess,
  wrongTokens: WrongTokens,
): Operator | AdminResponse {
  const { authorization, host = '' } = request.headers
  const { token, tokens, onLoopback, hosts } = access
  const name = host
    .toLowerCase()
    .replace(/:\d*$/, '')
    .replace(/^\[|\]$/g, '')
  if (token === undefined && tokens.length === 0) {
    if (!onLoopback)
      return problem(403, 'Limits and the console need admin.token, unless admin.host is 127.0.0.1.')
    if (!isLoopback(name))
      return problem(403, 'Without admin.token, use localhost, 127.0.0.1 or [::1] as the host.')
    if (FORWARDED.some((field) => request.headers[field] !== undefined))
      return problem(403, 'Without admin.token, send requests directly: a proxy has forwarded this one.')
    if (isOfOtherPage(request))
      return problem(403, 'Without admin.token, only the console may ask for limits from a browser.')
    return { name: ANY_ON_LOOPBACK, may: 'set' }
  }
  if (isIP(name) === 0 && name !== 'localhost' && !hosts.includes(name))
    return problem(403, 'Use an IP address or localhost, or add the host to admin.hosts.')
  if (authorization === undefined) return ofCertificate(request, access)
  // RFC 6750 sections 2.1 and 3.
  const [, sent] = /^bearer +(\S+) *$/i.exec(authorization) ?? []
  if (sent === undefined) return unauthorized(SEND_TOKEN)
  const address = request.socket.remoteAddress ?? ''
  const refused = wrongTokens.refusal(address)
  if (refused !== undefined) return refused
  const wrong = 'Wrong token; send admin.token, or the token of an entry of admin.tokens.'
  return ofToken(sent, access) ?? wrongTokens.count(address) ?? unauthorized(wrong, ', error="invalid_token"')
}

const SEND_TOKEN = 'Send admin.token, or your token of admin.tokens, as "Authorization: Bearer …".'

const unauthorized = (detail: string, error = ''): AdminResponse =>
  problem(401, detail, { 'WWW-Authenticate': `Bearer realm="sluice"${error}` })

/** Returns a 403 for an operator without the right (RFC 6750 section 3.1). */
export const forbidden = (detail: string): AdminResponse =>
  problem(403, detail, { 'WWW-Authenticate': 'Bearer realm="sluice", error="insufficient_scope"' })

/** Finds the operator of a token. Compares all tokens, so that the time does not depend on which one it is. */
function ofToken(sent: string, { token, tokens }: AdminAccess): Operator | undefined {
  const digest = digestOf(sent)
  let found: Operator | undefined
  const all = [{ name: ANY_WITH_TOKEN, token, may: 'set' as const }, ...tokens]
  for (const { name, token: known, may } of all)
    if (known !== undefined && timingSafeEqual(digest, digestOf(known))) found = { name, may }
  return found
}

/** Returns a digest of fixed length, for comparison in constant time. */
const digestOf = (text: string): Buffer => hash('sha256', text, 'buffer')

/**
 * Finds the operator of the TLS client certificate. A browser sends it with the requests of any
 * page, so only the console's page may ask.
 */
function ofCertificate(request: IncomingMessage, { tokens }: AdminAccess): Operator | AdminResponse {
  const { socket } = request
  const certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined
  if (!(socket instanceof TLSSocket) || certificate === undefined) return unauthorized(SEND_TOKEN)
  if (!socket.authorized)
    return unauthorized(`The client certificate is not accepted: ${String(socket.authorizationError)}.`)
  const subject = subjectOf(certificate)
  const found = tokens.find((known) => known.subject !== undefined && known.subject === subject)
  if (found === undefined)
    return unauthorized(`No entry of admin.tokens has the subject of the client certificate, "${subject}".`)
  if (isOfOtherPage(request))
    return problem(403, 'With a client certificate, only the console may ask from a browser.')
  return { name: found.name, may: found.may }
}

/** Returns the subject in the form of RFC 4514, the last name first; Node has it in lines, escaped like there. */
const subjectOf = ({ subject = '' }: { readonly subject?: string }): string =>
  subject.split('\n').toReversed().join(',')

/** True for a request of a page that this listener did not serve. */
function isOfOtherPage({ headers, socket }: IncomingMessage): boolean {
  const { host = '', origin } = headers
  const scheme = socket instanceof TLSSocket ? 'https' : 'http'
  return origin !== undefined && origin !== `${scheme}://${host.toLowerCase()}`
}
