import { writeFileSync } from 'node:fs'
import { Agent } from 'node:http'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { closeLater } from '../../helpers/closing.ts'
import { createFolder } from '../../helpers/folder.ts'
import { call, token, yaml } from '../../helpers/gateway.ts'
import { type ServingProcess, signalUntilEnd, sluice } from '../../helpers/process.ts'
import { freePort } from '../../helpers/ports.ts'
import { sharedRedis } from '../../helpers/shared-redis.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'
import { controls, isAlive, twoWorkers, workersOf } from './two-workers.ts'

let gateway: ServingProcess
let mine: string
const held: (() => void)[] = []
const agent = new Agent({ keepAlive: false })
closeLater(() => agent.destroy())
const data = await startUpstream((request, response) => {
  const answer = () => response.writeHead(200).end('{}')
  if (request.url === '/v3/held') held.push(answer)
  else answer()
})

const { url } = await sharedRedis()
const settings = (drainTimeout: string): string =>
  yaml({
    data: data.url,
    store: { redis: { url }, prefix: 'signals', timeout: '5s', instances: 1 },
    more: { drainTimeout },
  })

const { admin, logged, onceLogged, shows, workers } = controls(() => gateway)
/** Makes a call on its own socket: the workers accept sockets in turn. */
const callApart = (path = '/transactions') => call(gateway.port, { token: mine, path, agent })
const statuses = (count: number): Promise<number[]> =>
  Promise.all(Array.from({ length: count }, async () => (await callApart()).status))

it('all workers switch their log level when the primary process gets a signal, and only then; a second signal to end it ends them, even with requests in flight', async () => {
  const [port, adminPort] = [await freePort(), await freePort()]
  const args = ['--workers', '2', '--log-level', 'warn', '--port', `${port}`, '--admin-port', `${adminPort}`]
  const quiet = sluice(['start', '--config', '-', ...args], {}, settings('1h'))
  const ofKind = (message: string) => quiet.lines().filter(({ msg }) => msg === message)
  const ask = () => Promise.all(Array.from({ length: 6 }, () => call(port, { path: '/oidc/x', agent })))
  await until('it serves', () =>
    call(adminPort, { path: '/readyz' }).then(
      ({ status }) => status === 200,
      () => false,
    ),
  )
  await ask()
  const pids = workersOf(quiet)
  for (const pid of pids) process.kill(pid, 'SIGUSR2')
  quiet.kill('SIGUSR2')
  await until('it is switched', () => ofKind('log level switched').length === 1)
  await ask()
  quiet.kill('SIGUSR2')
  await until('it is switched back', () => ofKind('log level switched').length === 2)
  await ask()
  const mine = await token('acme')
  const pending = call(port, { token: mine, path: '/v3/held', agent }).catch(() => {})
  await until('the request reached the upstream', () => held.length === 1)
  await signalUntilEnd(quiet)
  expect(await quiet.ended()).toBe(1)
  await until('no worker runs', () => !pids.some(isAlive))
  held.length = 0
  await pending
  expect(ofKind('log level switched')).toMatchObject([{ logLevel: 'debug' }, { logLevel: 'warn' }])
  expect(ofKind('request')).toHaveLength(6)
})

describe('a worker that hangs', () => {
  beforeAll(async () => {
    const file = join(createFolder(), 'sluice.yaml')
    writeFileSync(file, settings('8s'))
    gateway = await twoWorkers(
      file,
      `const real = globalThis.setInterval
       if (process.argv[2] === 'start')
         globalThis.setInterval = (run, ms, ...rest) => real(run, ms / 12, ...rest)`,
    )
    mine = await token('acme')
  })

  it('a worker that hangs is replaced', async () => {
    const [first] = workers()
    await onceLogged('worker unresponsive', () => process.kill(first!, 'SIGSTOP'))
    expect(logged('worker unresponsive')).toMatchObject([
      { level: 'error', pid: first, how: 'SIGKILL', retryMs: 0 },
    ])
    await until('another serves', () => logged('worker restarted').length === 1)
    expect(await statuses(4)).toEqual([200, 200, 200, 200])
    await shows(/^sluice_worker_ends_total 1$/m, /^sluice_workers 2$/m)
    expect(logged('worker exited')).toEqual([])
  })

  it('a worker that hangs does not block a drain: on SIGTERM, every request ends and the process exits with 0', async () => {
    const pending = [callApart('/v3/held'), callApart('/v3/held')]
    await until('the requests reached the upstream', () => held.length === 2)
    const before = gateway.lines().length
    const pids = workers()
    gateway.kill('SIGTERM')
    await until('readiness fails', async () => (await admin('/readyz')).status === 503)
    expect(await statuses(4)).toEqual([200, 200, 200, 200])
    for (const answer of held.splice(0)) answer()
    expect((await Promise.all(pending)).map(({ status }) => status)).toEqual([200, 200])
    expect(await gateway.ended()).toBe(0)
    expect(pids.filter(isAlive)).toEqual([])
    const lines = gateway.lines().slice(before)
    expect(lines.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([])
  })
})
