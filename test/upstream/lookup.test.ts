import type { LookupAddress } from 'node:dns'
import { createServer } from 'node:net'
import { afterEach, expect, it, vi } from 'vitest'
import { createAddresses, createConnect } from '../../src/upstream/addresses.ts'
import { createLookup, type Resolve } from '../../src/upstream/lookup.ts'
import { closeLater } from '../helpers/closing.ts'
import { get, startFront } from '../helpers/front.ts'
import { startUpstream } from '../helpers/upstream.ts'

afterEach(() => {
  vi.restoreAllMocks()
})

const four = (...addresses: string[]): LookupAddress[] => addresses.map((address) => ({ address, family: 4 }))
/** A resolver that gives these answers in a circle. */
const answering = (...answers: LookupAddress[][]): Resolve => {
  let asked = 0
  return (_, __, done) => void setImmediate(done, null, answers[asked++ % answers.length]!)
}

/** Starts servers on one port of these addresses; returns the port, and the address of each connection. */
async function listening(...hosts: string[]) {
  const seen: string[] = []
  let port = 0
  for (const host of hosts) {
    const server = createServer((socket) => {
      seen.push(host)
      socket.on('error', () => {}).destroy()
    })
    await new Promise<void>((resolve) => {
      server.listen(port, host, resolve)
    })
    ;({ port } = server.address() as { port: number })
    closeLater(() => server.close())
  }
  return { port, seen }
}

/** Connects to a name some times, one after another. */
async function connects(port: number, count: number, resolve: Resolve): Promise<void> {
  const { all } = createAddresses([`http://data.internal:${port}`], () => ({ onDown() {}, onUp() {} }))
  const connect = createConnect(5000, undefined, resolve)
  for (let i = 0; i < count; i++)
    await new Promise<void>((done, reject) => {
      const socket = connect(all[0]!, (failure) => (failure ? reject(failure) : socket.once('close', done)))
    })
}

it.each([
  ['in one order', answering(four('127.0.0.2', '127.0.0.3', '127.0.0.4'))],
  [
    'in turn',
    answering(
      four('127.0.0.2', '127.0.0.3', '127.0.0.4'),
      four('127.0.0.4', '127.0.0.2', '127.0.0.3'),
      four('127.0.0.3', '127.0.0.4', '127.0.0.2'),
    ),
  ],
])('the addresses of a name take turns if a resolver returns them %s', async (_, resolve) => {
  const { port, seen } = await listening('127.0.0.2', '127.0.0.3', '127.0.0.4')
  await connects(port, 9, resolve)
  expect(seen.toSorted()).toEqual(['2', '3', '4'].flatMap((last) => Array(3).fill(`127.0.0.${last}`)))
})

it('an address of a name that does not accept connections is passed over', async () => {
  const { port, seen } = await listening('127.0.0.3')
  await connects(port, 4, answering(four('127.0.0.2', '127.0.0.3')))
  expect(seen).toEqual(Array(4).fill('127.0.0.3'))
})

it('the family that a resolver prefers comes first, and each name has its own turns', () => {
  const both = [...four('10.0.0.2'), { address: '2001:db8::2', family: 6 }, ...four('10.0.0.1')]
  const lookup = createLookup((_, __, done) => done(null, both))
  const first = (name: string) => {
    let found: unknown
    lookup(name, {}, (_, addresses) => (found = (addresses as LookupAddress[]).map(({ address }) => address)))
    return found
  }
  expect(first('a')).toEqual(['10.0.0.1', '10.0.0.2', '2001:db8::2'])
  expect(first('b')).toEqual(['10.0.0.1', '10.0.0.2', '2001:db8::2'])
  expect(first('a')).toEqual(['10.0.0.2', '10.0.0.1', '2001:db8::2'])
  expect(first('b')).toEqual(['10.0.0.2', '10.0.0.1', '2001:db8::2'])
})

it('a name that cannot be resolved is the cause', async () => {
  const fails: Resolve = (_, __, done) => done(new Error('getaddrinfo ENOTFOUND data.internal'), [])
  await expect(connects(80, 1, fails)).rejects.toThrow('ENOTFOUND')
})

it('a connection that is five minutes old gets no further request', async () => {
  let connections = 0
  let beforeAnswer = (): void => {}
  const back = await startUpstream((_, response) => {
    beforeAnswer()
    response.end('ok')
  })
  back.server.on('connection', () => connections++)
  const { port } = await startFront(back.url, { timeoutMs: 3_600_000 })
  await get(port)
  await get(port)
  expect(connections).toBe(1)
  const { now } = performance
  beforeAnswer = () => {
    vi.spyOn(performance, 'now').mockImplementation(() => now.call(performance) + 300_000)
  }
  await get(port)
  expect(connections).toBe(1)
  await get(port)
  expect(connections).toBe(2)
})
