import { METHODS } from 'node:http'
import { isIP } from 'node:net'
import { instantMs } from '../../config/sections/limits.ts'
import { type Given, idOf, type Io, load, print, textOf, UsageError, wordsOf } from '../io.ts'
import { describeExplained } from './describe.ts'
import { explain } from './explain.ts'

/** A request to explain. */
export interface Question {
  readonly method: string
  /** As in the `Host` field; undefined where it is left open. */
  readonly host: string | undefined
  /** Path and query, as in the request line. */
  readonly target: string
}

const WORDS = /^(?:([A-Za-z-]+)\s+)?(\S.*)$/
const URL = /^https?:\/\/([^/?#]*)(.*)$/i

/** Prints which route, authentication, limits and upstream a request gets, and why. */
export async function run(given: Given, io: Io): Promise<void> {
  const question = readQuestion(wordsOf(given).join(' '), textOf(given, 'host'))
  const asker = { client: idOf(given, 'client'), user: idOf(given, 'user'), ip: textOf(given, 'ip') }
  if (asker.ip !== undefined && isIP(asker.ip) === 0) {
    throw new UsageError('--ip must be an address such as 192.0.2.7 or 2001:db8::7.')
  }
  const at = textOf(given, 'at')
  const nowMs = at === undefined ? Date.now() : instantMs(at)
  if (Number.isNaN(nowMs)) throw new UsageError('--at must be an instant such as 2027-01-31T00:00:00Z.')
  // `--host` is the caller's here, not that of `start`.
  const { config } = await load({ config: given['config'] }, io)
  print(io, given, explain(config, question, asker, nowMs), (explained) =>
    describeExplained(explained, config),
  )
}

/** Parses `[METHOD] [host]/path`, or a URL in place of the host and path; throws a UsageError. */
export function readQuestion(text: string, host: string | undefined): Question {
  const [, word = 'GET', where = ''] = WORDS.exec(text.trim()) ?? []
  const method = word.toUpperCase()
  if (!METHODS.includes(method)) {
    throw new UsageError(`"${word}" is no method of HTTP that the gateway reads: it answers 400 to it.`)
  }
  const slash = where.indexOf('/')
  const [, named = where.slice(0, slash), target = where.slice(slash)] = URL.exec(where) ?? []
  if (slash === -1) {
    throw new UsageError('Which request? Write "[METHOD] [host]/path", such as "POST /v3/sync/abc".')
  }
  if (named !== '' && host !== undefined && host.toLowerCase() !== named.toLowerCase()) {
    throw new UsageError(`The request is to "${named}", and --host says "${host}".`)
  }
  return { method, host: named || host, target: target.startsWith('/') ? target : `/${target}` }
}
