import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, ROUTES, startGateway, token, yaml, READS_LIMITS } from '../helpers/gateway.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createLiveOverrides } from '../../src/process/overrides-live.ts'
import { parseCaller } from '../../src/policy/counted-caller.ts'
import { createRedisStore } from '../../src/limit/redis/store.ts'
import { start } from '../../src/process/start.ts'
import { sluice } from '../commands/run.ts'
import { serving } from '../helpers/process.ts'
import { startRedis } from '../helpers/redis.ts'
import { WORKERS } from '../helpers/runs.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Effects of `sluice limits set` on the responses of running gateways. */

const folder = createFolder()
const file = join(folder, 'sluice.yaml')
const HOUR_MS = 3_600_000
let mine: string
let client: string
let clients = 0
const data = await startUpstream()
const redis = await startRedis()
beforeEach(() => redis.command('FLUSHALL'))

/** Returns settings, also written to the file, and sets a new client. */
async function settings(more: Partial<Parameters<typeof yaml>[0]> = {}) {
  client = `client-${++clients}`
  mine = await token(client)
  const all = {
    data: data.url,
    store: { redis: { url: redis.url }, timeout: '5s', instances: 1 },
    limit: 1,
    routes: [READS_LIMITS, ...ROUTES],
    ...more,
  }
  writeFileSync(file, yaml(all))
  return all
}
const gateway = async (more: Parameters<typeof settings>[0] = {}) => startGateway(await settings(more))
/** Sets a limit at one gateway, like an operator. */
async function set(adminPort: number, ...args: string[]) {
  const admin = `http://127.0.0.1:${adminPort}`
  const ran = await sluice(['limits', 'set', client, ...args, '--admin', admin])
  expect(ran).toMatchObject({ code: 0 })
  return ran
}
/** Sets a limit in Redis, like another gateway. */
async function setElsewhere(limit: number) {
  const store = createRedisStore({ topology: { url: redis.url }, prefix: 'sluice' })
  await store.connect()
  const live = createLiveOverrides(store.overrides, 'sluice', { onChange: () => {}, onUnreadable: () => {} })
  await live.change([{ caller: parseCaller(client), name: 'requests', limit, setAt: Date.now() }], [])
  await store.close()
}
const status = async (port: number) => (await call(port, { token: mine })).status
const limitAt = async (port: number) => (await call(port, { token: mine })).headers['x-ratelimit-limit']

it('raises a limit that refuses, within a second and only for this client, and is announced with its end', async () => {
  const { port, adminPort } = await gateway()
  expect([await status(port), await status(port)]).toEqual([200, 429])
  const before = Date.now()
  await setElsewhere(20)
  const read = () => call(port, { path: '/v3/rate-limits', token: mine })
  await until('it is admitted', async () => {
    // Refusals are now cached, until the override is applied.
    await read()
    return (await status(port)) === 200
  })
  await set(adminPort, 'requests=30', '--until', '1h')
  // Immediately at the gateway where it was set.
  expect(await limitAt(port)).toBe('30')
  const { json } = await read()
  expect((await call(port, { token: await token('another') })).headers['x-ratelimit-limit']).toBe('1')
  const [change] = json.limits[0].changes
  expect(json.limits[0]).toMatchObject({ name: 'requests', limit: 30, changes: [{ limit: 1 }] })
  const [announcedAt, fromAt] = [Date.parse(change.announced), Date.parse(change.from)]
  expect(announcedAt).toBeGreaterThanOrEqual(before)
  expect(Math.abs(fromAt - announcedAt - HOUR_MS)).toBeLessThan(60_000)
  const shown = await call(adminPort, { path: `/limits/${client}` })
  expect(shown.json.limits[0]).toMatchObject({ override: true, until: change.from, limit: 30 })

  await set(adminPort, 'requests=default')
  expect(await limitAt(port)).toBe('1')
  expect((await call(adminPort, { path: `/limits/${client}` })).json.limits[0]).toMatchObject({
    ...{ override: false, until: null, limit: 1 },
  })
})

it('overrides the client’s own limit in the file, also after a reload; the own limit applies again afterwards', async () => {
  const all = await settings({ limit: 10 })
  const load = async () => ({ ...(await loadConfig({ file })), loadMs: 0 })
  const loaded = await load()
  const running = await start({ ...loaded.config, drainTimeoutMs: 1000 }, { ...loaded, load })
  closeLater(() => running.close())
  const [port, adminPort] = [running.address, running.adminAddress].map((url) => Number(new URL(url).port))
  await set(adminPort!, 'requests=30')
  expect(await limitAt(port!)).toBe('30')
  writeFileSync(
    file,
    yaml({ ...all, more: { clients: [{ id: client, limits: { requests: { limit: 20 } } }] } }),
  )
  await running.reload('signal')
  expect(await limitAt(port!)).toBe('30')
  await set(adminPort!, 'requests=0')
  expect(await status(port!)).toBe(429)
  const { stdout } = await set(adminPort!, 'requests=default')
  expect(stdout).toContain(`to 20: the client's own limit of the file.`)
  expect(await limitAt(port!)).toBe('20')
})

it('is in force from the first call of a gateway that starts later, and in each worker', async () => {
  await settings()
  await setElsewhere(30)
  const running = await serving({ file }, ['--workers', String(WORKERS)])
  const loaded = () => running.lines().filter(({ msg }) => msg === 'limit overrides changed')
  expect(await limitAt(running.port)).toBe('30')
  await until('each has logged it', () => loaded().length === WORKERS)
  await set(running.adminPort, 'requests=25', '--note', 'a reason', '--until', '2100-01-01T00:00:00Z')
  await until('each has it', () => loaded().length === 2 * WORKERS)
  expect(loaded().at(-1)).toMatchObject({
    ...{ level: 'info', overrides: 1, gone: [`client:${client} requests=30, permanent`] },
    added: [
      expect.stringMatching(
        new RegExp(
          `^client:${client} requests=25, until 2100-01-01T00:00:00.000Z, by loopback: a reason \\(sent as \\S+@\\S+\\)$`,
        ),
      ),
    ],
  })
  const { body } = await call(running.adminPort, { path: '/metrics' })
  expect(body).toMatch(/^sluice_limit_overrides 1$/m)
  const explained = await call(running.adminPort, { path: `/explain?request=/transactions&client=${client}` })
  expect(explained.json).toMatchObject({ limits: [{ limit: 25, used: expect.any(Number) as number }] })
  expect((await call(running.adminPort, { path: '/overrides' })).json.overrides).toHaveLength(1)
  for (let i = 0; i < 8; i++) {
    const got = await call(running.port, { token: mine, headers: { Connection: 'close' } })
    expect(got.headers['x-ratelimit-limit']).toBe('25')
  }
})

it('stays in force while Redis is down, and when it comes back without it', async () => {
  const { port, adminPort } = await gateway({
    store: { redis: { url: redis.url }, onOutage: 'local', instances: 1 },
  })
  await set(adminPort, 'requests=30')
  await redis.kill()
  const got = await call(port, { token: mine })
  expect([got.status, got.headers['x-ratelimit-limit']]).toEqual([200, '30'])
  await redis.start()
  await until('it is written back', async () => (await redis.command('EXISTS', 'sluice:{}:~overrides')) === 1)
  expect(await limitAt(port)).toBe('30')
})

it('does not fail requests if its key is damaged', async () => {
  const { port, adminPort } = await gateway()
  for (const command of [
    ['SET', '{"client":"'],
    ['RPUSH', 'x'],
  ] as const) {
    await redis.command('DEL', 'sluice:{}:~overrides')
    await redis.command(command[0], 'sluice:{}:~overrides', command[1])
    expect([200, 429]).toContain(await status(port))
  }
  await set(adminPort, 'requests=30')
  expect(await limitAt(port)).toBe('30')
})
