import type { LOG_FORMATS } from '../../choices.ts'
import { parseObject } from '../../../runtime/json.ts'
import { readAlb } from './alb.ts'
import { readCaddy } from './caddy.ts'
import { type Line, type ReadLine, unreadable } from './call.ts'
import { createCloudfrontReader } from './cloudfront.ts'
import { readCombined } from './combined.ts'
import { readEnvoy } from './envoy.ts'
import { readHaproxy } from './haproxy.ts'
import { readJsonLog } from './json.ts'
import { readKong } from './kong.ts'
import { besidesNginx } from './nginx.ts'
import { createPinoReader } from './pino.ts'
import { readAccessLine } from './sluice.ts'
import { readTraefik } from './traefik.ts'

export type FormatName = Exclude<(typeof LOG_FORMATS)[number], 'auto'>

/** Creates the reader of a log of each format, first those that are recognised with the most certainty. */
const READERS = {
  sluice: () => readAccessLine,
  caddy: () => readCaddy,
  traefik: () => readTraefik,
  kong: () => readKong,
  pino: createPinoReader,
  envoy: () => readEnvoy,
  alb: () => readAlb,
  cloudfront: createCloudfrontReader,
  haproxy: () => readHaproxy,
  combined: () => besidesNginx(readCombined),
  json: () => besidesNginx(readJsonLog),
} as const satisfies Readonly<Record<FormatName, () => ReadLine>>

export const FORMAT_NAMES = Object.keys(READERS) as readonly FormatName[]

/** The members in which collectors write a line: Docker and Fluent Bit, Filebeat, journald, Loki. */
const WRAPPERS = ['log', 'message', 'MESSAGE', 'line']

/** The format of a log, and its reader. */
export interface Recognized {
  readonly format: FormatName
  readonly read: ReadLine
}

/**
 * Creates the function that recognises the format of a log by its next first lines: that of the first
 * line that can be read as a request, directly or as a member of a collector's JSON.
 */
export function createRecognizer(among: readonly FormatName[]) {
  const readers = among.flatMap((format) => [
    { format, read: READERS[format](), isWrapped: false },
    { format, read: unwrapping(READERS[format]()), isWrapped: true },
  ])
  return (lines: readonly string[]): Recognized | undefined => {
    // Until one is found, every reader reads every line, because it may depend on earlier ones.
    for (const line of lines) {
      const found = readers.find(({ read }) => isOfRequest(read(line)))
      if (found !== undefined) return createFresh(found.format, found.isWrapped)
    }
    return undefined
  }
}

/** True if one of the lines is of Sluice's process log, which has the form of its access log. */
export const hasProcessLog = (lines: readonly string[], among: readonly FormatName[]): boolean =>
  among.includes('sluice') && lines.some(isOfProcessLog)

const createFresh = (format: FormatName, isWrapped: boolean): Recognized => {
  const read = READERS[format]()
  return { format, read: isWrapped ? unwrapping(read) : read }
}

const isOfRequest = (line: Line): boolean =>
  line === 'refusedBefore' || line === 'malformed' || (typeof line === 'object' && 'decidedAt' in line)

function isOfProcessLog(text: string): boolean {
  const line = parseObject(text.slice(Math.max(0, text.indexOf('{'))))
  return typeof line?.['level'] === 'string' && typeof line['msg'] === 'string'
}

/** Returns the reader of lines that are members of a collector's JSON. */
function unwrapping(read: ReadLine): ReadLine {
  return (text) => {
    const line = parseObject(text.slice(Math.max(0, text.indexOf('{'))))
    const inner = WRAPPERS.map((name) => innerLine(line?.[name])).find((one) => one !== undefined)
    return inner === undefined
      ? unreadable(`is not a JSON object with a line in one of ${WRAPPERS.join(', ')}`)
      : read(inner.trimEnd())
  }
}

/** Returns the text of a member; journald writes a text with control characters as its bytes. */
function innerLine(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  return Array.isArray(value) ? Buffer.from(value as readonly number[]).toString() : undefined
}

/** Returns why a line cannot be read: by the format that its first character suggests, if several are possible. */
export function whyUnreadable(line: string, among: readonly FormatName[]): string {
  const likely = line.trimStart().startsWith('{') ? 'json' : 'combined'
  const format = among.length === 1 ? among[0]! : likely
  const read = READERS[format]()(line)
  const why = typeof read === 'object' && 'unreadable' in read ? read.unreadable : 'is not of a request'
  return `read as ${format}, it ${why}`
}
