import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, type LoggingGateway, startLogging, token, yaml } from '../helpers/gateway.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { type RedisServer, type RedisServerOptions, startRedis } from '../helpers/redis.ts'
import { WORKERS } from '../helpers/runs.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const folder = createFolder()
const [file, secret] = [join(folder, 'sluice.yaml'), join(folder, 'secret')]
const OLD = 'the-old-secret-of-16'
const NEW = 'the-new-secret-of-16'
const LIMIT = 1000

let redis: RedisServer | undefined
let gateway: LoggingGateway | ServingProcess
const data = await startUpstream()

const lines = (words: string) =>
  gateway.lines().filter(({ msg }) => typeof msg === 'string' && msg.includes(words))
const refusals = () => lines('refuses the user name or password')

/** Reloads the files of a gateway in this process; one in a process of its own watches them. */
async function reload(): Promise<void> {
  if ('running' in gateway) await gateway.running.reload('file-change')
}

/** Writes the secret into its file, and waits until the gateway has read it. */
async function renew(value: string, keys: readonly string[]): Promise<void> {
  const before = lines('secrets renewed').length
  writeFileSync(secret, value)
  await reload()
  await until('the secret is renewed', () => lines('secrets renewed').length > before)
  expect(lines('secrets renewed').at(-1)).toMatchObject({ level: 'info', keys })
  expect(lines('need a restart')).toEqual([])
}

describe('a password of Redis in a file', () => {
  const PASSWORD = ['store.redis.password']
  const setUser = (...rules: string[]) => redis!.command('ACL', 'SETUSER', 'sluice', ...rules)
  const kill = () => redis!.command('CLIENT', 'KILL', 'TYPE', 'normal')
  const asUser = ({ url }: RedisServer) => ({ url, username: 'sluice', password: `file:${secret}` })
  let mine: string
  let calls: number

  /** Starts Redis, and a gateway whose `store.redis` is `settings`. */
  async function start(
    settings: (redis: RedisServer) => object,
    options: RedisServerOptions = {},
    workers = 1,
  ): Promise<void> {
    ;[mine, calls] = [await token(`client-${workers}`), 0]
    writeFileSync(secret, OLD)
    redis = await startRedis(options)
    await setUser('on', `>${OLD}`, '~*', '+@all')
    const store = { redis: settings(redis), timeout: '5s' }
    const text = yaml({ data: data.url, store, limit: LIMIT, window: '1h' })
    writeFileSync(file, text)
    gateway =
      workers === 1 ? await startLogging({ file }) : await serving({ file }, ['--workers', String(workers)])
  }

  /** Makes a call that is answered; returns what decided it. */
  async function mode(): Promise<unknown> {
    const { status, headers } = await call(gateway.port, { token: mine })
    calls++
    expect(status).toBe(200)
    const line = () => gateway.lines().find(({ requestId }) => requestId === headers['x-request-id'])
    await until('the line is written', () => line() !== undefined)
    return line()!['mode']
  }
  /** Waits until Redis has counted each call, also those that the fallback decided. */
  async function isCounted(): Promise<void> {
    await until('each call is counted', async () => {
      const { headers } = await call(gateway.port, { token: mine })
      return Number(headers['x-ratelimit-remaining']) === LIMIT - ++calls
    })
  }

  it('a password that is one of two is replaced without a decision of the fallback', async () => {
    await start(asUser)
    expect(await mode()).toBe('store')
    await setUser(`>${NEW}`)
    await renew(NEW, PASSWORD)
    await setUser(`<${OLD}`)
    expect(await mode()).toBe('store')
    expect(lines('Redis unavailable')).toEqual([])
    await kill()
    await until('Redis decides', async () => (await mode()) === 'store')
    await isCounted()
    expect(refusals()).toEqual([])
    expect(gateway.stdout()).not.toMatch(new RegExp(`${OLD}|${NEW}`))
  })

  it('a password that Redis has replaced already is used once the file has it, by every worker', async () => {
    const workers = WORKERS
    await start(asUser, {}, workers)
    const connected = async () =>
      String(await redis!.command('CLIENT', 'LIST')).match(/user=sluice/g)?.length ?? 0
    await until('every worker is connected', async () => (await connected()) === workers)
    await setUser('resetpass', `>${NEW}`)
    expect(await connected()).toBe(workers)
    await kill()
    await until('every worker is refused', () => refusals().length >= workers)
    await until('the fallback decides', async () => (await mode()) === 'local')
    await renew(NEW, PASSWORD)
    await until('every worker is connected', async () => (await connected()) === workers)
    await until('Redis is available to all', () => lines('available again').length === workers)
    expect(await mode()).toBe('store')
    await isCounted()
  })

  it('a password without users (requirepass) is replaced', async () => {
    await start(({ url }) => ({ url, password: `file:${secret}` }), { password: OLD })
    await redis!.command('CONFIG', 'SET', 'requirepass', NEW)
    expect(await mode()).toBe('store')
    await renew(NEW, PASSWORD)
    await kill()
    await until('Redis decides', async () => (await mode()) === 'store')
    await isCounted()
    expect(refusals()).toEqual([])
  })

  it('a password within a URL is replaced', async () => {
    const url = (password: string) => `redis://sluice:${password}@127.0.0.1:${redis!.port}`
    await start(
      () => {
        writeFileSync(secret, url(OLD))
        return { url: `file:${secret}` }
      },
      { tcp: true },
    )
    await setUser('resetpass', `>${NEW}`)
    await renew(url(NEW), ['store.redis.url'])
    await kill()
    await until('Redis decides', async () => (await mode()) === 'store')
    expect(refusals()).toEqual([])
  })

  it('a password is replaced while other settings of the store wait for a restart; that of another server is not used', async () => {
    await start(({ url }) => ({ url, username: 'sluice', password: OLD }))
    const written = async (settings: object, timeout: string) => {
      const store = { redis: settings, timeout }
      writeFileSync(file, yaml({ data: data.url, store, limit: LIMIT }))
      await reload()
    }
    await written({ url: redis!.url, username: 'sluice', password: NEW }, '6s')
    await until('a warning', () => lines('need a restart').length === 1)
    expect(lines('secrets renewed')).toEqual([expect.objectContaining({ keys: PASSWORD })])
    expect(lines('need a restart')[0]).toMatchObject({ keys: ['store.timeout'] })

    await written({ url: 'redis://127.0.0.1:1', password: 'of-another' }, '5s')
    await until('a warning', () => lines('need a restart').length === 2)
    const others = ['store.redis.url', 'store.redis.password', 'store.redis.username']
    expect((lines('need a restart')[1]!['keys'] as string[]).toSorted()).toEqual(others.toSorted())
    expect(lines('secrets renewed')).toHaveLength(1)
    await setUser('resetpass', `>${NEW}`)
    await kill()
    await until('Redis decides', async () => (await mode()) === 'store')
    expect(refusals()).toEqual([])
    expect(gateway.stdout()).not.toMatch(new RegExp(`${OLD}|${NEW}|of-another`))
  })
})

it('an admin token in a file is replaced at once', async () => {
  writeFileSync(secret, OLD)
  writeFileSync(file, yaml({ data: data.url, admin: { port: 0, token: `file:${secret}` } }))
  gateway = await serving({ file })
  const status = async (sent: string) => {
    const headers = { Authorization: `Bearer ${sent}` }
    return (await call(gateway.adminPort, { path: '/limits/acme', headers })).status
  }
  expect([await status(OLD), await status(NEW)]).toEqual([200, 401])
  await renew(NEW, ['admin.token'])
  expect([await status(OLD), await status(NEW)]).toEqual([401, 200])
  writeFileSync(secret, '')
  await until('it is rejected', () => lines('configuration rejected').length === 1)
  expect(await status(NEW)).toBe(200)
  expect(gateway.stdout()).not.toMatch(new RegExp(`${OLD}|${NEW}`))
})
