import { once } from 'node:events'
import http, { type IncomingMessage } from 'node:http'
import { dirname, resolve } from 'node:path'
import { text as read } from 'node:stream/consumers'
import { parseDocument } from 'yaml'
import { readTexts } from '../config/teams/read-teams.ts'
import { readSecret, readText, secretFile } from '../config/text.ts'
import { mapTexts, substitute } from '../config/yaml/source.ts'
import { isObject, type JsonObject, parseObject } from '../runtime/json.ts'
import { toError } from '../runtime/to-error.ts'
import { adminTls } from './admin-tls.ts'
import { type Args, MAX_PORT, textOf, UsageError } from './args.ts'
import { fileOf } from './configuration.ts'
import type { Io } from './io.ts'

export type Admin = Awaited<ReturnType<typeof findAdmin>>

export class NoAnswer extends Error {}

const TIMEOUT_MS = 5000

/**
 * Finds the admin listener by its flags, else by the section `admin` of the file; ADMIN_TOKEN, or
 * a client certificate, replaces the file's token.
 */
export async function findAdmin(args: Args, io: Io) {
  const token = readOwnToken(io)
  const text = textOf(args, 'admin')
  if (text !== undefined) {
    if (/^https?:\/\/[^/?#@]+\/?$/i.test(text) && URL.canParse(text))
      return { url: new URL(text).origin, token, tls: adminTls(args, io) }
    throw new UsageError('--admin must be a URL such as http://127.0.0.1:9090, without the token.')
  }
  const { section, ...file } = await readAdmin(args, io)
  // A listener on every address, 0.0.0.0 or ::, is reached at that address too, over loopback.
  const host = textOf(args, 'admin-host') ?? textOf(section, 'host') ?? '127.0.0.1'
  const port = Number(textOf(args, 'admin-port') ?? section['port'] ?? 9090)
  if (!Number.isInteger(port) || port < 1 || port > MAX_PORT)
    throw new UsageError('Which admin port? Give --admin-port from 1 to 65535, or --admin URL.')
  const own = isObject(section['tls']) ? textOf(section['tls'], 'cert') : undefined
  const scheme = section['tls'] === undefined ? 'http' : 'https'
  const url = `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`
  const tls = adminTls(args, io, own && resolve(directoryOf(file.source?.file), own))
  const ofFile = tls.cert === undefined ? readToken(section['token'], file.source?.file) : undefined
  return { ...file, url, tls, token: token ?? ofFile }
}

/** Returns the directory that names in a configuration are relative to. */
const directoryOf = (file = '-'): string => (file === '-' ? process.cwd() : dirname(resolve(file)))

/**
 * Reads the section `admin` without checks: a file that a reload has rejected must not make the
 * running gateway seem down.
 */
async function readAdmin(args: Args, io: Io) {
  const none: JsonObject = {}
  const file = fileOf(args, io)
  if (file === undefined) return { section: none }
  try {
    const text = await readText(file)
    // The parser goes on after an error, which may be in another section.
    const document = parseDocument(text, { merge: true, prettyErrors: false, logLevel: 'error' })
    const { admin, include } = (document.toJS() ?? {}) as JsonObject
    const section = mapTexts(admin, (value) => substitute(value, io.env))
    return {
      section: isObject(section) ? section : none,
      source: { file, ...(await readTexts(text, file, include, io.env)) },
    }
  } catch (error) {
    return { section: none, problem: toError(error).message }
  }
}

/**
 * Returns the token of ADMIN_TOKEN. Throws if it names a file that cannot be read: the token of the
 * configuration is that of somebody else.
 */
function readOwnToken({ env }: Io): string | undefined {
  const value = env['ADMIN_TOKEN'] || undefined
  const file = value && secretFile(value, process.cwd())
  if (file === undefined) return value
  return readSecret(file, (mistake) => {
    throw new UsageError(`ADMIN_TOKEN ${mistake}.`)
  })
}

/** Returns undefined also for a token whose file cannot be read. */
function readToken(value: unknown, file?: string): string | undefined {
  if (typeof value !== 'string' || value === '') return undefined
  const named = secretFile(value, directoryOf(file))
  return named === undefined ? value : readSecret(named, () => {})
}

const SET_TOKEN = 'set ADMIN_TOKEN to your token, that of admin.tokens or admin.token'

interface Options {
  readonly method?: string
  readonly body?: object
  readonly timeoutMs?: number
}

/** Sends a request to the admin listener; rejects with a NoAnswer if it does not answer. */
export async function request({ url, token, tls, problem }: Admin, path: string, options: Options) {
  const { method = 'GET', body, timeoutMs = TIMEOUT_MS } = options
  const signal = AbortSignal.timeout(timeoutMs)
  const { request: send } = url.startsWith('https:') ? await import('node:https') : http
  const headers = {
    Accept: 'application/json',
    ...(token && { Authorization: `Bearer ${token}` }),
    ...(body && { 'Content-Type': 'application/json' }),
  }
  try {
    const clientRequest = send(`${url}${path}`, { ...tls, method, headers, agent: false, signal })
    // An error after the head of the response is reported by the response too.
    clientRequest.on('error', () => {}).end(body && JSON.stringify(body))
    const [response] = (await once(clientRequest, 'response')) as [IncomingMessage]
    return { status: response.statusCode!, text: await read(response) }
  } catch (error) {
    const { code, message } = toError(error)
    const reason = signal.aborted ? `none within ${timeoutMs / 1000} s` : (code ?? message)
    const hints = [hintFor(code, url), problem ?? []].flat()
    throw new NoAnswer(`no response from ${url}: ${[reason, ...hints].join('; ')}`, { cause: error })
  }
}

/** Matches error codes of certificates that are not trusted. */
const UNTRUSTED = /CERT|UNABLE_TO|SIGNED|ALTNAME/

function hintFor(code = '', url: string): string {
  if (UNTRUSTED.test(code)) return 'give the authority of its certificate with --ca'
  const isReset = code === 'ECONNRESET' && url.startsWith('http:')
  const scheme = isReset ? 'write https:// if it has admin.tls, ' : ''
  return `${scheme}start the gateway, or give its address with --admin`
}

/**
 * Returns the JSON of a 200 of the admin listener. Rejects with a message for the operator; for a
 * 400, 404 or 409, with a UsageError.
 */
export async function ask<T>(admin: Admin, path: string, options: Options = {}): Promise<T> {
  const { url } = admin
  const { status, text } = await request(admin, path, options)
  const body = parseObject(text)
  if (status === 200 && body !== undefined) return body as T
  const detail = typeof body?.['detail'] === 'string' ? body['detail'] : undefined
  if (status === 401)
    throw new Error(`The gateway at ${url} refuses the request: ${SET_TOKEN}. It says: ${detail}`)
  if ([400, 404, 409].includes(status) && detail !== undefined) throw new UsageError(detail)
  const reason = detail ?? `it returns ${status}, unlike an admin listener of this version.`
  throw new Error(`The gateway at ${url} cannot do this: ${reason}`)
}
