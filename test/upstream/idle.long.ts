import { createServer, type Server } from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { get, startFront } from '../helpers/front.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { startRawUpstream } from '../helpers/upstream.ts'

const REQUESTS = 100_000
const CALLERS = 400

/** Closes sockets that are idle for this time. */
async function closing(afterMs: number) {
  const timers = new WeakMap<Socket, NodeJS.Timeout>()
  return await startRawUpstream((socket) => {
    if (!timers.has(socket)) socket.on('close', () => clearTimeout(timers.get(socket)))
    clearTimeout(timers.get(socket))
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    timers.set(
      socket,
      setTimeout(() => socket.end(), afterMs),
    )
  })
}

/** Node.js as an upstream: it says how long it keeps sockets, and when a request is the last of its socket. */
async function node(options: { keepAliveTimeout?: number; maxRequestsPerSocket?: number }): Promise<string> {
  const server: Server = createServer((request, response) => {
    request.resume().on('end', () => response.end('ok'))
  })
  Object.assign(server, options)
  return (await listenLocally(server)).url
}

it(`no request of ${REQUESTS} fails because its upstream closes idle or much used sockets`, async () => {
  // With the longest pause between the requests of a caller: as long as sockets are kept there, and longer.
  const upstreams: [name: string, url: string, longestMs: number][] = [
    ['1 s, as announced', await node({ keepAliveTimeout: 1000 }), 1200],
    ['5 requests, as announced', await node({ maxRequestsPerSocket: 5 }), 200],
    ['1 s', (await closing(1000)).url, 1200],
    ['2 s', (await closing(2000)).url, 2400],
    ['60 s', (await closing(60_000)).url, 50],
  ]
  const failed: string[] = []
  const callers = CALLERS / upstreams.length
  const call = async (port: number, name: string, caller: number, i: number): Promise<void> => {
    const method = (['POST', 'GET', 'DELETE'] as const)[i % 3]!
    const headers = { 'X-Caller': String(caller) }
    const { status } = await get(port, '/', { method, headers }, method === 'POST' ? 'x' : undefined)
    if (status !== 200) failed.push(`${method} ${status} of a socket kept for ${name}`)
  }
  await Promise.all(
    upstreams.map(async ([name, url, longestMs]) => {
      const { port } = await startFront(url)
      const one = async (caller: number): Promise<void> => {
        for (let i = 0; i < REQUESTS / CALLERS; i++) {
          await call(port, name, caller, i)
          await sleep(Math.random() * longestMs)
        }
      }
      await Promise.all(Array.from({ length: callers }, (_, caller) => one(caller)))
    }),
  )
  expect(failed).toEqual([])
}, 1_800_000)
