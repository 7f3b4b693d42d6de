import { METHODS } from 'node:http'
import { isIP } from 'node:net'
import { normalizeAddress } from '../../../runtime/address.ts'
import { readInstant } from './instant.ts'

/** A call of a log that reached, or would reach, the limiter. Instants are epoch milliseconds. */
export interface LoggedCall {
  /** The end of the request. */
  readonly loggedAt: number
  /** When the limiter decided; when the request came, if the line has no credible instant. */
  readonly decidedAt: number
  /** Milliseconds in progress; 0 for a refused call, whose duration is unknown. */
  readonly tookMs: number
  readonly method: string
  readonly host: string | undefined
  /** The path, without the query; undefined if the log has only a part of it. */
  readonly path: string | undefined
  /** The target as another proxy received it, with its query; undefined in lines of Sluice. */
  readonly requested?: string
  /** The recorded `match`. */
  readonly route: string | undefined
  readonly client: string | undefined
  readonly ip: string | undefined
  /** Undecided if the gateway failed to decide or to forward. Calls without limits were admitted. */
  readonly decision: 'admitted' | 'refused' | 'undecided'
  /** True if it was admitted, and ended without a whole response below 400. */
  readonly failed: boolean
  /** The limit that refused it. */
  readonly limit: string | undefined
  /** The points that it used, under all limits that are charged by that, or by limit; undefined if unknown. */
  readonly settled?: number | ReadonlyMap<string, number> | undefined
  /** Earlier refusals by the same limit, without a line of their own. */
  readonly omitted: number
}

/** A line that should be of a call, and why it could not be read. */
export interface Unreadable {
  readonly unreadable: string
}

/**
 * What a line is: a call; a call that was refused before any limit; a request that is not HTTP, which
 * Sluice would answer with 400; another line of the same program; or unreadable.
 */
export type Line = LoggedCall | 'refusedBefore' | 'malformed' | 'other' | Unreadable

/** Reads the lines of one log in their order. */
export type ReadLine = (text: string) => Line

/** Maximum characters of a target: Node.js refuses longer heads. */
const MAX_TARGET = 16 * 1024
const KNOWN_METHODS = new Set(METHODS)
const MAX_SHOWN = 60

/** A request as another proxy logged it. Texts that a format writes for absent values are undefined. */
export interface ProxyRequest {
  readonly time: unknown
  /** True if `time` is the arrival of the request, not its end. */
  readonly isArrival?: boolean
  readonly tookMs?: number
  /** Undefined if the proxy could not parse the request. */
  readonly method: string | undefined
  readonly target: string | undefined
  readonly host?: string | undefined
  readonly client?: string | undefined
  readonly ip: string | undefined
  readonly status: number
}

/**
 * Returns the call of a request to another proxy. Every request counts as a call, because all of them
 * would reach Sluice; 429 is the refusal of a limit. A user name is not verified if the status is 401.
 */
export function callOf(request: ProxyRequest): Line {
  const { time, isArrival = false, method, target, host, client, ip, status } = request
  const at = readInstant(time)
  if (!(at >= 0)) return unreadable(`has no time that can be read, but ${excerptOf(time)}`)
  if (method === undefined || target === undefined) return 'malformed'
  if (!KNOWN_METHODS.has(method) || target.length > MAX_TARGET) return 'malformed'
  const tookMs = Math.max(0, request.tookMs ?? 0) || 0
  const isRefused = status === 429
  return {
    loggedAt: isArrival ? at + tookMs : at,
    decidedAt: isArrival ? at : at - tookMs,
    tookMs: isRefused ? 0 : tookMs,
    method,
    host: host === undefined ? undefined : detached(host),
    path: undefined,
    requested: detached(target),
    route: undefined,
    client: status === 401 || client === undefined ? undefined : detached(client),
    ip: ip === undefined ? undefined : detached(ip),
    decision: isRefused ? 'refused' : 'admitted',
    failed: !isRefused && status >= 400,
    limit: undefined,
    omitted: 0,
  }
}

export const unreadable = (why: string): Unreadable => ({ unreadable: why })

/** Formats a value of a log for a message. */
export function excerptOf(value: unknown): string {
  if (value === undefined) return 'none'
  const text = JSON.stringify(value)
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text
}

/**
 * Copies a part of a line. V8 keeps the whole text as long as a part of it: buffered calls
 * would keep the log in memory.
 */
const detached = (text: string): string => Buffer.from(text).toString()

/** Returns the text of a field; undefined for none, and for the dash that logs write for none. */
export const textOrNone = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' && value !== '-' ? value : undefined

/** Returns an address, without its port if `hasPort`; undefined if it is not an IP address. */
export function addressOf(value: unknown, hasPort = false): string | undefined {
  const text = textOrNone(value)
  if (text === undefined) return undefined
  const address = hasPort ? text.slice(0, text.lastIndexOf(':')) : text
  const bare = address.startsWith('[') && address.endsWith(']') ? address.slice(1, -1) : address
  return isIP(bare) === 0 ? undefined : normalizeAddress(bare)
}

/** Splits a request line (RFC 9112 section 3) into method and target; undefined if it is not one. */
export function requestLine(text: string | undefined) {
  const first = text?.indexOf(' ') ?? -1
  const last = text?.lastIndexOf(' ') ?? -1
  if (text === undefined || first === -1 || first === last || !text.startsWith('HTTP/', last + 1))
    return { method: undefined, target: undefined }
  return { method: text.slice(0, first), target: text.slice(first + 1, last) }
}
