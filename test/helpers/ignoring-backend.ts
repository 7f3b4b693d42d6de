import { startRawUpstream } from './upstream.ts'

const REQUEST_LINE = /^([A-Z-]+) (\S+) HTTP\/1\.[01]$/
/** Methods without a meaning for bodies, which many servers therefore do not read. */
const UNREAD = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS', 'PROPFIND', 'M-SEARCH', 'QUERY'])
const ANSWER = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n'

/**
 * Starts a backend that reads no body of GET, HEAD, DELETE and OPTIONS, as Python's http.server: such a body is its next request.
 * Unlike that, it skips lines that are not a request line, such as the size of a chunk. Like all servers, it closes a connection
 * after `Connection: close`. `served` is every request that it obeyed.
 */
export async function startIgnoringBackend() {
  const served: { readonly method: string; readonly target: string; readonly body: string }[] = []
  const buffers = new WeakMap<object, string>()
  const backend = await startRawUpstream((socket, data) => {
    let text = (buffers.get(socket) ?? '') + data.toString('latin1')
    for (;;) {
      const lineEnd = text.indexOf('\r\n')
      if (lineEnd === -1) break
      const [, method, target] = REQUEST_LINE.exec(text.slice(0, lineEnd)) ?? []
      if (method === undefined) {
        text = text.slice(lineEnd + 2)
        continue
      }
      const headEnd = text.indexOf('\r\n\r\n')
      if (headEnd === -1) break
      const head = text.slice(0, headEnd)
      const start = headEnd + 4
      const read = UNREAD.has(method) ? { body: '', end: start } : readBody(text, head, start)
      if (read === undefined) break
      served.push({ method, target: target!, body: read.body })
      text = text.slice(read.end)
      socket.write(method === 'HEAD' ? ANSWER : `${ANSWER}ok`)
      if (/^connection: close$/im.test(head)) {
        socket.end()
        text = ''
        break
      }
    }
    buffers.set(socket, text)
  })
  return { ...backend, served }
}

/** Reads the body after a head: the body, and the index at which it ends; undefined if more is to come. */
function readBody(text: string, head: string, start: number): { body: string; end: number } | undefined {
  if (!/^transfer-encoding: chunked$/im.test(head)) {
    const end = start + Number(/^content-length: (\d+)$/im.exec(head)?.[1] ?? 0)
    return end > text.length ? undefined : { body: text.slice(start, end), end }
  }
  let body = ''
  for (let at = start; ;) {
    const lineEnd = text.indexOf('\r\n', at)
    if (lineEnd === -1) return undefined
    const size = Number.parseInt(text.slice(at, lineEnd), 16)
    if (size === 0) {
      const end = text.indexOf('\r\n\r\n', lineEnd)
      return end === -1 ? undefined : { body, end: end + 4 }
    }
    body += text.slice(lineEnd + 2, lineEnd + 2 + size)
    at = lineEnd + 2 + size + 2
    if (at > text.length) return undefined
  }
}
