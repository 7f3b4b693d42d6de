import { spawn } from 'node:child_process'
import { openSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, token, yaml } from '../helpers/gateway.ts'
import {
  BIN,
  packagesLoaded,
  serving,
  signalUntilEnd,
  sluice,
  type TestProcess,
  withTests,
} from '../helpers/process.ts'
import { freePort } from '../helpers/ports.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { fileOf } from './run.ts'

let holds = 0
/** Answers at once, except on `/v3/held`. */
const data = await startUpstream((request, response) => {
  if (request.url === '/v3/held') holds++
  else response.writeHead(200, { 'Content-Type': 'application/json' }).end('{}')
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
  it('exits with 0 on SIGTERM while it still loads, and ignores SIGHUP and SIGUSR2', async () => {
    const clients = Array.from({ length: 20_000 }, (_, i) => ({
      id: `client-${i}`,
      limits: { requests: { limit: 5 } },
    }))
    const file = fileOf(yaml({ data: data.url, more: { clients } }))
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

  it('names a file that is too large for the memory', async () => {
    const clients = Array.from({ length: 60_000 }, (_, i) => ({
      id: `client-${i}`,
      limits: { requests: { limit: 5 } },
    }))
    const file = fileOf(yaml({ data: data.url, more: { clients } }))
    const small = sluice(['start', '--config', file], { NODE_OPTIONS: '--max-old-space-size=40' })
    expect(await small.ended()).toBe(1)
    expect(small.stderr()).toMatch(
      /^sluice: \S+ is too large for \d+ MB of heap; give the process more memory/m,
    )
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

  it('exits in time even if its log cannot be written', async () => {
    const full = openSync('/dev/full', 'w')
    const port = await freePort()
    const file = fileOf(yaml({ data: data.url, more: { drainTimeout: '2s' } }))
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

  it('exits with 0 on a signal while Redis is tried', async () => {
    const { port: redisPort } = await startRawUpstream(() => {})
    const adminPort = await freePort()
    const flags = `--port 0 --admin-port ${adminPort} --redis redis://127.0.0.1:${redisPort}`.split(' ')
    const trying = sluice(['start', '--config', fileOf(yaml({ data: data.url })), ...flags])
    const status = (path: string) =>
      call(adminPort, { path }).then(
        ({ status }) => status,
        () => undefined,
      )
    await until('it is alive', async () => (await status('/healthz')) === 200)
    expect(await status('/readyz')).toBe(503)
    trying.kill('SIGHUP')
    trying.kill('SIGTERM')
    expect(await trying.ended()).toBe(0)
  })

  it('exits at once on a second signal', async () => {
    const gateway = await serving(yaml({ data: data.url, more: { drainTimeout: '1h' } }))
    void call(gateway.port, { path: '/v3/held', token: await token('acme') }).catch(() => {})
    await until('the request reached the upstream', () => holds > 0)
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
  const redis = { redis: { url: 'redis://127.0.0.1:1' } }
  /** A gateway without tokens. */
  const plain = {
    data: data.url,
    tokens: {},
    limits: { requests: { per: ['ip'], limit: 5, window: '1m' } },
    routes: [{ match: '/*', upstream: 'data', authenticate: 'none' }],
    more: { drainTimeout: '0s' },
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
