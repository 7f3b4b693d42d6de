import { rmSync, writeFileSync } from 'node:fs'
import { Agent } from 'node:http'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { closeLater } from '../../helpers/closing.ts'
import { createFolder } from '../../helpers/folder.ts'
import { call, token, yaml } from '../../helpers/gateway.ts'
import { type ServingProcess, sluice } from '../../helpers/process.ts'
import { startRedis } from '../../helpers/redis.ts'
import { FULL } from '../../helpers/runs.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'
import { controls, isAlive, twoWorkers } from './two-workers.ts'

const PASSWORD = 'hunter2'

let gateway: ServingProcess
let mine: string
let client: string
let clients = 0
const held: (() => void)[] = []
const agent = new Agent({ keepAlive: false })
const folder = createFolder()
const file = join(folder, 'sluice.yaml')
const broken = join(folder, 'broken')

const data = await startUpstream((request, response) => {
  const answer = () => response.writeHead(200).end('{}')
  if (request.url === '/v3/held') held.push(answer)
  else answer()
})
const redis = await startRedis({ password: PASSWORD })
beforeEach(async () => {
  client = `client-${++clients}`
  mine = await token(client)
})
closeLater(() => agent.destroy())

const settings = (more: Partial<Parameters<typeof yaml>[0]> = {}): string =>
  yaml({
    data: data.url,
    store: { redis: { url: redis.url, password: PASSWORD }, timeout: '5s', instances: 1 },
    ...more,
  })

const { admin, logged, onceLogged, shows, workers } = controls(() => gateway)

/** Makes a call on its own socket: the workers accept sockets in turn. */
const callApart = (path = '/transactions') => call(gateway.port, { token: mine, path, agent })
const statuses = (count: number): Promise<number[]> =>
  Promise.all(Array.from({ length: count }, async () => (await callApart()).status))
const reload = (limit: number) =>
  onceLogged('configuration reloaded', () =>
    writeFileSync(file, settings({ limit, more: { drainTimeout: '1h' } })),
  )
const total = (counts: readonly number[] = []) => counts.reduce((sum, count) => sum + count, 0)
const ready = () => until('it is ready', async () => (await admin('/readyz')).status === 200)
async function counted(): Promise<number> {
  const { body } = await admin('/metrics')
  const counts = body.matchAll(/^sluice_http_request_duration_seconds_count\{.*\} (\d+)$/gm)
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0)
}

describe('several workers', () => {
  beforeAll(async () => {
    writeFileSync(file, settings({ limit: 30, more: { drainTimeout: '1h' } }))
    gateway = await twoWorkers(
      file,
      `process.on('SIGWINCH', () => { throw new Error('boom') })
       if (process.argv[2] === 'worker' && (await import('node:fs')).existsSync('${broken}')) process.exit(7)`,
    )
  })

  it('several workers serve one port under one limit, and show their metrics and their overview as one', async () => {
    await ready()
    expect((await statuses(39)).filter((status) => status === 200)).toHaveLength(30)
    // After all others: the overview shows the decision about a caller's last call.
    expect(await statuses(1)).toEqual([429])
    await shows(
      /^sluice_http_requests_total\{.*code="200",source="upstream",upstream="data"\} 30$/m,
      /^sluice_http_requests_total\{.*code="429",source="gateway",upstream="data"\} 10$/m,
      /^sluice_http_request_duration_seconds_count\{route="GET,POST \/transactions",upstream="data"\} 40$/m,
      /^sluice_downstream_max_sockets 20000$/m,
      /^sluice_upstream_max_sockets\{upstream="data"\} 512$/m,
      /^sluice_build_info\{.*\} 1$/m,
      /^sluice_store_up 1$/m,
      /^sluice_workers 2$/m,
    )
    const shown = async () => {
      const { activity, status } = (await admin('/overview')).json
      const { calls, refused, ...caller } = activity.callers[0] ?? {}
      return { ...caller, calls: total(calls), refused: total(refused), workers: status.workers }
    }
    await until('the overview shows all calls', async () => (await shown()).calls === 40)
    const most = { name: 'requests', limit: 30, remaining: 0 }
    expect(await shown()).toMatchObject({
      ...{ client, refused: 10, workers: 2, refusedNow: { limit: 'requests' }, most },
    })
    expect((await admin(`/limits/${client}`, 'DELETE')).status).toBe(200)
    await until('it is not refused', async () => (await shown()).refusedNow === null)
    expect(await shown()).toMatchObject({ client, most: null })
    await until('a line for each', () => logged('request').length === 40)
    expect(gateway.stdout().split('\n').filter(Boolean)).toHaveLength(gateway.lines().length)
  })

  it('all apply the requests of operators and the file', async () => {
    await statuses(31)
    const path = `/limits/${client}`
    expect((await admin(path)).json).toMatchObject({ limits: [{ name: 'requests', remaining: 0 }] })
    expect((await admin(path, 'DELETE')).status).toBe(200)
    expect(await statuses(4)).toEqual([200, 200, 200, 200])

    await reload(2)
    expect(await statuses(4)).toEqual([429, 429, 429, 429])
    await onceLogged('configuration rejected', () => writeFileSync(file, settings().replace('1000', 'many')))
    await shows(/^sluice_config_last_reload_successful 0$/m)
    await onceLogged('configuration rejected', () => gateway.kill('SIGHUP'))
    await shows(/^sluice_config_reload_failures_total 2$/m)
    await reload(1000)
  })

  it('finish the scan for one operator before the next', async () => {
    await redis.command('EVAL', "for i = 1, 100000 do redis.call('SET', 'sluice:{f}:sync:' .. i, '') end", 0)
    const scans = ['GET', 'DELETE', 'GET', 'GET', 'DELETE'].map((method) => admin('/limits/x', method))
    expect((await Promise.all(scans)).map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
    await redis.command('FLUSHALL')
  })

  it('several workers are counted once each, even if a worker exits while it is asked, and are restarted', async () => {
    await statuses(10)
    await until('all is counted', async () => (await counted()) >= 85)
    const before = await counted()
    const [first] = workers()
    process.kill(first!, 'SIGSTOP')
    const asked = counted()
    await admin('/healthz')
    await onceLogged('worker exited', () => process.kill(first!, 'SIGKILL'))
    expect(await asked).toBe(before)
    expect(logged('worker exited')).toMatchObject([
      { level: 'error', pid: first, how: 'SIGKILL', retryMs: 0 },
    ])
    await until('another serves', () => logged('worker restarted').length === 1)
    expect(await counted()).toBe(before)
    await shows(/^sluice_worker_ends_total 1$/m, /^sluice_workers 2$/m)
  })

  it('all apply a new configuration, even if one worker starts while another is slow', async () => {
    await ready()
    const [first, second] = workers()
    process.kill(first!, 'SIGSTOP')
    await onceLogged('worker restarted', () => {
      process.kill(second!, 'SIGKILL')
      writeFileSync(file, settings({ limit: 5, more: { drainTimeout: '1h' } }))
      gateway.kill('SIGHUP')
    })
    await onceLogged('configuration reloaded', () => process.kill(first!, 'SIGCONT'))
    const limits = await Promise.all(Array.from({ length: 4 }, () => callApart()))
    expect(limits.map(({ headers }) => headers['x-ratelimit-limit'])).toEqual(['5', '5', '5', '5'])
  })

  it.runIf(FULL)(
    'several workers are restarted with back-off while they cannot start, with the current configuration',
    async () => {
      await statuses(6)
      // Only the primary process reacts to signals; a supervisor may send them to all.
      for (const pid of workers()) process.kill(pid, 'SIGTERM')
      expect(await statuses(2)).toEqual([429, 429])
      writeFileSync(broken, '')
      await onceLogged('uncaught exception', () => process.kill(workers()[0]!, 'SIGWINCH'))
      expect(logged('uncaught exception')).toMatchObject([
        { level: 'fatal', cause: expect.stringMatching(/^Error: boom\n/) },
      ])
      await until('others cannot start', () => logged('worker start failed').length > 2)
      await onceLogged('worker restarted', () => rmSync(broken))
      await shows(/^sluice_workers 2$/m)
      // One replacement for one worker, after several attempts.
      expect(workers()).toHaveLength(2)
      expect(await statuses(4)).toEqual([429, 429, 429, 429])
    },
  )

  it('count their half of each limit while Redis is down', async () => {
    await redis.kill()
    try {
      await until('both miss Redis', async () => {
        await statuses(4)
        return logged('Redis unavailable').length === 2
      })
      mine = await token('another')
      await reload(20)
      // A slow worker gets fewer sockets, so it may take several rounds until both refuse.
      let admitted = 0
      const round = async () => (admitted += (await statuses(20)).filter((status) => status === 200).length)
      await until('both have granted their halves', async () => (await round()) >= 20)
      expect(await round()).toBe(20)
    } finally {
      await redis.start()
    }
  })

  it('exit after the primary process, once requests in flight have ended', async () => {
    const pending = callApart('/v3/held').catch(() => {})
    await until('the request reached the upstream', () => held.length === 1)
    const pids = workers()
    gateway.kill('SIGKILL')
    expect(await gateway.ended()).toBeNull()
    for (const answer of held.splice(0)) answer()
    await pending
    await until('no worker runs', () => !pids.some(isAlive))
  })
})

it.runIf(FULL)('a start fails with the message and the exit code of the failed worker', async () => {
  const { port } = await startUpstream()
  const run = (flags: readonly string[], text: string) =>
    sluice(['start', '--config', '-', '--workers', ...flags], {}, text)
  const used = run(['2', '--port', String(port)], settings())
  const wrong = run(['2'], settings().replace(PASSWORD, 'swordfish'))
  expect(await used.ended()).toBe(1)
  expect(used.stderr()).toMatch(/^sluice: .*127\.0\.0\.1:\d+ is in use, perhaps by another gateway; .*\n$/)
  expect(await wrong.ended()).toBe(78)
  expect(wrong.stderr()).toMatch(/^sluice: Redis refuses the user name or password; .+\n$/)
})
