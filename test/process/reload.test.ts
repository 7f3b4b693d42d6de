import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Log } from '../../src/observe/log.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import { createReload } from '../../src/process/reload.ts'
import { load } from '../config/load-text.ts'
import { call, token, yaml } from '../helpers/gateway.ts'
import { startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

let data: TestUpstream
let other: TestUpstream
beforeAll(async () => {
  data = await startUpstream()
  other = await startUpstream((_, response) => response.writeHead(202).end())
})
afterAll(async () => {
  await data.close()
  await other.close()
})

let folder: string
let file: string
const gateways: ServingProcess[] = []
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-reload-'))
  file = join(folder, 'sluice.yaml')
})
afterEach(() => {
  for (const gateway of gateways.splice(0)) gateway.kill()
  rmSync(folder, { recursive: true, force: true })
})

async function started(text: string): Promise<ServingProcess> {
  writeFileSync(file, text)
  const gateway = await serving({ file })
  gateways.push(gateway)
  return gateway
}
const told = (gateway: ServingProcess, words: string) =>
  gateway.lines().filter(({ msg }) => typeof msg === 'string' && msg.includes(words))
const remaining = async (gateway: ServingProcess, mine: string): Promise<string> => {
  const { headers } = await call(gateway.port, { token: mine })
  return `${String(headers['x-ratelimit-remaining'])} of ${String(headers['x-ratelimit-limit'])}`
}

describe('a changed file', () => {
  it('changes limits for the calls already counted, up and down, and takes other upstreams', async () => {
    const gateway = await started(yaml({ data: data.url, limit: 10 }))
    const mine = await token('acme')
    for (let i = 0; i < 4; i++) await call(gateway.port, { token: mine })
    expect(await remaining(gateway, mine)).toBe('5 of 10')

    writeFileSync(file, yaml({ data: data.url, limit: 100 }))
    await until('the new limit', async () => told(gateway, 'configuration reloaded').length === 1)
    expect(await remaining(gateway, mine)).toBe('94 of 100')

    writeFileSync(file, yaml({ data: other.url, limit: 3 }))
    await until('the lower limit', async () => told(gateway, 'configuration reloaded').length === 2)
    expect(await remaining(gateway, mine)).toBe('0 of 3')
    expect((await call(gateway.port, { token: await token('else') })).status).toBe(202)
  })

  it('that is bad changes nothing, and is told with its mistakes, counted, and forgotten once mended', async () => {
    const gateway = await started(yaml({ data: data.url, limit: 10 }))
    const metric = async (line: string) =>
      (await call(gateway.adminPort, { path: '/metrics' })).body.includes(line)
    expect(await metric('sluice_config_last_reload_successful 1')).toBe(true)
    expect(await metric('sluice_config_reload_failures_total 0')).toBe(true)
    writeFileSync(
      file,
      yaml({ data: data.url, limit: 10 }).replace('limit: 10', 'limit: ten').replace('store:', 'stroe:'),
    )
    await until('the mistakes are told', () => told(gateway, 'configuration rejected').length === 1)
    const [line] = told(gateway, 'configuration rejected')
    expect(line).toMatchObject({ level: 'error' })
    expect(line!['problems']).toEqual(
      expect.arrayContaining([expect.stringMatching(/sluice\.yaml:4:1: stroe: /)]),
    )
    expect(await metric('sluice_config_last_reload_successful 0')).toBe(true)
    expect(await metric('sluice_config_reload_failures_total 1')).toBe(true)
    expect(await remaining(gateway, await token('acme'))).toBe('9 of 10')
    writeFileSync(file, yaml({ data: data.url, limit: 20 }))
    await until('the mended file is taken', () => told(gateway, 'configuration reloaded').length === 1)
    expect(await metric('sluice_config_last_reload_successful 1')).toBe(true)
    expect(await metric('sluice_config_reload_failures_total 1')).toBe(true)
    expect(await remaining(gateway, await token('acme'))).toBe('18 of 20')
  })

  it('put back as it was after a bad one is told to be good again', async () => {
    const good = yaml({ data: data.url })
    const gateway = await started(good)
    writeFileSync(file, '')
    await until('the mistake is told', () => told(gateway, 'configuration rejected').length === 1)
    writeFileSync(file, good)
    await until('it is good again', () => told(gateway, 'valid again').length === 1)
    const { body } = await call(gateway.adminPort, { path: '/metrics' })
    expect(body).toContain('sluice_config_last_reload_successful 1')
  })

  it('is seen through the symbolic links of a ConfigMap', async () => {
    const version = (name: string, limit: number) => {
      mkdirSync(join(folder, name))
      writeFileSync(join(folder, name, 'sluice.yaml'), yaml({ data: data.url, limit }))
      symlinkSync(name, join(folder, '..data_tmp'))
      renameSync(join(folder, '..data_tmp'), join(folder, '..data'))
    }
    version('..1', 10)
    symlinkSync('..data/sluice.yaml', file)
    const gateway = await serving({ file })
    gateways.push(gateway)
    expect(await remaining(gateway, await token('acme'))).toBe('9 of 10')
    version('..2', 20)
    await until('the new limit', async () => told(gateway, 'configuration reloaded').length === 1)
    expect(await remaining(gateway, await token('acme'))).toBe('18 of 20')
  })

  it('warns of what only a restart can change', async () => {
    const gateway = await started(yaml({ data: data.url }))
    const text = yaml({ data: data.url, store: '{ redis: { url: "redis://127.0.0.1:1" } }' })
    // `trustedProxies` alone is taken at once.
    const listen = 'port: 0, maxConnections: 5, headersTimeout: 3s, trustedProxies: [192.0.2.7/32]'
    writeFileSync(file, text.replace('port: 0, trustedProxies: []', listen))
    await until('the warning', () => told(gateway, 'need a restart').length === 1)
    const keys = ['listen.maxConnections', 'listen.headersTimeout', 'store']
    expect(told(gateway, 'need a restart')).toMatchObject([{ level: 'warn', keys }])
  })
})

describe('a file that cannot be put into force', () => {
  it('is told and counted once while it stays so, though it can be read, and again after it could', async () => {
    const first = { ...(await load(yaml({ data: data.url }))), loadMs: 0 }
    const other = { ...(await load(yaml({ data: data.url, limit: 3 }))), loadMs: 0 }
    const lines: string[] = []
    const say = (_: unknown, words: string) => void lines.push(words)
    const metrics = createMetrics()
    let refusal: Error | undefined = new Error('no such cipher')
    let next = other
    const reload = createReload({
      config: first.config,
      source: { ...first, load: async () => next },
      apply() {
        if (refusal) throw refusal
      },
      log: { info: say, warn: say, error: say } as unknown as Log,
      metrics,
    })
    const NOT_TAKEN = 'configuration rejected; the previous one stays in force'
    for (let i = 0; i < 3; i++) await reload('changed')
    expect(lines.splice(0)).toEqual([NOT_TAKEN])
    expect(await metrics.text()).toContain('sluice_config_reload_failures_total 1')
    await reload('asked')
    expect(lines.splice(0)).toEqual([NOT_TAKEN])
    expect(await metrics.text()).toContain('sluice_config_reload_failures_total 2')
    next = first
    for (let i = 0; i < 2; i++) await reload('changed')
    expect(lines.splice(0)).toEqual(['configuration valid again and unchanged'])
    next = other
    await reload('changed')
    expect(lines.splice(0)).toEqual([NOT_TAKEN])
    refusal = undefined
    await reload('changed')
    expect(lines.splice(0)).toEqual(['configuration reloaded'])
    refusal = new Error('no such cipher')
    next = first
    await reload('changed')
    expect(lines).toEqual([NOT_TAKEN])
  })
})

describe('the keys of an issuer', () => {
  let issuer: TestIssuer
  beforeEach(async () => {
    issuer = await startIssuer({ algorithms: ['ES256'] })
  })
  afterEach(() => issuer.close())
  const trusting = (leeway = '5s') =>
    yaml({
      data: data.url,
      store: '{ redis: { url: "redis://127.0.0.1:1" } }',
      tokens: `tokens: { issuer: "${issuer.issuer}", audience: "${issuer.audience}", leeway: ${leeway}, jwks: "${issuer.jwksUri}" }`,
    })
  const status = async (gateway: ServingProcess) =>
    (await call(gateway.port, { token: issuer.token() })).status

  it.each([[[]], [['--workers', '2']]])(
    'survive a change of another setting while it is down: %j',
    async (args) => {
      writeFileSync(file, trusting())
      const gateway = await serving({ file }, args)
      gateways.push(gateway)
      expect(await status(gateway)).toBe(200)
      await until('every process is ready', async () => {
        return (await call(gateway.adminPort, { path: '/readyz' })).status === 200
      })
      issuer.fault = 'down'
      writeFileSync(file, trusting('6s'))
      gateway.kill('SIGHUP')
      await until('it is taken', () => told(gateway, 'configuration reloaded').length > 0)
      for (let i = 0; i < 10; i++) expect(await status(gateway)).toBe(200)
      const metrics = (await call(gateway.adminPort, { path: '/metrics' })).body
      expect(metrics).toMatch(
        new RegExp(`^sluice_issuer_keys_age_seconds\\{issuer="${issuer.issuer}"\\} [0-9.]+$`, 'm'),
      )
    },
  )

  it('of a new one that gives none are no keys: the configuration before stays in force', async () => {
    issuer.fault = 'down'
    const gateway = await started(yaml({ data: data.url }))
    expect(await remaining(gateway, await token('acme'))).toBe('999 of 1000')
    writeFileSync(file, trusting())
    await until('it is refused', () => told(gateway, 'configuration rejected').length > 0)
    expect(told(gateway, 'configuration rejected')).toMatchObject([
      { problems: [expect.stringContaining(`the keys of the issuer ${issuer.issuer} cannot be read: `)] },
    ])
    expect(await remaining(gateway, await token('acme'))).toBe('998 of 1000')
    const metrics = (await call(gateway.adminPort, { path: '/metrics' })).body
    expect(metrics).toContain('sluice_config_reload_failures_total 1')
    expect(metrics).toContain('sluice_config_last_reload_successful 0')
    issuer.fault = undefined
    gateway.kill('SIGHUP')
    await until('it is taken', () => told(gateway, 'configuration reloaded').length > 0)
    expect(await status(gateway)).toBe(200)
    expect((await call(gateway.port, { token: await token('acme') })).status).toBe(401)
  })

  it('are awaited by /readyz, which says so', async () => {
    issuer.fault = 'error'
    const gateway = await started(trusting())
    const ready = () => call(gateway.adminPort, { path: '/readyz' })
    expect(await ready()).toMatchObject({
      status: 503,
      body: `not ready: the keys of the issuer ${issuer.issuer} are not read yet\n`,
    })
    issuer.fault = undefined
    await until('it is ready', async () => (await ready()).status === 200)
    gateway.kill('SIGTERM')
    await until('it drains', async () => (await ready()).body === 'not ready: the gateway drains\n')
  })
})

describe('SIGHUP', () => {
  it('reads the file again even where its text is the same, and loses no call under way', async () => {
    const gateway = await started(yaml({ data: data.url }))
    const mine = await token('acme')
    const calls = Array.from({ length: 200 }, (_, i) => {
      if (i % 50 === 0) gateway.kill('SIGHUP')
      return call(gateway.port, { token: mine })
    })
    expect(new Set((await Promise.all(calls)).map(({ status }) => status))).toEqual(new Set([200]))
    await until('it is read', () => told(gateway, 'configuration reloaded').length > 0)
    expect(await remaining(gateway, mine)).toBe('799 of 1000')
  })
})
