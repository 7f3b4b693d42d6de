import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Log } from '../../src/observe/log.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import { createConfiguration } from '../../src/process/reload.ts'
import { load } from '../config/load-text.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, type LoggingGateway, startLogging, token, written, yaml } from '../helpers/gateway.ts'
import { startIssuer } from '../helpers/issuer.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { WORKERS } from '../helpers/runs.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const folder = createFolder()
const file = join(folder, 'sluice.yaml')
let gateway: LoggingGateway | ServingProcess
const [data, other, issuer] = await Promise.all([
  startUpstream(),
  startUpstream((_, response) => response.writeHead(202).end()),
  startIssuer({ algorithms: ['ES256'] }),
])

const logged = (words: string) =>
  gateway.lines().filter(({ msg }) => typeof msg === 'string' && msg.includes(words))
/** Waits for another line with these words, and returns it. */
async function onceLogged(words: string, act: () => void | Promise<void>): Promise<Record<string, unknown>> {
  const before = logged(words).length
  await act()
  await until(words, () => logged(words).length > before)
  return logged(words)[before]!
}
/** Lets the gateway read its file again: one in this process, or one that watches it or gets a signal. */
async function reload(trigger: 'file-change' | 'signal'): Promise<void> {
  if ('running' in gateway) await gateway.running.reload(trigger)
  else if (trigger === 'signal') gateway.kill('SIGHUP')
}
const changed = async (text: string): Promise<void> => {
  writeFileSync(file, text)
  await reload('file-change')
}
const reloaded = (text: string) => onceLogged('configuration reloaded', () => changed(text))
const rejected = (text: string) => onceLogged('configuration rejected', () => changed(text))
const metrics = async () => (await call(gateway.adminPort, { path: '/metrics' })).body
const ready = () => call(gateway.adminPort, { path: '/readyz' })
async function remaining(mine: string): Promise<string> {
  const { headers } = await call(gateway.port, { token: mine })
  return `${String(headers['x-ratelimit-remaining'])} of ${String(headers['x-ratelimit-limit'])}`
}
const settings = (limit: number, more: Partial<Parameters<typeof yaml>[0]> = {}): string =>
  yaml({ data: data.url, limit, ...more })
/** Returns a configuration that accepts the tokens of the test issuer. */
const trusting = (leeway: string, store: object | 'memory' = 'memory'): string =>
  settings(1000, {
    store,
    tokens: { issuer: issuer.issuer, audience: issuer.audience, leeway, jwks: issuer.jwksUri },
  })
const status = async () => (await call(gateway.port, { token: issuer.token() })).status

it('a changed file is detected through the symbolic links of a ConfigMap', async () => {
  /** Replaces the folder by a new version, as Kubernetes does for a ConfigMap. */
  const version = (name: string, limit: number) => {
    mkdirSync(join(folder, name))
    writeFileSync(join(folder, name, 'mounted.yaml'), settings(limit))
    symlinkSync(name, join(folder, '..data_next'))
    renameSync(join(folder, '..data_next'), join(folder, '..data'))
  }
  const mounted = join(folder, 'mounted.yaml')
  version('..1', 10)
  symlinkSync('..data/mounted.yaml', mounted)
  gateway = await serving({ file: mounted })
  const mine = await token('mounted')
  expect(await remaining(mine)).toBe('9 of 10')
  const line = await onceLogged('configuration reloaded', () => version('..2', 20))
  expect(line['changes']).toEqual(['limits.requests.limit 10 → 20'])
  expect(await remaining(mine)).toBe('18 of 20')
})

describe('a changed file', () => {
  let mine: string
  let clients = 0
  beforeAll(async () => {
    gateway = await startLogging(written(settings(20), file))
  })
  beforeEach(async () => {
    mine = await token(`client-${++clients}`)
  })

  it('a changed file raises and lowers limits for the calls already counted, and replaces upstreams', async () => {
    await reloaded(settings(10))
    for (let i = 0; i < 4; i++) await call(gateway.port, { token: mine })
    expect(await remaining(mine)).toBe('5 of 10')
    await reloaded(settings(100))
    expect(await remaining(mine)).toBe('94 of 100')
    expect(await metrics()).toContain(`sluice_upstream_up{upstream="data",address="${data.url}"} 1`)
    await reloaded(settings(3, { data: other.url }))
    expect(await remaining(mine)).toBe('0 of 3')
    expect(await metrics()).not.toContain(data.url)
    expect((await call(gateway.port, { token: await token('else') })).status).toBe(202)
  })

  it('an invalid file changes nothing, is logged with its mistakes, is counted, and can be corrected', async () => {
    await reloaded(settings(10))
    expect(await metrics()).toMatch(/^sluice_config_last_reload_successful 1$/m)
    expect(await metrics()).toMatch(/^sluice_config_reload_failures_total 0$/m)
    const line = await rejected(settings(10).replace('limit: 10', 'limit: ten').replace('store:', 'stroe:'))
    expect(line).toMatchObject({ level: 'error' })
    expect(line['problems']).toEqual(
      expect.arrayContaining([expect.stringMatching(/sluice\.yaml:4:1: stroe: /)]),
    )
    expect(await metrics()).toMatch(/^sluice_config_last_reload_successful 0$/m)
    const { reloads } = (await call(gateway.adminPort, { path: '/overview' })).json
    const end = { at: expect.any(String) as string, hash: expect.any(String) as string }
    expect(reloads.slice(0, 2)).toEqual([
      { ...end, problems: line['problems'], changes: [] },
      { ...end, problems: [], changes: expect.arrayContaining(['limits.requests.limit 3 → 10']) as string[] },
    ])
    expect(await metrics()).toMatch(/^sluice_config_reload_failures_total 1$/m)
    expect(await remaining(mine)).toBe('9 of 10')
    await onceLogged('configuration valid again', () => changed(settings(10)))
    expect(await metrics()).toMatch(/^sluice_config_last_reload_successful 1$/m)
    expect(await metrics()).toMatch(/^sluice_config_reload_failures_total 1$/m)
    await rejected('')
    await reloaded(settings(20))
    expect(await metrics()).toMatch(/^sluice_config_last_reload_successful 1$/m)
    expect(await remaining(mine)).toBe('18 of 20')
  })

  it('a file whose issuer has no keys is rejected, and applied once the issuer has keys', async () => {
    await reloaded(settings(1000))
    expect(await remaining(mine)).toBe('999 of 1000')
    issuer.fault = 'down'
    expect(await rejected(trusting('5s'))).toMatchObject({
      problems: [expect.stringContaining(`cannot read the keys of ${issuer.issuer}: `)],
    })
    expect(await remaining(mine)).toBe('998 of 1000')
    expect(await metrics()).toMatch(/^sluice_config_last_reload_successful 0$/m)
    issuer.fault = undefined
    await onceLogged('configuration reloaded', () => reload('signal'))
    expect(await status()).toBe(200)
    expect((await call(gateway.port, { token: mine })).status).toBe(401)
  })

  it('the file is read again on SIGHUP even if its text is the same, without losing calls in flight', async () => {
    await reloaded(settings(1000))
    await onceLogged('configuration reloaded', async () => {
      const calls = Array.from({ length: 200 }, (_, i) => {
        if (i % 50 === 0) void reload('signal')
        return call(gateway.port, { token: mine })
      })
      expect(new Set((await Promise.all(calls)).map(({ status }) => status))).toEqual(new Set([200]))
    })
    expect(await remaining(mine)).toBe('799 of 1000')
  })

  it('a changed file with settings that need a restart causes a warning', async () => {
    const more = { tracing: { endpoint: 'http://127.0.0.1:1/' } }
    const text = settings(1000, { store: { redis: { url: 'redis://127.0.0.1:1' } }, more })
    // `trustedProxies` is applied without a restart.
    const listen = 'port: 0, maxConnections: 5, headersTimeout: 3s, trustedProxies: [192.0.2.7/32]'
    const line = await onceLogged('need a restart', () =>
      changed(text.replace('port: 0, trustedProxies: []', listen)),
    )
    const keys = ['listen.headersTimeout', 'listen.maxConnections', 'store', 'tracing']
    expect(line).toMatchObject({ level: 'warn', keys })
  })
})

describe('the keys of an issuer, with several workers', () => {
  const STORE = { redis: { url: 'redis://127.0.0.1:1' } }
  let stop: () => void
  beforeAll(async () => {
    issuer.fault = 'error'
    writeFileSync(file, trusting('5s', STORE))
    const started = await serving({ file }, ['--workers', String(WORKERS)])
    gateway = started
    stop = () => started.kill('SIGTERM')
  })

  it('/readyz waits for the keys of an issuer, and names the issuer', async () => {
    const body = `not ready: the keys of the issuer ${issuer.issuer} are not read yet\n`
    expect(await ready()).toMatchObject({ status: 503, body })
    issuer.fault = undefined
    await until('it is ready', async () => (await ready()).status === 200)
  })

  it('the keys of an issuer survive a change of another setting while the issuer is down', async () => {
    await until('every worker has them', async () => {
      const answers = await Promise.all(Array.from({ length: 10 }, status))
      return answers.every((status) => status === 200)
    })
    issuer.fault = 'down'
    writeFileSync(file, trusting('6s', STORE))
    await onceLogged('configuration reloaded', () => reload('signal'))
    for (let i = 0; i < 10; i++) expect(await status()).toBe(200)
    const age = `^sluice_issuer_keys_age_seconds\\{issuer="${issuer.issuer}"\\} [0-9.]+$`
    expect(await metrics()).toMatch(new RegExp(age, 'm'))
    stop()
    await until('it drains', async () => (await ready()).body === 'not ready: the gateway is draining\n')
  })
})

it('a file that cannot be applied is logged and counted once, and again after a success', async () => {
  const first = { ...(await load(settings(1000))), loadMs: 0 }
  const second = { ...(await load(settings(3))), loadMs: 0 }
  const lines: string[] = []
  const write = (_: unknown, words: string) => void lines.push(words)
  const counters = createMetrics()
  const wrong = new Error('no such cipher')
  let refusal: Error | undefined = wrong
  let next = second
  const apply = async (): Promise<void> => {
    if (refusal) throw refusal
  }
  const log = { info: write, warn: write, error: write } as unknown as Log
  const source = { ...first, load: async () => next }
  const { reload } = createConfiguration(first.config, source, { apply, log, metrics: counters })
  const REJECTED = 'configuration rejected; the previous one stays in force'
  for (let i = 0; i < 3; i++) await reload('file-change')
  expect(lines.splice(0)).toEqual([REJECTED])
  expect(await counters.text()).toContain('sluice_config_reload_failures_total 1')
  await reload('signal')
  expect(lines.splice(0)).toEqual([REJECTED])
  expect(await counters.text()).toContain('sluice_config_reload_failures_total 2')
  next = first
  for (let i = 0; i < 2; i++) await reload('file-change')
  expect(lines.splice(0)).toEqual(['configuration valid again and unchanged'])
  next = second
  await reload('file-change')
  expect(lines.splice(0)).toEqual([REJECTED])
  refusal = undefined
  await reload('file-change')
  expect(lines.splice(0)).toEqual(['configuration reloaded'])
  refusal = wrong
  next = first
  await reload('file-change')
  expect(lines).toEqual([REJECTED])
})

it('the last twenty reloads are kept, with at most twenty problems of each', async () => {
  const first = { ...(await load(settings(1000))), loadMs: 0 }
  let loads = 0
  const refused = Array.from({ length: 1000 }, (_, i) => `problem ${i}`).join('\n')
  const source = {
    ...first,
    async load() {
      if (++loads === 25) throw new Error(refused)
      return { ...first, changes: [`change ${loads}`] }
    },
  }
  const ignore = (): void => {}
  const log = { info: ignore, warn: ignore, error: ignore } as unknown as Log
  const parts = { apply: async () => {}, log, metrics: createMetrics() }
  const { reload, reloads } = createConfiguration(first.config, source, parts)
  for (let i = 0; i < 25; i++) await reload('signal')
  expect(reloads.map(({ changes }) => changes)).toEqual([
    [],
    ...Array.from({ length: 19 }, (_, i) => [`change ${24 - i}`]),
  ])
  expect(reloads[0]!.problems).toHaveLength(20)
})
