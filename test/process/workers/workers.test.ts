import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent } from 'node:http'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { call, token, yaml } from '../../helpers/gateway.ts'
import { serving, type ServingProcess, sluice, type TestProcess } from '../../helpers/process.ts'
import { type RedisServer, startRedis } from '../../helpers/redis.ts'
import { startUpstream, type TestUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

const WORKERS = ['--workers', '2']
const PASSWORD = 'hunter2'

let data: TestUpstream
let redis: RedisServer
const held: (() => void)[] = []
beforeAll(async () => {
  data = await startUpstream((request, response) => {
    const answer = () => response.writeHead(200).end('{}')
    if (request.url === '/v3/held') held.push(answer)
    else answer()
  })
  redis = await startRedis({ password: PASSWORD })
})
afterAll(async () => {
  await data.close()
  await redis.close()
})

const processes: TestProcess[] = []
const agent = new Agent({ keepAlive: false })
let file: string
let clients = 0
let mine: string
let client: string
beforeEach(async () => {
  file = join(mkdtempSync(join(tmpdir(), 'sluice-workers-')), 'sluice.yaml')
  client = `client-${++clients}`
  mine = await token(client)
})
afterEach(async () => {
  for (const process of processes.splice(0)) {
    process.kill()
    await process.ended()
  }
  agent.destroy()
})

const settings = (more: Partial<Parameters<typeof yaml>[0]> = {}): string =>
  yaml({
    data: data.url,
    store: `{ redis: { url: "${redis.url}", password: ${PASSWORD} }, timeout: 5s, instances: 1 }`,
    ...more,
  })
async function started(text: string, env: Record<string, string> = {}): Promise<ServingProcess> {
  writeFileSync(file, text)
  const process = await serving({ file }, WORKERS, env)
  processes.push(process)
  return process
}
/** A call on a socket of its own: the workers take them in turn. */
const apart = (gateway: ServingProcess, path = '/transactions') =>
  call(gateway.port, { token: mine, path, agent })
const told = (gateway: ServingProcess, words: string) =>
  gateway.lines().filter(({ msg }) => typeof msg === 'string' && msg.includes(words))
const metrics = async (gateway: ServingProcess): Promise<string> =>
  (await call(gateway.adminPort, { path: '/metrics' })).body
/** Waits until the metrics show all of this: a worker that is too busy to tell is left out. */
const shows = (gateway: ServingProcess, ...patterns: readonly RegExp[]) =>
  until(`the metrics show ${patterns.join(', ')}`, async () => {
    const text = await metrics(gateway)
    return patterns.every((pattern) => pattern.test(text))
  })
const ready = (gateway: ServingProcess) =>
  until('it is ready', async () => (await call(gateway.adminPort, { path: '/readyz' })).status === 200)
const pids = ({ child }: ServingProcess): number[] =>
  readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim().split(' ').map(Number)
const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
const pass = (count: number, gateway: ServingProcess): Promise<number[]> =>
  Promise.all(Array.from({ length: count }, async () => (await apart(gateway)).status))

describe('several workers', () => {
  it('serve one port under one limit, tell their metrics as one, and follow the file and operators', async () => {
    const gateway = await started(settings({ limit: 30 }))
    await ready(gateway)
    const statuses = await pass(40, gateway)
    expect(statuses.filter((status) => status === 200)).toHaveLength(30)
    await shows(
      gateway,
      /^sluice_http_requests_total\{.*code="200",source="upstream"\} 30$/m,
      /^sluice_http_requests_total\{.*code="429",source="gateway"\} 10$/m,
      /^sluice_http_request_duration_seconds_count 40$/m,
      /^sluice_build_info\{.*\} 1$/m,
      /^sluice_store_up 1$/m,
      /^sluice_workers 2$/m,
    )
    await until('a line for each', () => told(gateway, 'request').length === 40)
    expect(gateway.stdout().split('\n').filter(Boolean)).toHaveLength(gateway.lines().length)

    // Both remember that the client is refused, and both forget it.
    const path = `/limits/${client}`
    expect((await call(gateway.adminPort, { path })).json).toMatchObject({
      limits: [{ name: 'requests', remaining: 0 }],
    })
    expect((await call(gateway.adminPort, { path, method: 'DELETE' })).status).toBe(200)
    expect(await pass(4, gateway)).toEqual([200, 200, 200, 200])

    writeFileSync(file, settings({ limit: 2 }))
    await until('the file is read anew', () => told(gateway, 'configuration reloaded').length === 1)
    expect(await pass(4, gateway)).toEqual([429, 429, 429, 429])
    writeFileSync(file, settings({ limit: 30 }).replace('limit: 30', 'limit: many'))
    await until('the bad file is told', () => told(gateway, 'configuration rejected').length === 1)
    await shows(gateway, /^sluice_config_last_reload_successful 0$/m)
    gateway.kill('SIGHUP')
    await until('and again', () => told(gateway, 'configuration rejected').length === 2)
    await shows(gateway, /^sluice_config_reload_failures_total 2$/m)
  })

  it('are started again when they end, with the configuration in force, and what they counted stays', async () => {
    const broken = `${file}.broken`
    const faults = encodeURIComponent(`
      process.on('SIGUSR2', () => { throw new Error('boom') })
      if (process.argv[2] === 'worker' && (await import('node:fs')).existsSync('${broken}')) process.exit(7)
    `)
    const gateway = await started(settings({ limit: 1000 }), {
      NODE_OPTIONS: `--import=data:text/javascript,${faults}`,
    })
    expect(new Set(await pass(10, gateway))).toEqual(new Set([200]))
    writeFileSync(file, settings({ limit: 5 }))
    await until('the file is read anew', () => told(gateway, 'configuration reloaded').length === 1)
    await shows(gateway, /^sluice_http_requests_total\{.*code="200".*\} 10$/m)

    const [first] = pids(gateway)
    process.kill(first!, 'SIGKILL')
    await until('its end is told', () => told(gateway, 'worker exited').length === 1)
    expect(told(gateway, 'worker exited')).toMatchObject([{ level: 'error', pid: first, how: 'SIGKILL' }])
    expect(await pass(2, gateway)).toEqual([429, 429])
    await ready(gateway)
    await until('another serves', () => told(gateway, 'worker restarted').length === 1)
    expect(await pass(4, gateway)).toEqual([429, 429, 429, 429])
    await shows(
      gateway,
      /^sluice_http_requests_total\{.*code="200".*\} 10$/m,
      /^sluice_worker_ends_total 1$/m,
      /^sluice_workers 2$/m,
    )

    // Signals are for the first process; a supervisor may send them to all.
    for (const pid of pids(gateway)) process.kill(pid, 'SIGTERM')
    expect(await pass(2, gateway)).toEqual([429, 429])

    writeFileSync(broken, '')
    process.kill(pids(gateway)[0]!, 'SIGUSR2')
    await until('its last words are told', () => told(gateway, 'uncaught exception').length === 1)
    expect(told(gateway, 'uncaught exception')).toMatchObject([
      { level: 'fatal', cause: expect.stringMatching(/^Error: boom\n/) },
    ])
    await until('others cannot start', () => told(gateway, 'worker start failed').length > 2)
    rmSync(broken)
    await until('another serves', () => told(gateway, 'worker restarted').length === 2)
    await shows(gateway, /^sluice_workers 2$/m)
    // One for one, however often it was tried.
    expect(pids(gateway)).toHaveLength(2)

    // Each counts its half alone while there is no Redis.
    await redis.kill()
    try {
      await until('Redis is missed', async () => {
        await pass(4, gateway)
        return told(gateway, 'Redis unavailable').length === 2
      })
      mine = await token('another')
      writeFileSync(file, settings({ limit: 20 }))
      await until('the file is read anew', () => told(gateway, 'configuration reloaded').length === 2)
      // A worker that is slow to take a socket is given fewer, so it may take several turns until both refuse.
      let admitted = 0
      await until('both have granted their halves', async () => {
        admitted += (await pass(20, gateway)).filter((status) => status === 200).length
        return admitted >= 20
      })
      admitted += (await pass(20, gateway)).filter((status) => status === 200).length
      expect(admitted).toBe(20)
    } finally {
      await redis.start()
    }
  })

  it('scan for one operator after the other, each to its end', async () => {
    const gateway = await started(settings())
    await redis.command('EVAL', "for i = 1, 100000 do redis.call('SET', 'sluice:{f}:sync:' .. i, '') end", 0)
    const read = async () => (await call(gateway.adminPort, { path: '/limits/x', agent })).status
    const free = async () =>
      (await call(gateway.adminPort, { path: '/limits/x', method: 'DELETE', agent })).status
    expect(await Promise.all([read(), free(), read(), read(), free()])).toEqual([200, 200, 200, 200, 200])
    await redis.command('FLUSHALL')
  })

  it('are replaced where they hang, though they live', async () => {
    const faster = encodeURIComponent(`
      const real = globalThis.setInterval
      if (process.argv[2] === 'start')
        globalThis.setInterval = (tell, ms, ...rest) => real(tell, ms / 12, ...rest)
    `)
    const gateway = await started(settings(), { NODE_OPTIONS: `--import=data:text/javascript,${faster}` })
    const [first] = pids(gateway)
    process.kill(first!, 'SIGSTOP')
    await until('it is told', () => told(gateway, 'worker unresponsive').length > 0)
    expect(told(gateway, 'worker unresponsive')).toMatchObject([
      { level: 'error', pid: first, how: 'SIGKILL', retryMs: 0 },
    ])
    await until('another serves', () => told(gateway, 'worker restarted').length === 1)
    expect(await pass(4, gateway)).toEqual([200, 200, 200, 200])
    await shows(gateway, /^sluice_worker_ends_total 1$/m, /^sluice_workers 2$/m)
    expect(told(gateway, 'worker exited')).toEqual([])
  })

  it('all take a new configuration, though one starts while another takes its time', async () => {
    const gateway = await started(settings({ limit: 1000 }))
    await ready(gateway)
    const [first, second] = pids(gateway)
    process.kill(first!, 'SIGSTOP')
    process.kill(second!, 'SIGKILL')
    writeFileSync(file, settings({ limit: 5 }))
    gateway.kill('SIGHUP')
    await until('another serves', () => told(gateway, 'worker restarted').length === 1)
    process.kill(first!, 'SIGCONT')
    await until('the file is read anew', () => told(gateway, 'configuration reloaded').length === 1)
    const limits = await Promise.all(Array.from({ length: 4 }, () => apart(gateway)))
    expect(limits.map(({ headers }) => headers['x-ratelimit-limit'])).toEqual(['5', '5', '5', '5'])
  })

  it('are counted once each, though one ends while it is asked', async () => {
    const gateway = await started(settings())
    await pass(10, gateway)
    const counts = /^sluice_http_request_duration_seconds_count (\d+)$/m
    await shows(gateway, /^sluice_http_request_duration_seconds_count 10$/m)
    const [first] = pids(gateway)
    process.kill(first!, 'SIGSTOP')
    const asked = metrics(gateway)
    await call(gateway.adminPort, { path: '/healthz' })
    process.kill(first!, 'SIGKILL')
    expect(counts.exec(await asked)![1]).toBe('10')
  })

  it('let every request end on SIGTERM, and the process exits with 0', async () => {
    const gateway = await started(settings({ more: 'drainTimeout: 8s' }))
    const pending = [apart(gateway, '/v3/held'), apart(gateway, '/v3/held')]
    await until('the requests reached the upstream', () => held.length === 2)
    const workers = pids(gateway)
    gateway.kill('SIGTERM')
    await until(
      'readiness fails',
      async () => (await call(gateway.adminPort, { path: '/readyz' })).status === 503,
    )
    expect(await pass(4, gateway)).toEqual([200, 200, 200, 200])
    for (const answer of held.splice(0)) answer()
    expect((await Promise.all(pending)).map(({ status }) => status)).toEqual([200, 200])
    expect(await gateway.ended()).toBe(0)
    expect(workers.filter(isAlive)).toEqual([])
    expect(gateway.lines().filter(({ level }) => level === 'error' || level === 'warn')).toEqual([])
  })

  it.each([
    ['a second signal', 'SIGTERM', 1],
    ['the end of the first process', 'SIGKILL', null],
  ] as const)('do not outlive %s', async (_, signal, code) => {
    const gateway = await started(settings({ more: 'drainTimeout: 1h' }))
    const pending = apart(gateway, '/v3/held').catch(() => {})
    await until('the request reached the upstream', () => held.length === 1)
    const workers = pids(gateway)
    if (signal === 'SIGTERM') {
      gateway.kill('SIGTERM')
      await until('it drains', () => told(gateway, 'drains').length === 1)
      await new Promise((resolve) => setTimeout(resolve, 700))
    }
    gateway.kill(signal)
    expect(await gateway.ended()).toBe(code)
    // Where the first process was killed, requests under way may end.
    for (const answer of held.splice(0)) answer()
    await pending
    await until('no worker lives', () => workers.filter(isAlive).length === 0)
  })

  it('end the start with the words and the code of what one of them failed of', async () => {
    const taken = createServer()
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve))
    const { port } = taken.address() as AddressInfo
    const run = (flags: readonly string[], text: string) =>
      sluice(['start', '--config', '-', '--workers', ...flags], {}, text)
    const used = run(['2', '--port', String(port)], settings())
    const wrong = run(['2'], settings().replace(PASSWORD, 'swordfish'))
    expect(await used.ended()).toBe(1)
    expect(used.stderr()).toMatch(/^sluice: .*127\.0\.0\.1:\d+ is in use; .*\n$/)
    expect(await wrong.ended()).toBe(78)
    expect(wrong.stderr()).toMatch(/^sluice: Redis refuses the user name or password; .+\n$/)
    taken.close()
  })
})
