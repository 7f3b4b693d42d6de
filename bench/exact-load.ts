/** Sends an exact number of requests, given as text, over keep-alive connections, one after another on each. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

const CONNECTIONS = 50
const HEAD_END = '\r\n\r\n'

export interface Sender {
  /**
   * Sends the requests, and resolves when each has its response. Rejects if a response has another
   * status than `status`. Uses only the first `connections`, if given.
   */
  sendAll(requests: readonly string[], status: number, connections?: number): Promise<void>
  close(): void
}

/** Opens the connections, which stay open: a call does not pay for them. */
export async function openConnections(port: number): Promise<Sender> {
  const sockets = Array.from({ length: CONNECTIONS }, () =>
    connect(port, '127.0.0.1').setNoDelay(true).setEncoding('latin1'),
  )
  await Promise.all(sockets.map((socket) => once(socket, 'connect')))
  return {
    async sendAll(requests, status, connections) {
      let next = 0
      const take = (): string | undefined => requests[next++]
      await Promise.all(sockets.slice(0, connections).map((socket) => converse(socket, take, status)))
    },
    close() {
      for (const socket of sockets) socket.destroy()
    },
  }
}

/** Sends requests over a socket, each after the response to the previous one, until none is left. */
async function converse(socket: Socket, take: () => string | undefined, status: number): Promise<void> {
  for (let request = take(); request !== undefined; request = take()) {
    socket.write(request, 'latin1')
    const response = await readResponse(socket)
    const got = Number(response.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length))
    if (got !== status) throw new Error(`a call gets ${got}: ${response}`)
  }
}

function readResponse(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    let received = ''
    const settle = (done: () => void): void => {
      socket.off('data', onData).off('close', onClose)
      done()
    }
    const onData = (text: string): void => {
      received += text
      const length = responseLength(received)
      if (length !== undefined && received.length >= length) settle(() => resolve(received))
    }
    const onClose = (): void =>
      settle(() => reject(new Error(`the gateway closed a connection after: ${received}`)))
    socket.on('data', onData).on('close', onClose)
  })
}

/** Returns the bytes of the response at the start of a text; undefined until its head is complete. */
function responseLength(text: string): number | undefined {
  const headEnd = text.indexOf(HEAD_END)
  if (headEnd < 0) return undefined
  const length = /^content-length: *(\d+)/im.exec(text.slice(0, headEnd))?.[1]
  if (length === undefined) throw new Error(`a response without Content-Length: ${text.slice(0, headEnd)}`)
  return headEnd + HEAD_END.length + Number(length)
}
