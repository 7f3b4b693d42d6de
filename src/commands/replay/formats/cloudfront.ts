import type { JsonObject } from '../../../runtime/json.ts'
import { addressOf, callOf, type Line, type ReadLine, textOrNone, unreadable } from './call.ts'
import { readerOfObjects } from './objects.ts'

const FIELDS = '#Fields:'

/**
 * Returns a reader of CloudFront's standard log, and of others in the extended format of the W3C, by
 * the names of the last `#Fields`.
 */
export function createCloudfrontReader(): ReadLine {
  let names: readonly string[] | undefined
  return (text) => {
    if (text.startsWith('{')) return readJson(text)
    if (text.startsWith(FIELDS))
      names = text
        .slice(FIELDS.length)
        .trim()
        .split(/[\t ]+/)
    if (text.startsWith('#')) return 'other'
    if (names === undefined)
      return unreadable('comes before any line "#Fields: …" with the names of the fields')
    const fields = text.split(text.includes('\t') ? '\t' : ' ')
    if (fields.length !== names.length)
      return unreadable(`has ${fields.length} fields, and "#Fields" ${names.length}`)
    return callOfNamed(Object.fromEntries(names.map((name, i) => [name, fields[i]])))
  }
}

const readJson = readerOfObjects((line) => (line['cs-method'] === undefined ? 'other' : callOfNamed(line)))

/** Times are in UTC, at the end of the request. `time-taken` is in seconds, or for IIS in whole milliseconds. */
function callOfNamed(line: JsonObject): Line {
  const text = (name: string): string | undefined => textOrNone(line[name])
  const taken = String(line['time-taken'])
  const [path, query] = [text('cs-uri-stem'), text('cs-uri-query')]
  return callOf({
    time: `${text('date')}T${text('time')}Z`,
    tookMs: Number(taken) * (taken.includes('.') ? 1000 : 1),
    method: text('cs-method'),
    target: path === undefined || query === undefined ? path : `${path}?${query}`,
    host: text('x-host-header') ?? text('cs-host') ?? text('cs(Host)'),
    client: text('cs-username'),
    ip: addressOf(line['c-ip']),
    status: Number(line['sc-status']),
  })
}
