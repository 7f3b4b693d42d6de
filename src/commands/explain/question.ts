import { METHODS } from 'node:http'

/** A request that is asked about. */
export interface Question {
  readonly method: string
  /** As the `Host` field would say it; undefined where it is left open. */
  readonly host: string | undefined
  /** As the request line would say it: path and query. */
  readonly target: string
}

const WORDS = /^(?:([A-Za-z-]+)\s+)?(\S.*)$/
const URL = /^https?:\/\/([^/?#]*)(.*)$/i

/** Reads `[METHOD] [host]/path`, or a URL in place of the host and path; a string says what is wrong with it. */
export function readQuestion(text: string, host: string | undefined): Question | string {
  const [, method = 'GET', where = ''] = WORDS.exec(text.trim()) ?? []
  if (!METHODS.includes(method.toUpperCase())) {
    return `"${method}" is no method of HTTP that the gateway reads: it answers 400 to whatever is asked with it.`
  }
  const url = URL.exec(where)
  const slash = where.indexOf('/')
  if (url === null && slash === -1) {
    return `Which request? Write "[METHOD] [host]/path", such as "POST /v3/sync/abc".`
  }
  const named = url === null ? where.slice(0, slash) : url[1]!
  if (named !== '' && host !== undefined && host.toLowerCase() !== named.toLowerCase()) {
    return `The request is to "${named}", and --host says "${host}".`
  }
  const target = url === null ? where.slice(slash) : url[2]!
  return {
    method: method.toUpperCase(),
    host: named || host,
    target: target.startsWith('/') ? target : `/${target}`,
  }
}
