import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { call, startGateway, type TestGateway, token } from '../helpers/gateway.ts'
import { type Nginx, startNginx } from '../helpers/nginx.ts'
import { FROM_PROXY } from '../helpers/proxy-fields.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'

const DEPLOY = join(import.meta.dirname, '../../deploy')

let upstream: TestUpstream
let gateway: TestGateway
let nginx: Nginx
beforeAll(async () => {
  upstream = await startUpstream()
  gateway = await startGateway({ data: upstream.url, trustedProxies: '[127.0.0.1/32]' })
  const text = readFileSync(join(DEPLOY, 'nginx.conf'), 'utf8')
    .replace('listen 8080', 'listen 127.0.0.1:PORT')
    .replace('server gateway-1:8080', `server 127.0.0.1:${gateway.port}`)
    .replace(/ +server gateway-2.*\n/, '')
  nginx = await startNginx(text, [join(DEPLOY, 'proxy-fields.conf')])
})
afterAll(async () => {
  nginx?.close()
  await gateway.close()
  await upstream.close()
})

it("deploy/nginx.conf forwards requests, without a caller's fields that only a proxy may set", async () => {
  const claims = Object.fromEntries(
    [...FROM_PROXY, 'x-forwarded-for', 'x-real-ip', 'X_Forwarded_Proto', 'ssl_client_cert'].map((name) => [
      name,
      '6.6.6.6',
    ]),
  )
  const got = await call(nginx.port, {
    method: 'POST',
    path: '/v3/a%3Ab?x=//y',
    token: await token('acme'),
    headers: { ...claims, 'x-forwarded-proto': 'https', 'X-Mine': '1', 'TPP-Certificate': 'c' },
    body: 'body',
  })
  expect(got).toMatchObject({ status: 200, headers: { 'x-ratelimit-limit': '1000' } })
  const { method, url, headers, body } = upstream.seen.at(-1)!
  expect([method, url, body.toString()]).toEqual(['POST', '/v3/a:b?x=//y', 'body'])
  expect(headers).toMatchObject({
    host: `127.0.0.1:${nginx.port}`,
    'x-forwarded-for': '127.0.0.1, 127.0.0.1',
    'x-forwarded-proto': 'http',
    'x-real-ip': '127.0.0.1',
    'x-mine': '1',
    'tpp-certificate': 'c',
  })
  expect(Object.entries(headers).filter(([, value]) => String(value).includes('6.6.6.6'))).toEqual([])
})
