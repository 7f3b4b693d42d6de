import { createServer, type Socket } from 'node:net'
import { closeLater } from './closing.ts'

/** A RESP server that sends bytes chosen by the test. */
export interface FakeRedis {
  readonly url: string
  /** Connections made so far. */
  connections(): number
  /** Commands received so far. */
  commands(): readonly string[][]
  /** Answers every following command with these bytes; does not answer if undefined. */
  answer(reply: ((command: readonly string[]) => string) | string | undefined): void
  /** Sends these bytes to every connection. */
  say(bytes: string): void
  /** Closes every connection; new connections are accepted. */
  drop(): void
  close(): Promise<void>
}

/** Starts the server, on a free port by default. At first it accepts connections but does not answer. */
export async function startFakeRedis(port = 0): Promise<FakeRedis> {
  let reply: ((command: readonly string[]) => string) | string | undefined
  let connections = 0
  const commands: string[][] = []
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    connections++
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    let text = ''
    socket.on('data', (chunk) => {
      text += chunk.toString()
      for (let parsed = parse(text); parsed; parsed = parse(text)) {
        text = text.slice(parsed.length)
        commands.push(parsed.command)
        if (reply !== undefined) socket.write(typeof reply === 'string' ? reply : reply(parsed.command))
      }
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(port, '127.0.0.1', resolve)
  })
  function drop(): void {
    for (const socket of sockets) socket.destroy()
  }
  async function close(): Promise<void> {
    drop()
    await new Promise((resolve) => server.close(resolve))
  }
  closeLater(close)
  return {
    url: `redis://127.0.0.1:${(server.address() as { port: number }).port}`,
    connections: () => connections,
    commands: () => commands,
    answer(next) {
      reply = next
    },
    say(bytes) {
      for (const socket of sockets) socket.write(bytes)
    },
    drop,
    close,
  }
}

/** Returns the first complete command of a string of RESP arrays. */
function parse(text: string): { readonly command: string[]; readonly length: number } | undefined {
  const head = /^\*(\d+)\r\n/.exec(text)
  if (head === null) return undefined
  let at = head[0].length
  const command: string[] = []
  for (let i = 0; i < Number(head[1]); i++) {
    const size = /^\$(\d+)\r\n/.exec(text.slice(at))
    if (size === null) return undefined
    const start = at + size[0].length
    at = start + Number(size[1]) + 2
    if (text.length < at) return undefined
    command.push(text.slice(start, at - 2))
  }
  return { command, length: at }
}

/** Returns charge.lua's answer that admits every call of a batch, with one limit per decision. */
export function admitsAll(command: readonly string[]): string {
  if (!/^eval/i.test(command[0] ?? '')) return '+OK\r\n'
  const decisions = Number(command[2])
  const nowUs = Date.now() * 1000
  // register.lua: four keys, and its two arguments.
  if (decisions === 4 && command.length === 9)
    return `*6\r\n:${nowUs}\r\n:1\r\n:1\r\n:${nowUs}\r\n:${nowUs}\r\n:0\r\n`
  const numbers = [nowUs]
  for (let i = 0; i < decisions; i++) numbers.push(1, 1, 5, nowUs + 1000)
  return `*${numbers.length}\r\n${numbers.map((number) => `:${number}\r\n`).join('')}`
}
