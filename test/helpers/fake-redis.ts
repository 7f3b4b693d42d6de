import { createServer, type Socket } from 'node:net'

/** A RESP server that sends what the test chooses. */
export interface FakeRedis {
  readonly url: string
  /** Connections made so far. */
  connections(): number
  /** Commands taken so far. */
  commands(): readonly string[][]
  /** From now on it answers every command with these bytes; undefined: with nothing. */
  answer(reply: ((command: readonly string[]) => string) | string | undefined): void
  /** Sends these bytes to every connection, unasked. */
  say(bytes: string): void
  /** Drops every connection, and takes new ones. */
  drop(): void
  close(): Promise<void>
}

/** Starts one, on a free port unless one is given; at first it is silent, like a black hole that takes connections. */
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
    async close() {
      drop()
      await new Promise((resolve) => {
        server.close(resolve)
      })
    },
  }
}

/** The first whole command of a text of RESP arrays. */
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

/** What charge.lua answers when it admits every call of a batch; for one limit a decision. */
export function admitsAll(command: readonly string[]): string {
  if (!/^eval/i.test(command[0] ?? '')) return '+OK\r\n'
  const decisions = Number(command[2])
  const nowUs = Date.now() * 1000
  // gateways.lua: two keys, and its two arguments.
  if (command.length === 7) return `*3\r\n:${nowUs}\r\n:1\r\n:1\r\n`
  const numbers = [nowUs]
  for (let i = 0; i < decisions; i++) numbers.push(1, 1, 5, nowUs + 1000)
  return `*${numbers.length}\r\n${numbers.map((number) => `:${number}\r\n`).join('')}`
}
