import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { createServer as createTlsServer } from 'node:https'
import { Agent } from 'node:http'
import { dirname, join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { loadOrKept } from '../../src/config/kept/load-or-kept.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, type LoggingGateway, startLogging, token, written, yaml } from '../helpers/gateway.ts'
import { serving, sluice } from '../helpers/process.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { FULL } from '../helpers/runs.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const [data, payments] = await Promise.all([
  startUpstream(),
  startUpstream((_, response) => response.writeHead(202).end()),
])
const mine = await token('acme')
const agent = new Agent({ keepAlive: false })
let folder: string
let gateway: LoggingGateway
beforeEach(() => {
  folder = createFolder()
  mkdirSync(join(folder, 'teams'))
})

const write = (team: string, text: string) => writeFileSync(join(folder, `teams/${team}.yaml`), text)
const team = (name: string, limit: number) => `prefix: /${name}
upstreams: { own: { url: "${payments.url}" } }
limits: { requests: { per: [client], limit: ${limit}, window: 1h } }
routes:
  - { match: "GET /${name}/*", upstream: own, authenticate: bearer, limits: [requests] }
`
/** The main file, with an open route for everything. */
const main = (more: object = {}): string =>
  yaml({
    data: data.url,
    routes: [{ match: '/*', upstream: 'data', authenticate: 'none' }],
    limits: {},
    more: { include: 'teams/*.yaml', ...more },
  })
const KEEP = { configuration: { keep: 'kept.json' } }

async function start(more?: object): Promise<void> {
  gateway = await startLogging(written(main(more), join(folder, 'sluice.yaml')))
}
const reload = () => gateway.running.reload('file-change')
const get = async (path: string) => (await call(gateway.port, { path, token: mine })).status
const limitOf = async (path: string) =>
  (await call(gateway.port, { path, token: mine })).headers['x-ratelimit-limit']
const metric = async (name: string) => {
  const { body } = await call(gateway.adminPort, { path: '/metrics' })
  return body.split('\n').filter((line) => line.startsWith(name))
}
const logged = (words: string) => gateway.lines().filter(({ msg }) => String(msg).includes(words))
/** Waits for the line with these words that has this place among them, and returns it. */
async function line(words: string, place = 0): Promise<Record<string, unknown>> {
  await until(words, () => logged(words)[place] !== undefined)
  return logged(words)[place]!
}
const overview = async () => (await call(gateway.adminPort, { path: '/overview' })).json

describe('teams', () => {
  it('serve what they own, and nothing else does: not even an open route of the main file', async () => {
    write('payments', team('payments', 5))
    write('accounts', team('accounts', 7))
    await start()
    expect(await limitOf('/payments/a')).toBe('5')
    expect(await limitOf('/Accounts/a')).toBe('7')
    expect([await get('/payments/a'), await get('/else')]).toEqual([202, 200])
    const response = await call(gateway.port, { method: 'POST', path: '/payments/a', token: mine })
    expect([response.status, response.headers.allow]).toEqual([405, 'GET, HEAD'])
    const unauthenticated = await call(gateway.port, { path: '/payments' })
    expect(unauthenticated.status).toBe(401)
  })

  it('are replaced one by one: a mistake leaves out only the file that has it', async () => {
    write('payments', team('payments', 5))
    write('accounts', team('accounts', 7))
    await start()
    write('payments', team('payments', 6).replace('window', 'windw'))
    write('accounts', team('accounts', 8))
    await reload()
    expect([await limitOf('/payments/a'), await limitOf('/accounts/a')]).toEqual(['5', '8'])
    const told = await line('left out')
    expect(told).toMatchObject({ level: 'error', previous: 1, invalid: 0, valid: 1 })
    expect(told['problems']).toEqual([
      expect.stringMatching(/teams\/payments\.yaml:3:\d+: limits\.requests\.windw: /),
    ])
    expect(await metric('sluice_configuration_files')).toEqual([
      'sluice_configuration_files{state="valid"} 1',
      'sluice_configuration_files{state="previous"} 1',
      'sluice_configuration_files{state="invalid"} 0',
    ])
    expect(await metric('sluice_config_last_reload_successful')).toEqual([
      'sluice_config_last_reload_successful 1',
    ])
    expect((await call(gateway.adminPort, { path: '/readyz' })).status).toBe(200)
    await until('the console shows it', async () => (await overview()).leftOut.length > 0)
    expect((await overview()).leftOut).toEqual(told['problems'])
    write('payments', team('payments', 6))
    await reload()
    expect(await limitOf('/payments/a')).toBe('6')
    await until('the console shows no mistakes', async () => (await overview()).leftOut.length === 0)
  })

  it('are logged again when only their mistakes change, and once if nothing does', async () => {
    write('payments', team('payments', 5))
    await start()
    write('payments', team('payments', 6).replace('window', 'windw'))
    await reload()
    await reload()
    write('payments', team('payments', 6).replace('limits:', 'limts:'))
    await reload()
    expect((await line('left out', 1))['problems']).toContainEqual(
      expect.stringContaining('limts: unknown key'),
    )
    expect(logged('left out')).toHaveLength(2)
    expect(logged('configuration rejected')).toEqual([])
  })

  it('that are new and have mistakes get 503 for what they own', async () => {
    await start()
    expect(await get('/payments/a')).toBe(200)
    write('payments', team('payments', 5).replace('window', 'windw'))
    await reload()
    const response = await call(gateway.port, { method: 'POST', path: '/payments/a', body: 'x' })
    expect([response.status, response.json.detail]).toEqual([
      503,
      'The configuration of this part of the API is invalid.',
    ])
    expect(await get('/else')).toBe(200)
    const question = '/explain?request=GET%20%2Fpayments%2Fa'
    expect((await call(gateway.adminPort, { path: question })).json.refusal).toMatchObject({ status: 503 })
  })

  it('keep what they own if another file claims it', async () => {
    write('payments', team('payments', 5))
    await start()
    write('aaa', team('payments/x', 9))
    await reload()
    expect(await limitOf('/payments/x/y')).toBe('5')
    expect((await line('left out'))['problems']).toEqual([
      expect.stringMatching(
        /aaa\.yaml:1:9: prefix: overlaps with "\/payments\/\*", which .*payments\.yaml:1:9 owns/,
      ),
    ])
  })

  it('cannot take a route of the main file, also not by a file that is left out', async () => {
    const own = main().replace(
      'routes: [ ',
      'routes: [ { match: /login/form, upstream: data, authenticate: none }, ',
    )
    gateway = await startLogging(written(own, join(folder, 'sluice.yaml')))
    write('rogue', team('login', 5))
    await reload()
    expect((await line('left out'))['problems']).toEqual([
      expect.stringContaining('prefix: takes the route "/login/form" of the main file'),
    ])
    expect([await get('/login/form'), await get('/login/else')]).toEqual([200, 503])
  })

  it('end with their file, and begin with a new one', async () => {
    write('payments', team('payments', 5))
    await start()
    rmSync(join(folder, 'teams/payments.yaml'))
    write('cards', team('cards', 3))
    await reload()
    expect([await get('/payments/a'), await limitOf('/cards/a')]).toEqual([200, '3'])
  })

  it('keep the certificates in force if a file with them disappears, while other files change', async () => {
    const certificate = makeCertificate('localhost', undefined, '127.0.0.1')
    const server = createTlsServer(certificate, (_, response) => response.writeHead(203).end())
    const { port } = await listenLocally(server)
    const ca = join(folder, 'teams/secure/ca.pem')
    mkdirSync(dirname(ca))
    writeFileSync(ca, certificate.cert)
    const secure = (limit: number) =>
      team('secure', limit).replace(
        payments.url,
        `https://127.0.0.1:${port}", tls: { ca: secure/ca.pem }, host: "localhost`,
      )
    write('secure', secure(5))
    write('accounts', team('accounts', 7))
    await start()
    expect(await get('/secure/a')).toBe(203)
    rmSync(ca)
    write('accounts', team('accounts', 8))
    await reload()
    expect(logged('configuration rejected')).toEqual([])
    expect((await line('left out'))['problems']).toEqual([
      expect.stringMatching(
        /secure\.yaml:2:\d+: upstreams\.own\.tls\.ca: names .*ca\.pem, which does not exist$/,
      ),
    ])
    expect([await limitOf('/accounts/a'), await get('/secure/a'), await limitOf('/secure/a')]).toEqual([
      '8',
      203,
      '5',
    ])
    // Also if the next reload finds other mistakes, and with a text that would name another file.
    write('secure', secure(6).replace('ca.pem', 'other.pem'))
    await reload()
    expect([await get('/secure/a'), await limitOf('/secure/a')]).toEqual([203, '5'])
    writeFileSync(ca, certificate.cert)
    write('secure', secure(6))
    await reload()
    expect([await get('/secure/a'), await limitOf('/secure/a')]).toEqual([203, '6'])
    expect((await overview()).leftOut).toEqual([])
  })

  it('cannot take the name of a route from another, with which that one would have a mistake', async () => {
    const named = (name: string) => team(name, 5).replace('upstream: own,', 'name: list, upstream: own,')
    write('payments', named('payments'))
    write('aaa', team('aaa', 5))
    await start()
    write('aaa', named('aaa'))
    await reload()
    expect([logged('configuration rejected'), logged('left out')]).toEqual([[], []])
    expect(await get('/payments/a')).toBe(202)
    expect(await metric('sluice_http_requests_total')).toContainEqual(
      expect.stringContaining('route="payments/list"'),
    )
  })

  it('keep their counts while another file changes', async () => {
    write('payments', team('payments', 5))
    await start()
    for (let i = 0; i < 2; i++) await get('/payments/a')
    write('accounts', team('accounts', 7))
    await reload()
    const { headers } = await call(gateway.port, { path: '/payments/a', token: mine })
    expect(headers['x-ratelimit-remaining']).toBe('2')
    const { json } = await call(gateway.adminPort, { path: '/limits/acme' })
    expect(JSON.stringify(json)).toContain('payments/requests')
  })

  it('are not stopped by a main file that would make them invalid', async () => {
    write('payments', team('payments', 5).replace('limits: [requests]', 'limits: [shared]'))
    const withLimit = main().replace(
      'routes:',
      'limits: { shared: { per: [client], limit: 4, window: 1h } }\nroutes:',
    )
    gateway = await startLogging(written(withLimit, join(folder, 'sluice.yaml')))
    writeFileSync(join(folder, 'sluice.yaml'), main())
    await reload()
    expect((await line('configuration rejected'))['problems']).toEqual([
      expect.stringContaining('there is no such limit'),
    ])
    expect(await limitOf('/payments/a')).toBe('4')
  })

  it.runIf(FULL)(
    'are served by all workers, which take each change, and leave out the same file',
    async () => {
      const redis = await sharedRedis()
      const store = `store: { redis: { url: "${redis.url}" }, prefix: "teams-${process.pid}", timeout: 5s }`
      const file = join(folder, 'sluice.yaml')
      writeFileSync(
        file,
        main()
          .replace('log: { level: silent }', '')
          .replace(/^store: memory$/m, store),
      )
      write('payments', team('payments', 500))
      write('accounts', team('accounts', 700))
      const running = await serving({ file }, ['--workers', '2'])
      /** Returns the limits in the responses to several calls, each over a socket of its own: the workers accept in turn. */
      const told = async (path: string) => {
        const calls = Array.from({ length: 6 }, () =>
          call(running.port, { path, token: mine, headers: { Connection: 'close' }, agent }),
        )
        return new Set(
          (await Promise.all(calls)).map(({ status, headers }) => headers['x-ratelimit-limit'] ?? status),
        )
      }
      const tell = (path: string, limit: unknown) =>
        until(`all workers report ${String(limit)}`, async () => {
          const limits = await told(path)
          return limits.size === 1 && limits.has(limit as string)
        })
      await tell('/payments/a', '500')
      write('payments', team('payments', 501).replace('window', 'windw'))
      write('cards', team('cards', 9).replace('window', 'windw'))
      write('accounts', team('accounts', 701))
      await tell('/accounts/a', '701')
      expect(await told('/payments/a')).toEqual(new Set(['500']))
      const { body } = await call(running.adminPort, { path: '/metrics' })
      expect(body).toContain('sluice_configuration_files{state="previous"} 1\n')
      // A new team without a valid file owns its prefix at each worker.
      expect(await told('/cards/a')).toEqual(new Set([503]))
      write('payments', team('payments', 502))
      await tell('/payments/a', '502')
    },
  )

  it('begin although another has mistakes, which check reports', async () => {
    write('payments', team('payments', 5).replace('window', 'windw'))
    write('accounts', team('accounts', 7))
    await start()
    expect([await get('/payments/a'), await get('/accounts/a')]).toEqual([503, 202])
    const check = sluice(['check', '--config', join(folder, 'sluice.yaml')])
    expect(await check.ended()).toBe(78)
    expect(check.stderr()).toMatch(/teams\/payments\.yaml:3:\d+: limits\.requests\.windw: unknown key/)
  })

  it('do not begin if what a file owns cannot be read: an open route could serve it', async () => {
    write('payments', team('payments', 5).replace('prefix:', 'prefix: ['))
    await expect(start()).rejects.toThrow(/payments\.yaml:/)
  })

  it.runIf(FULL)('are watched through the links of a mounted ConfigMap, new files too', async () => {
    const mounted = join(folder, 'teams')
    const version = (name: string, files: Readonly<Record<string, string>>) => {
      mkdirSync(join(mounted, name))
      for (const [file, text] of Object.entries(files)) writeFileSync(join(mounted, name, file), text)
      symlinkSync(name, join(mounted, '..data_next'))
      renameSync(join(mounted, '..data_next'), join(mounted, '..data'))
      for (const file of Object.keys(files))
        if (!existsSync(join(mounted, file))) symlinkSync(join('..data', file), join(mounted, file))
    }
    version('..1', { 'payments.yaml': team('payments', 5) })
    writeFileSync(join(folder, 'sluice.yaml'), main().replace('log: { level: silent }', ''))
    const process = await serving({ file: join(folder, 'sluice.yaml') })
    const limit = async (path: string) =>
      (await call(process.port, { path, token: mine })).headers['x-ratelimit-limit']
    expect(await limit('/payments/a')).toBe('5')
    version('..2', { 'payments.yaml': team('payments', 6), 'cards.yaml': team('cards', 3) })
    await until(
      'both files',
      async () => (await limit('/payments/a')) === '6' && (await limit('/cards/a')) === '3',
    )
    rmSync(join(mounted, 'cards.yaml'))
    version('..3', { 'payments.yaml': team('payments', 6) })
    await until('the removal', async () => (await limit('/cards/a')) === undefined)
  })
})

describe('the kept configuration', () => {
  const kept = () => join(folder, 'kept.json')
  const file = () => join(folder, 'sluice.yaml')
  /** Starts with a main file that has a mistake, after a start with a valid one. */
  async function restart(): Promise<void> {
    await gateway.close()
    gateway = await startLogging(written(main(KEEP).replace('/*', '/*x'), file()))
  }
  /** Loads the broken file as a start does, and returns its mistakes. */
  async function failing(): Promise<string> {
    const loading = loadOrKept({ file: file() })
    return await loading.then(
      () => 'valid',
      ({ message }: Error) => message,
    )
  }

  it('is written after a valid load, for this user only, and is used by a start with mistakes', async () => {
    write('payments', team('payments', 5))
    await start(KEEP)
    expect(statSync(kept()).mode & 0o777).toBe(0o600)
    write('payments', team('payments', 6))
    await reload()
    const ago = Math.floor(Date.now() / 1000) - 3600
    utimesSync(kept(), ago, ago)
    write('payments', 'prefix: [')
    await restart()
    expect(await limitOf('/payments/a')).toBe('6')
    const told = await line('the kept one is in force')
    expect(told).toMatchObject({ level: 'error', file: kept() })
    expect(told['ageSeconds']).toBeGreaterThanOrEqual(3600)
    expect(told['problems']).toEqual([expect.stringMatching(/sluice\.yaml:\d+:\d+: routes\[0\]\.match: /)])
    expect(await metric('sluice_configuration_kept')).toEqual(['sluice_configuration_kept 1'])
    expect(await metric('sluice_config_last_reload_successful')).toEqual([
      'sluice_config_last_reload_successful 0',
    ])
    expect((await overview()).keptAt).toBe(new Date(ago * 1000).toISOString())
    // The kept one stays as it is.
    expect(statSync(kept()).mtimeMs / 1000).toBeLessThan(ago + 1)
    writeFileSync(file(), main(KEEP))
    write('payments', team('payments', 7))
    await reload()
    expect(await limitOf('/payments/a')).toBe('7')
    expect(await metric('sluice_configuration_kept')).toEqual(['sluice_configuration_kept 0'])
    expect(readFileSync(kept(), 'utf8')).toContain('limit: 7')
  })

  it('has the last valid version of a file of a team that has mistakes at the start', async () => {
    write('payments', team('payments', 5))
    await start(KEEP)
    write('payments', 'prefix: [')
    write('cards', team('cards', 3))
    await gateway.close()
    await start(KEEP)
    expect([await limitOf('/payments/a'), await limitOf('/cards/a')]).toEqual(['5', '3'])
    expect(await metric('sluice_configuration_kept')).toEqual(['sluice_configuration_kept 0'])
  })

  it('has references to secrets, not their values, and a secret in the file is a mistake', async () => {
    const secret = 'a-secret-token-of-operators'
    writeFileSync(join(folder, 'token'), secret)
    const withToken = (value: string) =>
      main(KEEP).replace('admin: { port: 0 }', `admin: { port: 0, token: "${value}" }`)
    gateway = await startLogging(written(withToken(`file:token`), file()))
    expect(readFileSync(kept(), 'utf8')).not.toContain(secret)
    writeFileSync(file(), withToken(secret))
    await gateway.close()
    rmSync(kept())
    const mistakes = await failing()
    expect(mistakes).toContain(
      'admin.token: would be copied by configuration.keep; write ${NAME} or file:/path',
    )
    expect(mistakes).not.toContain(secret)
  })

  it('is refused if others may write it, or if another version or another file was kept', async () => {
    await start(KEEP)
    await gateway.close()
    writeFileSync(file(), main(KEEP).replace('/*', '/*x'))
    const text = readFileSync(kept(), 'utf8')
    chmodSync(kept(), 0o620)
    expect(await failing()).toMatch(
      /kept\.json: the kept configuration may be written by other users; remove it/,
    )
    chmodSync(kept(), 0o600)
    writeFileSync(kept(), text.replace(/"sluice":"[^"]*"/, '"sluice":"0.0.1"'))
    expect(await failing()).toMatch(
      /sluice\.yaml:.*\n.*kept\.json: the kept configuration was kept by Sluice 0\.0\.1, .* or start Sluice 0\.0\.1/,
    )
    writeFileSync(kept(), text.replace('sluice.yaml', 'other.yaml'))
    expect(await failing()).toContain('give each configuration its own file')
    writeFileSync(kept(), '{')
    expect(await failing()).toContain('does not hold a configuration of Sluice')
    rmSync(kept())
    symlinkSync(file(), kept())
    expect(await failing()).toContain('is a symbolic link')
    rmSync(kept())
    expect(await failing()).not.toContain('kept.json')
  })

  it('is named by a flag for a file that cannot be read at all', async () => {
    await start(KEEP)
    await gateway.close()
    writeFileSync(file(), Buffer.from([0xff, 0xfe]))
    const process = await serving({ file: file() }, ['--keep', kept(), '--log-level', 'info'])
    expect((await call(process.port, { path: '/else' })).status).toBe(200)
  })
})
