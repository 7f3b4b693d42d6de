import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { ASKING, type AskingProxy, PLAIN, startAsking } from '../helpers/asking-proxies.ts'
import { call, startGateway, type TestGateway, token, written } from '../helpers/gateway.ts'
import { answered, raw, statuses } from '../helpers/raw.ts'
import { freePort } from '../helpers/ports.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'

const PROXIES = Object.keys(ASKING) as AskingProxy[]
const data = await startUpstream()
beforeEach(() => void (data.seen.length = 0))

async function start(from: AskingProxy, store: object | 'memory' = 'memory') {
  return await startGateway({
    data: 'http://unused.internal',
    listen: PLAIN,
    store,
    limit: 5,
    routes: [
      { match: '/open/*', authenticate: 'none' },
      { match: '/v3/*', authenticate: 'bearer', limits: ['requests'] },
    ],
    more: { forwardAuth: { port: 0, from } },
  })
}

describe.each(PROXIES)('%s', (from) => {
  it('asks the other of two Sluices while one is down, and the limit stays exact', async () => {
    const redis = await sharedRedis()
    const store = { redis: { url: redis.url }, prefix: `two-${from}-${process.pid}`, timeout: '5s' }
    const sluices = [await start(from, store), await start(from, store)] as const
    const proxy = await startAsking(from, sluices, data.port, { on: ['two Sluices'] })
    const bearer = await token('ann')
    const statusOf = async () => (await call(proxy.port, { path: '/v3/a', token: bearer })).status
    const got = [await statusOf(), await statusOf()]
    await sluices[0].close()
    for (let i = 0; i < 5; i++) got.push(await statusOf())
    expect(got).toEqual([200, 200, 200, 200, 200, 429, 429])
    proxy.close()
    await sluices[1].close()
  })

  it('refuses while no Sluice answers; if it fails open, it forwards without a client', async () => {
    const gateway = await start(from)
    const closed = await startAsking(from, [gateway], data.port)
    const open = await startAsking(from, [gateway], data.port, { on: ['fail open'] })
    const calls = ({ port }: { readonly port: number }) =>
      Promise.all([
        call(port, {
          method: 'POST',
          path: '/v3/a',
          headers: { 'X-Sluice-Client': 'mallory' },
          body: 'a body',
        }),
        call(port, { path: '/v3/b?c' }),
      ])
    expect((await calls(open)).map(({ status }) => status)).toEqual([401, 401])
    await gateway.close()
    for (const { status } of await calls(closed)) expect(status).toBeGreaterThanOrEqual(500)
    expect(data.seen).toEqual([])
    expect((await calls(open)).map(({ status }) => status)).toEqual([200, 200])
    const seen = data.seen.map(({ method, url, headers, body }) => {
      return `${method} ${url} ${body.toString()} ${String(headers['x-sluice-client'] ?? '')}`
    })
    expect(new Set(seen)).toEqual(new Set(['GET /v3/b?c  ', 'POST /v3/a a body ']))
    const { text } = await raw(
      open.port,
      'GET /v3/a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc',
      answered,
    )
    expect(statuses(text)).toEqual([400])
  })

  it('fails open only where no Sluice answers', async () => {
    const gateway = await startGateway({
      data: 'http://unused.internal',
      listen: PLAIN,
      store: { redis: { url: `redis://127.0.0.1:${await freePort()}` }, onOutage: 'deny' },
      limits: {
        big: {
          per: ['ip'],
          limit: 0,
          window: '1m',
          onOutage: 'local',
          refusal: { status: 429, body: 'x'.repeat(20_000) },
        },
        requests: { per: ['client'], limit: 5, window: '1m' },
      },
      routes: [
        { match: '/big', authenticate: 'none', limits: ['big'] },
        { match: '/v3/*', authenticate: 'bearer', limits: ['requests'] },
      ],
      more: { forwardAuth: { port: 0, from }, headers: { requestId: 'x-fapi-interaction-id' } },
    })
    const proxy = await startAsking(from, [gateway], data.port, { on: ['fail open'] })
    const statusOf = async (path: string, token?: string) =>
      (await call(proxy.port, { path, ...(token && { token }) })).status
    expect(await statusOf('/v3/a')).toBe(401)
    expect(await statusOf('/v3/a', await token('ann'))).toBe(503)
    // HAProxy cannot answer with a body of this length.
    for (let i = 0; i < 5; i++) expect(await statusOf('/big')).toBe(from === 'haproxy' ? 500 : 429)
    // HAProxy and Caddy check the health of a Sluice once a second.
    await sleep(2500)
    expect(await statusOf('/v3/a')).toBe(401)
    expect(data.seen).toEqual([])
  })

  it('does not forward again to a backend that broke off, if it fails open', async () => {
    const gateway = await start(from)
    let requests = 0
    const broken = await startRawUpstream((socket) => {
      requests++
      socket.destroy()
    })
    const proxy = await startAsking(from, [gateway], broken.port, { on: ['fail open'] })
    expect((await call(proxy.port, { method: 'POST', path: '/open/a', body: 'x' })).status).toBe(502)
    expect(requests).toBe(1)
  })

  it.each([[[]], [['fail open']]])(
    'asks once about a call, and refuses it, if the Sluice hangs: %j',
    async (on) => {
      const asked: string[] = []
      const passes = `HTTP/1.1 200 OK\r\nX-Sluice-Client: \r\nX-Request-Id: r\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n`
      const sluice = await startRawUpstream((socket, text) => {
        const target = /(?:x-forwarded-uri|x-original-uri): (\S+)/i.exec(text.toString())?.[1]
        if (target !== undefined) asked.push(target)
        // Health checks, and the call that makes a connection one that was used before.
        if (target !== '/hung') socket.write(passes)
      })
      const proxy = await startAsking(from, [{ askPort: sluice.port, adminPort: sluice.port }], data.port, {
        on,
        edit: (_, text) => text.replaceAll(/\b5s\b/g, '1s'),
      })
      expect((await call(proxy.port, { path: '/open/a' })).status).toBe(200)
      expect((await call(proxy.port, { path: '/hung' })).status).toBeGreaterThanOrEqual(500)
      expect(asked).toEqual(['/open/a', '/hung'])
      expect(data.seen.map(({ url }) => url)).toEqual(['/open/a'])
    },
  )
})

describe('docs/forward-auth.md', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/forward-auth.md'), 'utf8')
  const [, snippet] = /```yaml\n([\s\S]*?)```/.exec(page)!
  const shown = parse(snippet!)

  it('shows a file that opens no port to other machines, and none that the files of proxies have', () => {
    expect([shown.listen.host, shown.forwardAuth.host]).toEqual(['127.0.0.1', '127.0.0.1'])
    const { sluice, ...files } = Object.fromEntries(
      ['sluice.yaml', 'nginx.conf', 'Caddyfile', 'haproxy.cfg'].map((name) => [
        name.split('.')[0]!,
        readFileSync(join(import.meta.dirname, '../../deploy/forward-auth', name), 'utf8'),
      ]),
    )
    expect(parse(sluice!)).toMatchObject({
      listen: shown.listen,
      forwardAuth: { port: shown.forwardAuth.port },
    })
    for (const text of Object.values(files)) {
      expect(text).toContain(`127.0.0.1:${shown.forwardAuth.port}`)
      expect(text).not.toContain(String(shown.listen.port))
    }
  })

  it.each(PROXIES)('shows a file that limits behind %s as pasted, except the ports', async (from) => {
    const gateway: TestGateway = await startGateway(
      written(
        snippet!
          .replaceAll(/port: \d+/g, 'port: 0')
          .replace('from: nginx', `from: ${from}`)
          .replace('limit: 100,', 'limit: 2,') + '\nadmin: { port: 0 }\nlog: { level: silent }\n',
      ),
    )
    const proxy = await startAsking(from, [gateway], data.port)
    const got = [await call(proxy.port), await call(proxy.port), await call(proxy.port)]
    expect(got.map(({ status }) => status)).toEqual([200, 200, 429])
  })
})
