import { type AddressInfo, createServer, type Socket } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { firstWord } from '../../../src/limit/redis/first-word.ts'

let server: ReturnType<typeof createServer> | undefined
afterEach(() => server?.close())

/** Starts a server that acts on each connection. Resolves with its port. */
async function listen(act: (socket: Socket) => void): Promise<number> {
  server = createServer((socket) => act(socket.on('error', () => {}))).listen(0, '127.0.0.1')
  await new Promise((resolve) => server!.once('listening', resolve))
  return (server.address() as AddressInfo).port
}

it('returns the error that a server sends before it closes a connection', async () => {
  const port = await listen((socket) => socket.end('-ERR max number of clients reached\r\n'))
  expect(await firstWord({ host: '127.0.0.1', port })).toBe('ERR max number of clients reached')
})

it.each([
  ['nothing', ''],
  ['another answer', '+PONG\r\n'],
])('returns nothing of a server that sends %s', async (_, text) => {
  const port = await listen((socket) => socket.end(text))
  expect(await firstWord({ host: '127.0.0.1', port })).toBeUndefined()
})

it('reads only the beginning of a long answer', async () => {
  const port = await listen((socket) => socket.end(`-ERR ${'x'.repeat(1000)}`))
  expect(await firstWord({ host: '127.0.0.1', port })).toBe(`ERR ${'x'.repeat(196)}`)
})
