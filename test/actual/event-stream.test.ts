import { expect, it } from 'vitest'
import { namesOf } from '../../src/actual/json-end.ts'
import { findInEvents } from '../../src/actual/event-stream.ts'

const find = (text: string, path = 'usage.total_tokens', isCut = false) =>
  findInEvents(Buffer.from(text), namesOf(path.split('.')), isCut)

const OPENAI = [
  'data: {"choices":[{"delta":{"content":"{\\"usage\\":{\\"total_tokens\\":1}}"}}],"usage":null}',
  'data: {"choices":[],"usage":{"prompt_tokens":9,"total_tokens":12}}',
  'data: [DONE]',
]
const ANTHROPIC = [
  'event: message_start\ndata: {"type":"message_start","message":{"usage":{"output_tokens":1}}}',
  'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"usage"}}',
  'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":15}}',
  'event: message_stop\ndata: {"type":"message_stop"}',
]
const stream = (events: readonly string[]) => events.map((event) => `${event}\n\n`).join('')

it.each([
  ['\n', 'LF'],
  ['\r\n', 'CRLF'],
  ['\r', 'CR'],
])('finds the value of the last event that has one, in lines that end with %j (%s)', (newLine) => {
  expect(find(stream(OPENAI).replaceAll('\n', newLine))).toBe(12)
  expect(find(stream(ANTHROPIC).replaceAll('\n', newLine), 'usage.output_tokens')).toBe(15)
})

it.each([
  ['a comment', ': ping\n\ndata: {"usage":{"total_tokens":7}}\n\n: ping\n\n'],
  ['data without a blank', 'data:{"usage":{"total_tokens":7}}\n\n'],
  ['data of several lines', 'data: {"usage":\ndata:\ndata: {"total_tokens":\ndata\ndata: 7}\ndata:}\n\n'],
  ['other fields between the lines', 'data: {"usage":\nid: 1\nretry: 5\n:x\ndata: {"total_tokens":7}}\n\n'],
  ['a byte order mark', '\ufeffdata: {"usage":{"total_tokens":7}}\n\n'],
  ['no empty line at the end', 'data: {"usage":{"total_tokens":7}}'],
  ['a null later', 'data: {"usage":{"total_tokens":7}}\n\ndata: {"usage":{"total_tokens":null}}\n\n'],
  ['an event that is not JSON', 'data: {"usage":{"total_tokens":7}}\n\ndata: {"usage":\n\ndata: }\n\n'],
])('finds the value next to %s', (_, text) => {
  expect(find(text)).toBe(7)
})

it.each([
  ['no event', ''],
  ['empty lines', '\n\r\n\r\r'],
  ['a comment that looks like data', ':data: {"usage":{"total_tokens":7}}\n\n'],
  ['a field whose name only begins with data', 'database: {"usage":{"total_tokens":7}}\n\n'],
  ['a field name in capitals', 'DATA: {"usage":{"total_tokens":7}}\n\n'],
  ['a blank before the field', ' data: {"usage":{"total_tokens":7}}\n\n'],
  ['a list', 'data: [{"usage":{"total_tokens":7}}]\n\n'],
  ['halves of two events', 'data: {"usage":\n\ndata: {"total_tokens":7}}\n\n'],
])('finds no value in %s', (_, text) => {
  expect(find(text)).toBeUndefined()
})

it('returns a value that is not a number from the last event, not a number from one before it', () => {
  expect(find(stream([OPENAI[1]!, 'data: {"usage":{"total_tokens":"9"}}']))).toBe('"')
})

it('finds the value, or none of an event whose beginning is cut off, from each byte on', () => {
  for (const newLine of ['\n', '\r\n', '\r']) {
    const text = stream(OPENAI).replaceAll('\n', newLine)
    const event = text.indexOf(OPENAI[1]!)
    // The event is known to begin there only if the empty line before it is seen, and the end of the one before.
    const first = event - newLine.length - 1
    for (let cut = 1; cut < text.length; cut++)
      expect([newLine, cut, find(text.slice(cut), undefined, true)]).toEqual([
        newLine,
        cut,
        cut <= first ? 12 : undefined,
      ])
  }
})

it('does not take the rest of an event of several lines for an event', () => {
  const text = 'data: "x"\ndata: {"usage":{"total_tokens":7}}\n\n'
  for (let cut = 1; cut < text.length; cut++) expect(find(text.slice(cut), undefined, true)).toBeUndefined()
})

it.each([
  ['empty lines', '\n'],
  ['lines without a value', 'data\n'],
  ['events without a value', 'data: {}\n\n'],
  ['comments', ':\r'],
])('reads 64 kB of %s in linear time', (_, part) => {
  const from = performance.now()
  expect(find(part.repeat(65_536 / part.length))).toBeUndefined()
  // Quadratic time would take seconds.
  expect(performance.now() - from).toBeLessThan(1000)
})
