import { connect, type Socket } from 'node:net'
import { expect, it } from 'vitest'
import { startAdmin } from '../helpers/admin.ts'
import { closeLater } from '../helpers/closing.ts'
import { until } from '../helpers/wait.ts'

const MAX_CONNECTIONS = 100

it('connections beyond 100 are closed at once, and idle ones make room for the next', async () => {
  const { ask, port } = await startAdmin()
  const open = (): Socket => {
    const socket = connect(port, '127.0.0.1').on('error', () => {})
    closeLater(() => socket.destroy())
    return socket
  }
  const answered = new Set<Socket>()
  const sockets = Array.from({ length: MAX_CONNECTIONS }, open)
  for (const socket of sockets) {
    socket.on('data', () => answered.add(socket))
    socket.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n')
  }
  await until('all are answered', () => answered.size === MAX_CONNECTIONS)
  const dropped = open()
  await until('one more is closed', () => dropped.closed)
  expect(dropped.bytesRead).toBe(0)
  expect((await ask('/healthz')).status).toBe(200)
})
