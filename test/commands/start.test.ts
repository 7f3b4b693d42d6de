import { writeFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { call, ISSUER, startLogging, token, yaml } from '../helpers/gateway.ts'
import { serving, sluice } from '../helpers/process.ts'
import { freePort } from '../helpers/ports.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { fileOf } from './run.ts'

const held: (() => void)[] = []
const data = await startUpstream((request, response) => {
  const answer = () => response.writeHead(200, { 'Content-Type': 'application/json' }).end('{}')
  if (request.url === '/v3/held') held.push(answer)
  else answer()
})

/** Writes a module that sends its process a signal as soon as that listens for SIGHUP, and returns its options. */
function signalling(signal: string): Record<string, string> {
  const send = `setImmediate(() => process.kill(process.pid, '${signal}'))`
  const module = `process.on('newListener', (event) => { if (event === 'SIGHUP') ${send} })`
  return { NODE_OPTIONS: `--import ${fileOf(module, 'mjs')}` }
}

describe('sluice start', () => {
  it('ends with 0 on a signal before its own code is loaded', async () => {
    const start = ['start', '--config', '/nowhere/x.yaml']
    for (const signal of ['SIGTERM', 'SIGINT']) {
      const early = sluice(start, signalling(signal))
      expect([await early.ended(), early.stderr()]).toEqual([0, ''])
    }
    // It goes on, and finds no file.
    expect(await sluice(start, signalling('SIGUSR2')).ended()).toBe(78)
  })

  it('serves callers and operators, logs each request in one line without a secret, and drains on SIGTERM', async () => {
    const gateway = await serving(yaml({ data: data.url, more: { drainTimeout: '4s' } }))
    const mine = await token('acme')
    const got = await call(gateway.port, {
      path: '/v3/sync/a%3Ab?secret=hunter2',
      method: 'POST',
      token: mine,
      headers: { 'X-Request-Id': 'one', Cookie: 'session=hunter2' },
      body: 'assertion=hunter2',
    })
    expect(got.status).toBe(200)
    await call(gateway.port, { token: 'hunter2.hunter2.hunter2', headers: { 'X-Request-Id': 'two' } })
    const line = (id: string) => gateway.lines().filter(({ requestId }) => requestId === id)
    await until('the log lines', () => line('one').length > 0 && line('two').length > 0)
    expect(line('one')).toEqual([
      {
        level: 'info',
        time: expect.stringMatching(/^\d{4}-.*Z$/),
        requestId: 'one',
        method: 'POST',
        host: '127.0.0.1',
        path: '/v3/sync/a:b',
        route: 'POST /:version/sync/:connection',
        upstream: 'data',
        client: 'acme',
        caller: 'client:acme',
        ip: '127.0.0.1',
        decision: 'admitted',
        limit: 'requests',
        of: 1000,
        remaining: 999,
        mode: expect.any(String),
        source: 'upstream',
        status: 200,
        bytes: 2,
        durationMs: expect.any(Number),
        decidedAt: expect.any(Number),
        upstreamMs: expect.any(Number),
        msg: 'request',
      },
    ])
    expect(line('two')).toMatchObject([{ status: 401, source: 'gateway', code: 'Unauthorized' }])
    expect(gateway.stdout()).not.toContain('hunter2')
    expect(gateway.stdout()).not.toContain(mine)
    expect(gateway.stderr()).toBe('')

    const health = await call(gateway.adminPort, { path: '/healthz' })
    expect(health).toMatchObject({ status: 200, body: 'ok\n' })
    expect((await call(gateway.adminPort, { path: '/readyz' })).status).toBe(200)
    expect((await call(gateway.adminPort, { path: '/nothing' })).status).toBe(404)
    expect((await call(gateway.adminPort, { path: '/metrics', method: 'POST' })).status).toBe(405)
    const metrics = (await call(gateway.adminPort, { path: '/metrics' })).body
    expect(metrics).toMatch(
      /^sluice_http_requests_total\{route="POST \/:version\/sync\/:connection",method="POST",code="200",source="upstream",upstream="data"\} 1$/m,
    )
    expect(metrics).toMatch(/^sluice_limit_decisions_total\{limit="sync",outcome="near"\} 1$/m)
    const [first] = gateway.lines()
    expect(metrics).toContain(`sluice_config_hash_info{hash="${String(first!['configHash'])}"} 1`)
    const { version, revision } = first as { version: string; revision: string }
    expect(metrics).toContain(`sluice_build_info{version="${version}",revision="${revision}",node="`)
    expect(metrics).toMatch(/^sluice_store_up 1$/m)

    const pending = call(gateway.port, { path: '/v3/held', token: mine })
    await until('the request reached the upstream', () => held.length > 0)
    gateway.kill('SIGTERM')
    await until(
      'readiness fails',
      async () => (await call(gateway.adminPort, { path: '/readyz' })).status === 503,
    )
    // A load balancer may not have noticed the failing readiness yet: its requests are served.
    const late = await call(gateway.port, { token: mine })
    expect(late).toMatchObject({ status: 200 })
    held.pop()!()
    expect((await pending).status).toBe(200)
    expect(await gateway.ended()).toBe(0)
  })

  it('sluice start does not wait for requests beyond drainTimeout', async () => {
    const gateway = await startLogging({ data: data.url })
    const pending = call(gateway.port, { path: '/v3/held', token: await token('acme') })
    const cut = expect(pending).rejects.toThrow(/hang up|ECONNRESET/)
    await until('the request reached the upstream', () => held.length > 0)
    await gateway.close()
    await cut
    const lines = gateway.lines()
    expect(lines.filter(({ msg }) => msg === 'request')).toMatchObject([
      { level: 'error', path: '/v3/held', client: 'acme', status: 503, incomplete: 'cut' },
    ])
    expect(lines.at(-1)).toMatchObject({ msg: 'gateway stopped' })
    held.length = 0
  })

  it('reports in one line that a port is in use, and exits with 1', async () => {
    const args = ['start', '--config', '-', '--admin-port', String(data.port)]
    const launched = sluice(args, {}, yaml({ data: data.url }))
    expect(await launched.ended()).toBe(1)
    expect(launched.stderr()).toMatch(
      /^sluice: .*127\.0\.0\.1:\d+ is in use, perhaps by another gateway; .*\n$/,
    )
  })

  it('serves identity routes while the issuer’s keys cannot be loaded, and answers 503 on the others', async () => {
    const tokens = { issuer: ISSUER, audience: 'x', jwks: 'http://127.0.0.1:9/' }
    const gateway = await startLogging({ data: data.url, tokens })
    expect((await call(gateway.port, { path: '/oidc/x' })).status).toBe(200)
    const got = await call(gateway.port, { token: await token('acme') })
    expect(got).toMatchObject({
      status: 503,
      headers: { 'retry-after': '1' },
      json: { code: 'ServiceUnavailable' },
    })
    await until('one warning', () => gateway.lines().filter(({ level }) => level === 'warn').length === 1)
  })

  it('sluice start is healthy but not ready until Redis was tried and callers are served, with a change meanwhile', async () => {
    const { port: redisPort } = await startRawUpstream(() => {})
    const [port, adminPort] = [await freePort(), await freePort()]
    const file = fileOf(yaml({ data: data.url }))
    const status = (on: number, path: string) =>
      call(on, { path }).then(
        ({ status }) => status,
        () => undefined,
      )
    const flags = `--port ${port} --admin-port ${adminPort} --redis redis://127.0.0.1:${redisPort}`.split(' ')
    const gateway = sluice(['start', '--config', file, '--log-level', 'info', ...flags])
    const readiness: (number | undefined)[] = []
    await until('it is alive', async () => (await status(adminPort, '/healthz')) === 200)
    writeFileSync(file, yaml({ data: data.url, limit: 7 }))
    await until('it is ready', async () => {
      const ready = await status(adminPort, '/readyz')
      if (readiness.at(-1) !== ready) readiness.push(ready)
      return ready === 200
    })
    expect(readiness).toEqual([503, 200])
    expect(await status(port, '/oidc/x')).toBe(200)
    await until('the change is in force', () =>
      gateway.lines().some(({ msg }) => msg === 'configuration reloaded'),
    )
    gateway.kill('SIGINT')
    expect(await gateway.ended()).toBe(0)
  })
})
