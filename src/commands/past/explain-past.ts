import { isRequestId } from '../../gateway/request-id.ts'
import { type JsonObject, parseObject } from '../../runtime/json.ts'
import { formatParagraphs, pluralize } from '../format.ts'
import { type Args, positionals, textOf, UsageError } from '../args.ts'
import { type Io, print } from '../io.ts'
import { MAX_LINE_CHARS, readLines } from '../replay/lines.ts'
import { sentencesOf } from './sentences.ts'

/** Maximum calls that are explained: callers choose request ids, and may send one many times. */
const MAX_CALLS = 20
/** The messages that a request has in the log; the second one if its head could not be parsed. */
const MESSAGES = new Set<unknown>(['request', 'malformed request'])

export type ExplainedPast = Awaited<ReturnType<typeof explainPast>>

/**
 * Prints why a call of the past got its response, by its lines in the logs of gateways. Rejects if no
 * line has its request id.
 */
export async function run(args: Args, io: Io): Promise<void> {
  const requestId = textOf(args, 'request-id')!
  const logs = positionals(args)
  if (!isRequestId(requestId)) throw new UsageError('--request-id must be the id of one request.')
  if (logs.length === 0) throw new UsageError('Which log? Give its files, or - for standard input.')
  print(io, args, await explainPast(requestId, logs, io), describe)
}

/** Reads the logs, plain or gzip, in their order. Lines that are not JSON are only counted. */
async function explainPast(requestId: string, logs: readonly string[], { stdin }: Pick<Io, 'stdin'>) {
  const calls: { log: string; line: number; sentences: readonly string[]; fields: JsonObject }[] = []
  const lines = { read: 0, unreadable: 0 }
  let more = 0
  for (const log of logs) {
    let number = 0
    for await (const batch of readLines(log, stdin, () => {})) {
      for (const text of batch) {
        number++
        if (text.trim() === '') continue
        lines.read++
        const fields = parseLine(text)
        if (fields === undefined) lines.unreadable++
        if (fields?.['requestId'] !== requestId || !MESSAGES.has(fields['msg'])) continue
        if (calls.length < MAX_CALLS)
          calls.push({ log, line: number, sentences: sentencesOf(fields), fields })
        else more++
      }
    }
  }
  if (calls.length === 0) throw new Error(notFound(requestId, lines))
  return { requestId, calls, more, lines }
}

/** Parses a line of a log, also after the prefix of a collector. */
const parseLine = (text: string): JsonObject | undefined =>
  text.length > MAX_LINE_CHARS ? undefined : parseObject(text.slice(Math.max(0, text.indexOf('{'))))

function notFound(requestId: string, { read, unreadable }: ExplainedPast['lines']): string {
  const lines = `none of ${pluralize(read, 'line')} is of a request with the id ${requestId}`
  const bad =
    unreadable === 0 ? '' : `; ${unreadable} of them could not be read as JSON, which log.format: json writes`
  return `${lines}${bad}. The log of another gateway may have it; with log.refusals: sampled, no log may.`
}

function describe({ calls, more, lines: { read, unreadable } }: ExplainedPast): string {
  const isAmbiguous = calls.length + more > 1
  const some = calls.map(({ log, line, sentences }) => {
    const place = `${log === '-' ? 'standard input' : log}:${line}`
    return [place, ...sentences.map((sentence) => `  ${sentence}`)].join('\n')
  })
  return formatParagraphs([
    ...some,
    more === 0 ? '' : `${pluralize(more, 'more call')} with this id.`,
    isAmbiguous ? 'Several calls have this id: callers may choose it (X-Request-Id).' : '',
    unreadable === 0 ? '' : `${unreadable} of ${pluralize(read, 'line')} could not be read as JSON.`,
  ])
}
