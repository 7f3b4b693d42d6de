import { METHODS as PARSED_METHODS } from 'node:http'
import { isIP } from 'node:net'
import { keptClaims } from '../../authenticate/token/kept-claims.ts'
import { ABSOLUTE } from '../../downstream/target.ts'
import { InvalidQuestion } from '../../errors.ts'
import { type Caller, type Facts, NO_FACTS } from '../../policy/facts.ts'
import { instantMs } from '../../runtime/instant.ts'
import { asList } from '../../runtime/json.ts'
import type { RequestLine } from './operator-api.ts'
import { parseNamed } from './short-forms.ts'

const REQUEST = /^(?:([A-Za-z-]+)\s+)?(\S.*)$/

/** A question to `explain`, with the sender as far as it is named. */
export type ParsedQuestion = ReturnType<typeof parseQuestion>

/** Parses what `explain` is asked, with the sender as far as it is named; throws an InvalidQuestion. */
export function parseQuestion({ request, host, client, user, ip, at, headers, claims }: RequestLine) {
  const [, word = 'GET', where = ''] = REQUEST.exec(request.trim()) ?? []
  const method = word.toUpperCase()
  if (!PARSED_METHODS.includes(method))
    throw new InvalidQuestion(`"${word}" is not an HTTP method that the gateway parses.`)
  const slash = where.indexOf('/')
  const [, site = where.slice(0, slash), target = where.slice(slash)] = ABSOLUTE.exec(where) ?? []
  if (slash === -1)
    throw new InvalidQuestion('Which request? Write "[METHOD] [host]/path", such as "GET /v3/sync".')
  if (site !== '' && host !== undefined && host.toLowerCase() !== site.toLowerCase())
    throw new InvalidQuestion(`Which host, "${site}" or "${host}"? Give one of them.`)
  if (client === '' || user === '')
    throw new InvalidQuestion(`Which ${client === '' ? 'client' : 'user'}? Give its id.`)
  if (ip !== undefined && isIP(ip) === 0)
    throw new InvalidQuestion('The address must be an IP address such as 192.0.2.7 or 2001:db8::7.')
  const atMs = at === undefined ? Date.now() : instantMs(at)
  if (Number.isNaN(atMs))
    throw new InvalidQuestion('The instant must be ISO 8601 with offset, like 2027-01-31T00:00:00Z.')
  const path = target.startsWith('/') ? target : `/${target}`
  const given = parseNamed('claims', claims)
  const fields = new Map<string, readonly string[]>()
  for (const [name, value] of Object.entries(parseNamed('headers', headers)))
    fields.set(name.toLowerCase(), asList(value).map(String))
  /** An unknown address is empty. */
  const caller: Caller = { client, user, ip: ip ?? '', claims: keptClaims(given, Object.keys(given)) }
  const facts: Facts = { ...NO_FACTS, method, field: (name) => fields.get(name) }
  return { request: { method, host: site || host, target: path }, caller, facts, atMs }
}
