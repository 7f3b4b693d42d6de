import { spawn } from 'node:child_process'
import { openSync, readFileSync, writeFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, ISSUER, startLogging, token, yaml } from '../helpers/gateway.ts'
import {
  BIN,
  packagesLoaded,
  serving,
  signalUntilEnd,
  sluice,
  type TestProcess,
  withTests,
} from '../helpers/process.ts'
import { freePort } from '../helpers/redis.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { fileOf } from './run.ts'

const held: (() => void)[] = []
const data = await startUpstream((request, response) => {
  const answer = () => response.writeHead(200, { 'Content-Type': 'application/json' }).end('{}')
  if (request.url === '/v3/held') held.push(answer)
  else answer()
})

/** Returns the processor time of a process in seconds. */
function processorTime({ child }: TestProcess): number {
  const fields = readFileSync(`/proc/${child.pid}/stat`, 'utf8').replace(/^.*\)/, '').split(' ')
  return (Number(fields[12]) + Number(fields[13])) / 100
}

/** Returns true if the process handles signals: it takes SIGUSR2 (12), which would end it. */
function handlesSignals({ child }: TestProcess): boolean {
  const [, caught = '0'] = /^SigCgt:\s*(\w+)/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8')) ?? []
  return ((BigInt(`0x${caught}`) >> 11n) & 1n) === 1n
}

describe('sluice start', () => {
  it('serves callers and operators, logs each request in one line without a secret, and drains on SIGTERM', async () => {
    const gateway = await serving(yaml({ data: data.url, more: 'drainTimeout: 4s' }))
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

  it('exits with 0 on SIGTERM while it still loads, and ignores SIGHUP and SIGUSR2', async () => {
    const clients = Array.from(
      { length: 20_000 },
      (_, i) => `  - { id: client-${i}, limits: { requests: { limit: 5 } } }`,
    )
    const file = fileOf(yaml({ data: data.url, more: `clients:\n${clients.join('\n')}` }))
    const loading = sluice(['start', '--config', file])
    await until('it loads', () => handlesSignals(loading) && processorTime(loading) > 0.8)
    loading.kill('SIGHUP')
    loading.kill('SIGUSR2')
    await new Promise((resolve) => setImmediate(resolve))
    expect(loading.child.exitCode).toBeNull()
    loading.kill('SIGTERM')
    expect(await loading.ended()).toBe(0)
    expect(loading.stdout()).toBe('')
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

  it('exits at once on a second signal', async () => {
    const gateway = await serving(yaml({ data: data.url, more: 'drainTimeout: 1h' }))
    void call(gateway.port, { path: '/v3/held', token: await token('acme') }).catch(() => {})
    await until('the request reached the upstream', () => held.length > 0)
    gateway.kill('SIGTERM')
    await until(
      'readiness fails',
      async () => (await call(gateway.adminPort, { path: '/readyz' })).status === 503,
    )
    // npm repeats a signal at once, which counts as the same signal; a later signal does not.
    const signalledAt = performance.now()
    await signalUntilEnd(gateway)
    expect(performance.now() - signalledAt).toBeGreaterThan(300)
    expect(await gateway.ended()).toBe(1)
    held.length = 0
  })

  it('reports in one line that a port is in use, and exits with 1', async () => {
    const args = ['start', '--config', '-', '--admin-port', String(data.port)]
    const launched = sluice(args, {}, yaml({ data: data.url }))
    expect(await launched.ended()).toBe(1)
    expect(launched.stderr()).toMatch(/^sluice: .*127\.0\.0\.1:\d+ is in use; .*\n$/)
  })

  it('serves identity routes while the issuer’s keys cannot be loaded, and answers 503 on the others', async () => {
    const tokens = `tokens: { issuer: "${ISSUER}", audience: x, jwks: "http://127.0.0.1:9/" }`
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

  it('survives the exit of the reader of its log', async () => {
    const port = await freePort()
    const args = ['--port', String(port), '--log-level', 'info']
    const gateway = sluice(['start', '--config', '-', ...args], {}, yaml({ data: data.url }))
    await until('it serves', () => gateway.stdout().includes('gateway started'))
    gateway.child.stdout!.destroy()
    for (let i = 0; i < 20; i++) expect((await call(port, { path: '/oidc/x' })).status).toBe(200)
    // An idle process takes a small fraction of the time.
    let [seconds, at] = [processorTime(gateway), performance.now()]
    await until('it is at rest', async () => {
      await new Promise((resolve) => setTimeout(resolve, 200))
      const [before, since] = [seconds, at]
      ;[seconds, at] = [processorTime(gateway), performance.now()]
      return (seconds - before) * 1000 < (at - since) / 4
    })
    expect((await call(port, { path: '/oidc/x' })).status).toBe(200)
    gateway.kill('SIGINT')
    expect(await gateway.ended()).toBe(0)
  })

  it('exits with 1 and a last line on an uncaught error', async () => {
    const fault = 'Promise.reject(new Error("boom"))'
    const preload = `data:text/javascript,${encodeURIComponent(`process.on('SIGWINCH', () => { ${fault} })`)}`
    const gateway = await serving(yaml({ data: data.url }), [], { NODE_OPTIONS: `--import=${preload}` })
    await call(gateway.port, { path: '/oidc/x' })
    gateway.kill('SIGWINCH')
    expect(await gateway.ended()).toBe(1)
    expect(gateway.lines().map(({ msg }) => msg)).toEqual([
      'gateway started',
      'request',
      'uncaught exception; exiting',
    ])
    expect(gateway.lines().at(-1)).toMatchObject({
      level: 'fatal',
      cause: expect.stringMatching(/^Error: boom\n +at /),
    })
  })

  it('sluice start is healthy but not ready until Redis was tried and callers are served, with a change meanwhile; exits on a signal at any time', async () => {
    const { port: redisPort } = await startRawUpstream(() => {})
    const [port, adminPort] = [await freePort(), await freePort()]
    const file = fileOf(yaml({ data: data.url }))
    const launch = () => {
      const gateway = sluice(
        `start --config ${file} --log-level info --port ${port} --admin-port ${adminPort} --redis redis://127.0.0.1:${redisPort}`.split(
          ' ',
        ),
      )
      return gateway
    }
    const status = (on: number, path: string) =>
      call(on, { path }).then(
        ({ status }) => status,
        () => undefined,
      )
    const gateway = launch()
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

    const other = launch()
    await until('it is alive', async () => (await status(adminPort, '/healthz')) === 200)
    expect(await status(adminPort, '/readyz')).toBe(503)
    other.kill('SIGHUP')
    other.kill('SIGTERM')
    expect(await other.ended()).toBe(0)
  })

  it('exits in time even if its log cannot be written', async () => {
    const full = openSync('/dev/full', 'w')
    const port = await freePort()
    const file = fileOf(yaml({ data: data.url, more: 'drainTimeout: 2s' }))
    const child = withTests(
      spawn(
        process.execPath,
        [BIN, 'start', '--config', file, '--log-level', 'info', '--port', String(port)],
        { stdio: ['ignore', full, 'pipe'] },
      ),
    )
    const ended = new Promise((resolve) => child.once('exit', resolve))
    await until('it serves', () =>
      call(port, { path: '/oidc/x' }).then(
        ({ status }) => status === 200,
        () => false,
      ),
    )
    child.kill('SIGTERM')
    expect(await ended).toBe(0)
  })
})

describe('the packages that sluice start loads', () => {
  /** Packages that some gateways need. */
  const OPTIONAL = ['@opentelemetry', 'http-proxy', 'ioredis', 'yargs']
  /** Starts a gateway, ends it when it serves, and returns which of them its first process has loaded. */
  async function loadedBy(config: string, flags: readonly string[] = []): Promise<string[]> {
    const folder = createFolder()
    const text = config.replace('level: silent', 'level: info')
    const env = { SLUICE_CONFIG: fileOf(text), NODE_V8_COVERAGE: folder }
    const gateway = sluice(['start', ...flags], env)
    await until('it serves', () => gateway.stdout().includes('gateway started'))
    await signalUntilEnd(gateway)
    expect(await gateway.ended()).toBe(0)
    const packages = packagesLoaded(folder, gateway.child.pid)
    return OPTIONAL.filter((name) => packages.has(name))
  }
  const redis = '{ redis: { url: "redis://127.0.0.1:1" } }'
  /** A gateway without tokens. */
  const plain = {
    data: data.url,
    tokens: '',
    limits: 'limits: { requests: { per: [ip], limit: 5, window: 1m } }',
    routes: 'routes: [{ match: "/*", upstream: data, authenticate: none }]',
    more: 'drainTimeout: 0s',
  }

  it('include no client of Redis for counters in memory, and no parser of flags without flags', async () => {
    expect(await loadedBy(yaml(plain))).toEqual(['http-proxy'])
  })

  it('include those for Redis, tokens and flags if they are used', async () => {
    const config = yaml({ data: data.url, store: redis, more: plain.more })
    expect(await loadedBy(config, ['--port', '0'])).toEqual(['http-proxy', 'ioredis', 'yargs'])
  })

  it('include none that only workers need in the process that starts them', async () => {
    expect(await loadedBy(yaml({ ...plain, store: redis }), ['--workers', '2'])).toEqual(['yargs'])
  })
})
