import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import { call, startGateway } from '../helpers/gateway.ts'
import { raw } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** The settings of an upstream about its addresses and names. */

const ROUTES = [{ match: '/*', upstream: 'data', authenticate: 'none' }]
const back = await startUpstream((request, response) => {
  const size = Number(request.headers['x-size'] ?? 0)
  response.writeHead(200, { 'Set-Cookie': 'x'.repeat(size) }).end('ok')
})

it.each(['/v1', '/v1/', '/a/b'])('puts the path %s of an upstream before that of a request', async (path) => {
  const { port } = await startGateway({ data: back.url + path, limits: {}, routes: ROUTES })
  for (const target of ['/', '/x/y?z', '//x', '/%2F?/']) {
    await call(port, { path: target })
    expect(back.seen.at(-1)!.url).toBe(path.replace(/\/$/, '') + target)
  }
})

it('connects to a Unix socket', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-unix-'))
  closeLater(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'app.sock')
  const server = createServer((request, response) => response.end(`${request.headers.host} ${request.url}`))
  await new Promise<void>((resolve) => server.listen(path, resolve))
  closeLater(() => server.close())
  const { port, adminPort } = await startGateway({ data: `unix:${path}`, limits: {}, routes: ROUTES })
  const headers = { Host: 'api.example.com' }
  for (let i = 0; i < 3; i++)
    expect(await call(port, { path: '/x?y', headers })).toMatchObject({
      status: 200,
      body: 'api.example.com /x?y',
    })
  const { body } = await call(adminPort, { path: '/metrics' })
  expect(body).toContain(`sluice_upstream_up{upstream="data",address="unix:${path}"} 1`)
})

it('forwards heads of responses up to maxHeaderSize, and says if one is longer', async () => {
  const settings = { data: back.url, limits: {}, routes: ROUTES, upstream: { maxHeaderSize: '32kB' } }
  const { port, adminPort } = await startGateway(settings)
  const send = async (size: number) => {
    const { text } = await raw(
      port,
      `GET / HTTP/1.1\r\nHost: a\r\nX-Size: ${size}\r\nConnection: close\r\n\r\n`,
    )
    return text
  }
  expect(await send(30_000)).toContain(`\r\nSet-Cookie: ${'x'.repeat(30_000)}\r\n`)
  for (let i = 0; i < 4; i++) {
    const text = await send(33_000)
    expect(text).toContain('HTTP/1.1 502 Bad Gateway')
    expect(text).toContain("The head of the upstream's response is longer than 32768 bytes.")
  }
  const { body } = await call(adminPort, { path: '/metrics' })
  expect(body).toContain(`sluice_upstream_up{upstream="data",address="${back.url}"} 1`)
})
