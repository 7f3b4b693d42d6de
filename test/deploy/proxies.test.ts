import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { createFolder } from '../helpers/folder.ts'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { startHaproxy } from '../helpers/haproxy.ts'
import { startNginx } from '../helpers/nginx.ts'
import { FROM_PROXY } from '../helpers/proxy-fields.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { startUpstream } from '../helpers/upstream.ts'

const DEPLOY = join(import.meta.dirname, '../../deploy')
const read = (path: string): string => readFileSync(join(DEPLOY, path), 'utf8')

const upstream = await startUpstream()
const gateway = await startGateway({ data: upstream.url, trustedProxies: ['127.0.0.1/32'] })

const SHIPPED = read('nginx.conf')
  .replace('listen 8080', 'listen 127.0.0.1:PORT')
  .replace(/ +server gateway-2.*\n/, '')

const { data: removed } = parse(read('kubernetes/ingress-nginx.yaml')) as { data: Record<string, string> }
const [, patch] = /--patch '([\s\S]*?)'/.exec(read('kubernetes/ingress-nginx.yaml').replaceAll(/^#/gm, ''))!
const { data: options } = JSON.parse(patch!) as { data: Record<string, string> }

/** A server with the `proxy_set_header` lines of the template of ingress-nginx, in its order. */
const ingress = (fields: Readonly<Record<string, string>>): string => `
events {}
http {
  access_log off;
  proxy_headers_hash_max_size ${options['proxy-headers-hash-max-size']};
  proxy_headers_hash_bucket_size ${options['proxy-headers-hash-bucket-size']};
  map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
  upstream gateways { server gateway-1:8080; }
  server {
    listen 127.0.0.1:PORT;
    location / {
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_set_header X-Request-ID $request_id;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header X-Forwarded-Port $server_port;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-Scheme $scheme;
      proxy_set_header X-Scheme $scheme;
      proxy_set_header X-Original-Forwarded-For $http_x_forwarded_for;
      proxy_set_header Proxy "";
${Object.entries(fields)
  .map(([name, value]) => `      proxy_set_header ${name} "${value}";`)
  .join('\n')}
      proxy_http_version 1.1;
      proxy_pass http://gateways;
    }
  }
}
pid nginx.pid;
`
/** `proxy-fields.conf` of an nginx that reports the end of TLS, which the tests leave out: credentials in the clear are refused. */
const fields = join(createFolder(), 'proxy-fields.conf')
writeFileSync(fields, read('proxy-fields.conf').replaceAll('$scheme', 'https'))
const start = (text: string) =>
  startNginx(
    text.replace('server gateway-1:8080', `server 127.0.0.1:${gateway.port}`).replaceAll('$scheme', 'https'),
    [fields],
  )

const { metadata } = parse(read('kubernetes/components/haproxy-ingress/service.yaml')) as {
  metadata: { annotations: Record<string, string> }
}
const snippet = metadata.annotations['haproxy-ingress.github.io/config-backend']!

/**
 * A server with the lines about fields that the template of HAProxy Ingress has for requests by TLS, in its order: a
 * backend with the snippet for Sluice, and one without it for another service. Callers connect without TLS, for the tests.
 */
const HAPROXY_INGRESS = `
global
  maxconn 100
  tune.http.maxhdr 200 # the test sends more fields than callers may by default
defaults
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen plain
  mode tcp
  bind 127.0.0.1:PORT
  server tls unix@tls.sock ssl verify none send-proxy-v2
frontend https
  mode http
  bind unix@tls.sock ssl crt gateway.pem accept-proxy
  http-request set-header X-Forwarded-Proto https
  http-request del-header X-SSL-Client-CN
  http-request del-header X-SSL-Client-DN
  http-request del-header X-SSL-Client-SHA1
  http-request del-header X-SSL-Client-Cert
  use_backend other if { path_beg /other/ }
  default_backend sluice
backend sluice
  mode http
  http-request set-header X-Original-Forwarded-For %[hdr(x-forwarded-for)] if { hdr(x-forwarded-for) -m found }
  http-request del-header x-forwarded-for
  option forwardfor
${snippet}
  server pod 127.0.0.1:${gateway.port}
backend other
  mode http
  server pod 127.0.0.1:${upstream.port}
`

const { der, thumbprint } = makeCertificate()
const withCertificate = async (port: number) => {
  const bound = await token('acme', { cnf: { 'x5t#S256': thumbprint } })
  const headers = { 'Client-Cert': `:${der.toString('base64')}:` }
  return (await call(port, { path: '/v3/a', token: bound, headers })).status
}

describe.each([
  ['deploy/nginx.conf', () => start(SHIPPED), []],
  [
    'ingress-nginx with deploy/kubernetes/ingress-nginx.yaml',
    () => start(ingress(removed)),
    // Its template passes on what the caller sent as X-Forwarded-For, under this name.
    ['x-original-forwarded-for'],
  ],
  ['HAProxy Ingress with components/haproxy-ingress', () => startHaproxy(HAPROXY_INGRESS), []],
])('%s', (_, startProxy, passed) => {
  it("forwards requests without a caller's fields that only a proxy may set", async () => {
    const proxy = await startProxy()
    const names = [...FROM_PROXY, 'x-forwarded-for', 'x-real-ip', 'X_Forwarded_Proto', 'ssl_client_cert']
    const claims = Object.fromEntries([...names, 'X-Sluice-Client'].map((name) => [name, '6.6.6.6']))
    const got = await call(proxy.port, {
      method: 'POST',
      path: '/v3/a%3Ab?x=//y',
      token: await token('acme'),
      headers: { ...claims, 'x-forwarded-proto': 'http', 'X-Mine': '1', 'TPP-Certificate': 'c' },
      body: 'body',
    })
    expect(got).toMatchObject({ status: 200, headers: { 'x-ratelimit-limit': '1000' } })
    const { method, url, headers, body } = upstream.seen.at(-1)!
    expect([method, url, body.toString()]).toEqual(['POST', '/v3/a%3Ab?x=//y', 'body'])
    expect(headers).toMatchObject({
      host: `127.0.0.1:${proxy.port}`,
      // HAProxy Ingress adds the address once more, behind the snippet.
      'x-forwarded-for': expect.stringMatching(/^127\.0\.0\.1(?:, 127\.0\.0\.1)+$/),
      'x-forwarded-proto': 'https',
      'x-real-ip': '127.0.0.1',
      'x-mine': '1',
      'tpp-certificate': 'c',
    })
    const forged = Object.entries(headers).filter(([, value]) => String(value).includes('6.6.6.6'))
    expect(forged.map(([name]) => name)).toEqual(passed)
  })

  it('lets no caller pass with the certificate of another in Client-Cert', async () => {
    const proxy = await startProxy()
    expect(await withCertificate(proxy.port)).toBe(401)
  })
})

it('ingress-nginx without deploy/kubernetes/ingress-nginx.yaml must not be trusted', async () => {
  const nginx = await start(ingress({}))
  expect(await withCertificate(nginx.port)).toBe(200)
  const shipped = parse(read('kubernetes/sluice.yaml')) as { listen: Record<string, unknown> }
  expect(shipped.listen).not.toHaveProperty('trustedProxies')
})

it('HAProxy Ingress with components/haproxy-ingress removes no field from the requests of another service', async () => {
  const proxy = await startHaproxy(HAPROXY_INGRESS)
  const fields = { 'remote-user': 'ada', 'x-auth-request-email': 'ada@example.com', 'client-cert': ':AA==:' }
  await call(proxy.port, { path: '/other/a', headers: fields })
  expect(upstream.seen.at(-1)).toMatchObject({ url: '/other/a', headers: fields })
})

it('HAProxy Ingress without the snippet must not be trusted', async () => {
  const proxy = await startHaproxy(HAPROXY_INGRESS.replace(snippet, ''))
  expect(await withCertificate(proxy.port)).toBe(200)
})

it('the snippet of components/haproxy-ingress has the lines of deploy/haproxy.cfg', () => {
  const lines = (text: string) => text.match(/(?<=^\s*)http-request .*$/gm)
  expect(lines(snippet)).toEqual(lines(read('haproxy.cfg')))
})
