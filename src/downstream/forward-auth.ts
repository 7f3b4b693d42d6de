import type { IncomingMessage } from 'node:http'
import { parseObject } from '../runtime/json.ts'
import type { Reply } from './reply.ts'

const COMMON = { method: 'x-forwarded-method', host: 'x-forwarded-host', target: 'x-forwarded-uri' }
/**
 * The fields in which a proxy sends the method, the host and the target of a request; undefined if
 * its own request has them.
 */
const FIELDS = {
  traefik: COMMON,
  caddy: COMMON,
  nginx: { method: 'x-original-method', host: 'host', target: 'x-original-uri' },
  envoy: undefined,
  haproxy: COMMON,
}
/**
 * A method (RFC 9110 section 9.1), of at most 32 characters: a proxy may report what it received over
 * HTTP/2 unchecked, and the method is logged.
 */
const METHOD = /^[!#$%&'*+.^_`|~\w-]{1,32}$/
const CHALLENGE = 'WWW-Authenticate'
const FORWARDED_FOR = 'x-forwarded-for'
/**
 * Maximum length of a body in a field, in bytes: nginx reads the whole head of a response into 16
 * kB, and fails beyond it.
 */
const MAX_BODY_FIELD = 12 * 1024

export type ForwardAuthProxy = keyof typeof FIELDS
export const FORWARD_AUTH_PROXIES = Object.keys(FIELDS) as [ForwardAuthProxy, ...ForwardAuthProxy[]]

/**
 * The request that a proxy asks about. Its method, host and target are empty strings if the proxy
 * did not send them; its method also if it is malformed.
 */
export interface AskedRequest {
  readonly proxy: ForwardAuthProxy
  readonly method: string
  readonly host: string
  readonly target: string
  /** The fields that the proxy must send, and has not, or has with a malformed method. */
  readonly missing: readonly string[]
}

/** Reads the request that a proxy asks about. */
export function readAsked(proxy: ForwardAuthProxy, request: IncomingMessage): AskedRequest {
  const { method = '', url = '', headers } = request
  const fields = FIELDS[proxy]
  const read = (field: string): string => String(headers[field] ?? '')
  const needed = [...Object.values(fields ?? {}), FORWARDED_FOR]
  const missing = needed.filter((field) => read(field) === '')
  const asked = fields ? read(fields.method) : method
  const isMethod = METHOD.test(asked)
  if (fields && asked !== '' && !isMethod) missing.push(`a valid ${fields.method}`)
  return {
    proxy,
    method: isMethod ? asked : '',
    host: read(fields?.host ?? 'host'),
    target: fields ? read(fields.target) : url,
    missing,
  }
}

/** Returns a client as `X-Sluice-Client` has it: percent-encoded, and empty if it is unknown. */
export const encodeClient = (client = ''): string => client.replaceAll(/[^!-$&-~]/gu, encodeURIComponent)

/** Returns the reply to the proxy for a request that may pass. */
export function passReply(client: string | undefined): Reply {
  const headers = `\r\nCache-Control: no-store\r\nX-Sluice-Client: ${encodeClient(client)}`
  return { status: 200, checked: {}, headers, body: '' }
}

/**
 * Returns a refusal as nginx's `auth_request` takes it: a 401 or 403 without a body, which keeps
 * the connection. The status and the body are in fields, and all challenges in one: nginx 1.22
 * reads only one. What a field cannot hold is escaped in JSON, else a blank; too long a body is
 * left out.
 */
export function replyForNginx({ status, checked, headers, body }: Reply): Reply {
  const sent = checked[CHALLENGE]
  const isJson = parseObject(body) !== undefined
  // JSON has control characters only between its tokens.
  const escape = (char: string): string =>
    isJson && char > '~' ? `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}` : ' '
  const escaped = body.replaceAll(/[^ -~]/g, escape)
  const field = escaped.length > MAX_BODY_FIELD ? '' : escaped
  return {
    status: status === 401 ? 401 : 403,
    checked: Array.isArray(sent) ? { ...checked, [CHALLENGE]: sent.join(', ') } : checked,
    headers: `${headers}\r\nX-Sluice-Status: ${status}\r\nX-Sluice-Body: ${field}`,
    body: '',
  }
}
