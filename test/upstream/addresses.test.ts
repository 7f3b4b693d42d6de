import { createServer } from 'node:http'
import type { AddressInfo, Server, Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { WebSocketServer } from 'ws'
import { type AddressEvents, createAddresses } from '../../src/upstream/addresses.ts'
import { closeLater } from '../helpers/closing.ts'
import { startFragileUpstream } from '../helpers/fragile-upstream.ts'
import { get, startFront } from '../helpers/front.ts'
import { call, startGateway } from '../helpers/gateway.ts'
import { deadUrl } from '../helpers/ports.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { openSocket } from '../helpers/websocket.ts'

const [A, B, C] = ['http://a:1', 'http://b:2', 'http://c:3'] as const

interface Change {
  readonly address: string
  readonly up: boolean
  readonly cause?: string
}

const recordIn =
  (changes: Change[]): AddressEvents =>
  (address) => ({
    onDown: ({ message: cause }) => changes.push({ address, up: false, cause }),
    onUp: () => changes.push({ address, up: true }),
  })

function rotating(...origins: string[]) {
  const changes: Change[] = []
  const addresses = createAddresses(origins, recordIn(changes))
  const take = (times: number) => Array.from({ length: times }, () => addresses.next()!.origin)
  const of = (origin: string) => addresses.all.find((one) => one.origin === origin)!
  const fail = (origin: string, times = 3) => {
    for (let i = 0; i < times; i++) of(origin).health.failed(new Error('ECONNREFUSED'))
  }
  return { addresses, changes, take, fail, of }
}

describe('the turn of addresses', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }))
  afterEach(() => void vi.useRealTimers())

  it('addresses are used in turn', () => {
    expect(rotating(A, B, C).take(7)).toEqual([A, B, C, A, B, C, A])
    expect(rotating(A).take(2)).toEqual([A, A])
  })

  it('an address is not tried twice for the same request', () => {
    const { addresses, of } = rotating(A, B)
    expect(addresses.next([of(A)])).toBe(of(B))
    expect(addresses.next([of(A), of(B)])).toBeUndefined()
    const one = rotating(A)
    expect(one.addresses.next([one.of(A)])).toBeUndefined()
  })

  it('an address is skipped after three failures in a row, which is reported once', () => {
    const { changes, take, fail, of } = rotating(A, B, C)
    fail(B, 2)
    of(B).health.succeeded()
    fail(B, 2)
    expect(take(3)).toContain(B)
    fail(B, 1)
    expect(take(4)).toEqual([A, C, A, C])
    fail(B, 5)
    expect(changes).toEqual([{ address: B, up: false, cause: 'ECONNREFUSED' }])
  })

  it('an address that is down is tried with a single request, after twice the time if it fails, up to 30 s', () => {
    const { take, fail } = rotating(A, B)
    fail(B)
    for (const waitMs of [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]) {
      vi.advanceTimersByTime(waitMs - 1)
      expect(take(3)).toEqual([A, A, A])
      vi.advanceTimersByTime(1)
      expect(take(6).filter((origin) => origin === B)).toEqual([B])
      fail(B, 1)
    }
  })

  it('an address is used again as soon as it responds, which is reported once; its back-off restarts', () => {
    const { changes, take, fail, of } = rotating(A, B)
    fail(B)
    vi.advanceTimersByTime(1000)
    expect(take(2)).toContain(B)
    of(B).health.succeeded()
    of(B).health.succeeded()
    expect(take(4).toSorted()).toEqual([A, A, B, B])
    expect(changes.map(({ up }) => up)).toEqual([false, true])
    fail(B)
    vi.advanceTimersByTime(1000)
    expect(take(2)).toContain(B)
  })

  it('all addresses are used if all are down', () => {
    const { take, fail } = rotating(A, B, C)
    for (const origin of [A, B, C]) fail(origin)
    expect(take(6).toSorted()).toEqual([A, A, B, B, C, C])
  })
})

describe('several addresses', () => {
  it('several addresses share the requests', async () => {
    const backs = await Promise.all([startUpstream(), startUpstream(), startUpstream()])
    const { port } = await startFront('', { origins: backs.map(({ url }) => url) })
    for (let i = 0; i < 9; i++) expect((await get(port)).status).toBe(200)
    expect(backs.map(({ seen }) => seen.length)).toEqual([3, 3, 3])
    expect(backs.map((back) => back.sockets())).toEqual([1, 1, 1])
  })

  it('an address that is back is used again, though the others have taken every socket', async () => {
    const back = await startUpstream()
    const late = await startFragileUpstream()
    await late.kill()
    const changes: Change[] = []
    const origins = [back.url, late.url]
    const { port } = await startFront('', { origins, maxConnections: 4 }, {}, recordIn(changes))
    const state = { goesOn: true }
    const load = Array.from({ length: 4 }, async (_, i) => {
      while (state.goesOn) await call(port, { path: '/x', headers: { 'x-caller': String(i) } })
    })
    try {
      await until('it is passed over', () => changes[0]?.up === false)
      await late.start()
      await until('it is in use again', () => changes.at(-1)?.up === true)
    } finally {
      state.goesOn = false
      await Promise.all(load)
    }
    expect(changes.map(({ up }) => up)).toEqual([false, true])
  })

  it('other addresses get the requests of an unreachable one, with any method, each body complete and once', async () => {
    const back = await startUpstream()
    const { port } = await startFront('', { origins: [await deadUrl(), back.url, await deadUrl()] })
    const big = 'x'.repeat(300_000)
    for (const [method, body] of [
      ['GET'],
      ['DELETE'],
      ['POST', 'small'],
      ['POST', big],
      ['PUT', big],
      ['PATCH', big],
    ] as const) {
      const headers = body === big ? { 'Transfer-Encoding': 'chunked' } : {}
      expect((await get(port, '/', { method, headers }, body)).status).toBe(200)
      expect(back.seen.at(-1)!.body.toString() === (body ?? '')).toBe(true)
    }
    expect(back.seen).toHaveLength(6)
  })

  it('each address is tried once for a request that none accepts', async () => {
    const { port, outcomes } = await startFront('', { origins: [await deadUrl(), await deadUrl()] })
    expect(await get(port, '/', { method: 'POST' }, 'x')).toMatchObject({
      status: 502,
      body: 'The upstream cannot be reached.',
    })
    expect(outcomes).toMatchObject([{ outcome: 'failed' }])
  })

  it('an address never gets a request that another may have seen', async () => {
    let seen = 0
    const breaking = await startRawUpstream((socket) => {
      seen++
      socket.resetAndDestroy()
    })
    const back = await startUpstream()
    const changes: Change[] = []
    const origins = [breaking.url, back.url]
    const { port } = await startFront('', { origins }, {}, recordIn(changes))
    const got: number[] = []
    for (let i = 0; i < 10; i++) got.push((await get(port, '/', { method: 'POST' }, 'x')).status)
    // After three of its own, the one that breaks is passed over.
    expect(got.filter((status) => status === 502)).toHaveLength(3)
    expect([seen, back.seen.length]).toEqual([3, 7])
    expect(changes).toMatchObject([{ address: breaking.url, up: false }])
  })

  it('an address that does not respond is skipped, and its idle sockets expire', async () => {
    let silent = false
    const asking: Socket[] = []
    const fading = await startRawUpstream((socket) => {
      // Six at once, so that there are as many sockets.
      if (silent || asking.push(socket) < 6) return
      for (const one of asking.splice(0)) one.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    })
    const back = await startUpstream()
    const changes: Change[] = []
    const origins = [fading.url, back.url]
    const { port } = await startFront('', { origins, timeoutMs: 300 }, {}, recordIn(changes))
    await Promise.all(Array.from({ length: 12 }, () => get(port)))
    expect(fading.sockets()).toBe(6)
    silent = true
    const got: number[] = []
    for (let i = 0; i < 6; i++) got.push((await get(port)).status)
    expect(got.filter((status) => status === 504)).toHaveLength(3)
    expect(changes).toMatchObject([{ address: fading.url, up: false, cause: 'silent for 300 ms' }])
    await until('no socket to it', () => fading.sockets() === 0)
  })

  describe('an address that responds again is used again, which the log and the metrics show', () => {
    /** Starts a gateway whose second address is lost; resolves when it is known to be down. */
    async function startWithLost(route: object = {}) {
      const back = await startUpstream()
      const lost = await deadUrl()
      const gateway = await startGateway({
        data: back.url,
        upstream: { urls: [back.url, lost] },
        routes: [{ match: '/*', upstream: 'data', authenticate: 'none', ...route }],
        limits: {},
      })
      const up = async () => {
        const { body } = await call(gateway.adminPort, { path: '/metrics' })
        const label = `sluice_upstream_up{upstream="data",address="${lost}"}`
        return body
          .split('\n')
          .find((line) => line.startsWith(label))
          ?.slice(label.length + 1)
      }
      expect(await up()).toBe('1')
      for (let i = 0; i < 6; i++) expect((await call(gateway.port)).status).toBe(200)
      expect(await up()).toBe('0')
      /** Starts a server at the lost address. */
      async function revive(server: Server): Promise<void> {
        const port = Number(new URL(lost).port)
        await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
        closeLater(() => server.close())
        expect((server.address() as AddressInfo).port).toBe(port)
      }
      return { gateway, up, revive }
    }

    it('if it answers a request', async () => {
      const { gateway, up, revive } = await startWithLost()
      await revive(createServer((_, response) => response.end('again')))
      await until('it is in use', async () => (await call(gateway.port)).body === 'again')
      expect(await up()).toBe('1')
    })

    it('if it opens a WebSocket', async () => {
      const { gateway, up, revive } = await startWithLost({ upgrade: 'websocket' })
      const server = createServer()
      const sockets = new WebSocketServer({ server })
      await revive(server)
      await until('it is in use', async () => {
        await openSocket(gateway.port, '/')
        return sockets.clients.size > 0
      })
      expect(await up()).toBe('1')
    })
  })
})
