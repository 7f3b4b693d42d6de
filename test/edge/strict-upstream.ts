import { createServer } from 'node:net'
import { listenLocally, type LocalServer } from '../helpers/local-server.ts'

/** One request, parsed strictly from its bytes. */
export interface WireRequest {
  /** Method and target. */
  readonly line: string
  /** Names and values, unchanged. */
  readonly fields: readonly (readonly [name: string, value: string])[]
  /** The body as Latin-1. */
  body: string
  /** True if the request is complete. */
  whole: boolean
}

export interface StrictUpstream extends LocalServer {
  readonly requests: readonly WireRequest[]
  /** Bytes that two servers could parse differently, or that are invalid. */
  readonly flaws: readonly string[]
  /** Forgets all requests. */
  forget(): void
}

/** Long enough for stray bytes after a request to arrive before its response. */
const STRAY_MS = 3
const BODILESS = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS'])
/** A name, a colon, one blank, and a value without blanks or controls at its ends. */
const FIELD =
  // oxlint-disable-next-line no-control-regex
  /^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([^\s\u0000-\u001f\u007f](?:[^\u0000-\u0008\u000a-\u001f\u007f]*[^\s\u0000-\u001f\u007f])?)?$/
const ONCE = new Set(['host', 'authorization', 'content-length', 'content-type', 'transfer-encoding'])
const ENDS_AT_A_HOP = /^(?:te|trailer|upgrade|expect|keep-alive|http2-settings|proxy-.*)$/

/**
 * Starts a backend with its own parser, which accepts one spelling of HTTP/1.1 and records every other as a flaw.
 * Targets with `early` in them are answered by their head.
 */
export async function startStrictUpstream(): Promise<StrictUpstream> {
  const requests: WireRequest[] = []
  const flaws: string[] = []
  const server = createServer((socket) => {
    const feed = parser(requests, flaws, (line) => {
      if (line === '') socket.destroy()
      else socket.write(line.startsWith('HEAD') ? HEAD_ANSWER : ANSWER)
    })
    socket.on('data', (data: Buffer) => feed(data.toString('latin1')))
    socket.on('error', () => {})
  })
  return { ...(await listenLocally(server)), requests, flaws, forget: () => void requests.splice(0) }
}

const HEAD_ANSWER = 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n'
const ANSWER = `${HEAD_ANSWER}ok\n`

/** Reads the bytes of one socket; calls `answer` with the request line, or with nothing if parsing cannot continue. */
function parser(requests: WireRequest[], flaws: string[], answer: (line: string) => void) {
  let held = ''
  let current: WireRequest | undefined
  let left: number | 'size' | 'chunk-end' | 'trailer' = 0
  let chunked = false
  let unanswered = false
  let dead = false
  /** True after a request that says that its connection ends. */
  let closes = false

  const flaw = (what: string): void => void flaws.push(`${current?.line ?? ''}: ${what}`)
  const broken = (what: string): void => {
    flaw(what)
    dead = true
    answer('')
  }
  const finish = (): void => {
    const { line } = current!
    current!.whole = true
    current = undefined
    if (line.includes('early')) return
    unanswered = true
    setTimeout(() => {
      unanswered = false
      answer(line)
    }, STRAY_MS)
  }

  function readHead(text: string): void {
    const lines = text.split('\r\n')
    const request = /^([A-Z]+ \/[!"$-~]*) HTTP\/1\.1$/.exec(lines[0]!)
    if (request === null) return broken(`no request line: ${JSON.stringify(lines[0])}`)
    const fields: [string, string][] = []
    current = { line: request[1]!, fields, body: '', whole: false }
    requests.push(current)
    for (const line of lines.slice(1)) {
      const field = FIELD.exec(line)
      if (field === null) return broken(`no field: ${JSON.stringify(line)}`)
      fields.push([field[1]!, field[2] ?? ''])
    }
    const values = (name: string): string[] =>
      fields.filter(([one]) => one.toLowerCase().replaceAll('_', '-') === name).map(([, value]) => value)
    for (const name of ONCE) if (values(name).length > 1) flaw(`${name} occurs twice`)
    if (values('host').length !== 1) flaw('no Host')
    for (const [name, value] of fields) {
      if (ENDS_AT_A_HOP.test(name.toLowerCase())) flaw(`${name} came through`)
      if (name.toLowerCase() === 'connection' && !/^(?:keep-alive|close)$/.test(value))
        flaw(`Connection: ${value}`)
    }
    const [length] = values('content-length')
    const [coding] = values('transfer-encoding')
    if (coding !== undefined && coding !== 'chunked') return broken(`Transfer-Encoding: ${coding}`)
    if (coding !== undefined && length !== undefined) return broken('a length and chunks')
    if (length !== undefined && !/^(?:0|[1-9]\d{0,9})$/.test(length))
      return broken(`Content-Length: ${length}`)
    chunked = coding !== undefined
    left = chunked ? 'size' : Number(length ?? 0)
    const method = current.line.split(' ', 1)[0]!
    if (closes) flaw('a request after one whose body may be left unread')
    if (BODILESS.has(method) && left !== 0) {
      closes = true
      if (values('connection').join() !== 'close') flaw(`a ${method} with a body on a kept connection`)
    }
    if (current.line.includes('early')) answer(current.line)
  }

  /** Takes one step; returns false if more bytes are needed. */
  function step(): boolean {
    if (current === undefined) {
      const end = held.indexOf('\r\n\r\n')
      if (end === -1) return false
      const head = held.slice(0, end)
      held = held.slice(end + 4)
      readHead(head)
      if (!dead && left === 0) finish()
      return !dead
    }
    if (typeof left === 'number') {
      if (held === '') return false
      const part = held.slice(0, left)
      held = held.slice(part.length)
      current.body += part
      left -= part.length
      if (left > 0) return false
      if (chunked) left = 'chunk-end'
      else finish()
      return true
    }
    const end = held.indexOf('\r\n')
    if (end === -1) return false
    const line = held.slice(0, end)
    held = held.slice(end + 2)
    if (left === 'chunk-end') {
      if (line !== '') broken('a chunk that does not end')
      left = 'size'
    } else if (left === 'size') {
      if (!/^(?:0|[1-9a-f][0-9a-f]{0,7})$/.test(line)) broken(`a chunk size: ${JSON.stringify(line)}`)
      left = line === '0' ? 'trailer' : Number.parseInt(line, 16)
    } else if (line === '') finish()
    else broken(`a trailer: ${line}`)
    return !dead
  }

  return (text: string): void => {
    if (dead) return
    if (unanswered) flaw(`bytes behind a request: ${JSON.stringify(text.slice(0, 100))}`)
    held += text
    while (step());
    if (unanswered && held !== '') flaw(`bytes behind a request: ${JSON.stringify(held.slice(0, 100))}`)
  }
}
