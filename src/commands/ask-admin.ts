import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { dirname, resolve } from 'node:path'
import { isMapping, type Mapping, readSource } from '../config/yaml/source.ts'
import { fileOf, type Args, type Io, MOST_PORT, textOf, UsageError, wholeOf } from './io.ts'

/** The admin listener of a running gateway. */
export interface Admin {
  /** Such as `http://127.0.0.1:9090`. */
  readonly url: string
  readonly token: string | undefined
  /** The file that names it, if it has been read, and its text. */
  readonly source?: { readonly file: string; readonly text: string }
  /** Why the file that should name it could not be read. */
  readonly problem?: string
}

/** Nothing answers where the admin listener should be. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
}

const TIMEOUT_MS = 5000
/** Longest answer that is shown where it is not understood. */
const MAX_CHARS = 500

/**
 * Finds the admin listener: of `--admin`, else as the section `admin` of the file says, whose other mistakes do not matter, with
 * `--admin-host` and `--admin-port` in place of its own. The token is that of ADMIN_TOKEN, else the file's.
 */
export async function findAdmin(args: Args, io: Io): Promise<Admin> {
  const token = io.env['ADMIN_TOKEN'] || undefined
  const text = textOf(args, 'admin')
  if (text !== undefined) {
    const url = URL.canParse(text) ? new URL(text) : undefined
    const isOrigin = url !== undefined && `${url.protocol}//${url.host}/` === url.href
    if (!isOrigin || !/^https?:$/.test(url.protocol)) {
      throw new UsageError(
        '--admin must be a URL such as http://127.0.0.1:9090; the token is read from ADMIN_TOKEN.',
      )
    }
    return { url: url.origin, token }
  }
  const { section, ...read } = await readAdmin(args, io)
  const host = textOf(args, 'admin-host') ?? section['host']
  const hasPort = textOf(args, 'admin-port') !== undefined
  const port = hasPort ? wholeOf(args, 'admin-port', MOST_PORT, 1) : portOf(section['port'] ?? 9090)
  if (port === undefined) throw new Error('The admin port is not known. Give --admin-port, or --admin URL.')
  const url = adminUrl(typeof host === 'string' ? host : '127.0.0.1', port)
  return { ...read, url, token: token ?? (await secretOf(section['token'], read.source?.file)) }
}

/** Returns the URL at which this machine reaches an admin listener: what listens at every address is at loopback, too. */
function adminUrl(host: string, port: number): string {
  const here = host === '0.0.0.0' ? '127.0.0.1' : /^[0:]*:[0:]*$/.test(host) ? '::1' : host
  return `http://${here.includes(':') ? `[${here}]` : here}:${port}`
}

/** Reads the section `admin` of the file alone: what a running gateway rejects at a reload must not make it seem dead. */
async function readAdmin(
  args: Args,
  io: Io,
): Promise<{ readonly section: Mapping } & Pick<Admin, 'source' | 'problem'>> {
  const file = fileOf(args, io)
  if (file === undefined) return { section: {} }
  try {
    const { readText } = await import('../config/files.ts')
    const text = await readText(file)
    const { value, mistakes } = readSource(text, io.env)
    const section = value?.['admin']
    return {
      section: isMapping(section) ? section : {},
      source: { file, text },
      ...(value === undefined && { problem: `${file}: ${mistakes[0]!.message}` }),
    }
  } catch (error) {
    return { section: {}, problem: (error as Error).message }
  }
}

async function secretOf(value: unknown, file: string | undefined): Promise<string | undefined> {
  const { readSecret } = await import('../config/files.ts')
  const directory = file === undefined || file === '-' ? process.cwd() : dirname(resolve(file))
  const secret = await readSecret(value, [], directory)
  if (secret === undefined) return typeof value === 'string' && value !== '' ? value : undefined
  return 'value' in secret ? secret.value : undefined
}

/** Undefined for what is no port to connect to, such as 0, which takes a free one. */
function portOf(port: unknown): number | undefined {
  const number = Number(port)
  return Number.isInteger(number) && number > 0 && number <= MOST_PORT ? number : undefined
}

export interface Asked {
  readonly method?: string
  /** Sent as JSON. */
  readonly body?: object
  readonly signal?: AbortSignal
  readonly timeoutMs?: number
}

/** Asks the admin listener; rejects with a NoAnswer if nothing answers. */
export function request(
  { url, token, problem }: Admin,
  path: string,
  { method = 'GET', body, signal, timeoutMs = TIMEOUT_MS }: Asked = {},
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const timeout = AbortSignal.timeout(timeoutMs)
    const fail = (error: NodeJS.ErrnoException): void => {
      const none = timeout.aborted ? `none within ${timeoutMs / 1000} s` : (error.code ?? error.message)
      const why = problem === undefined ? '' : `; ${problem}`
      reject(new NoAnswer(`no answer from ${url}: ${none}${why}`, { cause: error }))
    }
    const send = url.startsWith('https:') ? requestHttps : requestHttp
    const headers = {
      Accept: 'application/json',
      ...(token !== undefined && { Authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
    }
    const signals = signal === undefined ? timeout : AbortSignal.any([signal, timeout])
    send(`${url}${path}`, { method, headers, agent: false, signal: signals }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('error', fail)
      response.on('data', (more: string) => (text += more))
      response.on('end', () => resolve({ status: response.statusCode!, text }))
    })
      .on('error', fail)
      .end(body && JSON.stringify(body))
  })
}

/** Returns the JSON with which the admin listener answers 200; rejects with words for the operator, for 400 with a UsageError. */
export async function ask<T>(admin: Admin, path: string, asked: Asked = {}): Promise<T> {
  const { url, token } = admin
  const { status, text } = await request(admin, path, asked).catch((error: Error) => {
    throw new NoAnswer(`${error.message}; start the gateway, or give its admin listener by --admin`)
  })
  if (status === 401) {
    throw new Error(
      token === undefined
        ? `The gateway at ${url} asks for its admin.token: set ADMIN_TOKEN.`
        : `The gateway at ${url} refuses the token: set ADMIN_TOKEN to its admin.token.`,
    )
  }
  const body = parse(text)
  if (status === 200 && body !== undefined) return body as T
  const detail = (body as { readonly detail?: unknown } | undefined)?.detail
  if (status === 400 && typeof detail === 'string') throw new UsageError(detail)
  const reason =
    typeof detail === 'string' ? detail : `it answers ${status}, as no admin listener of this version does.`
  throw new Error(`The gateway at ${url} does not do this: ${reason}`)
}

function parse(text: string): unknown {
  try {
    const body: unknown = JSON.parse(text)
    return isMapping(body) ? body : undefined
  } catch {
    return undefined
  }
}

/** Returns a short answer on one line. */
export const shortened = (text: string): string => text.slice(0, MAX_CHARS).trim().replaceAll(/\s+/g, ' ')
