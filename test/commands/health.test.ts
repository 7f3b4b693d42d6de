import { beforeAll, describe, expect, it } from 'vitest'
import { run } from '../../src/commands/health.ts'
import type { Io } from '../../src/commands/io.ts'
import { createFolder } from '../helpers/folder.ts'
import { startGateway, type TestGateway } from '../helpers/gateway.ts'
import { packagesLoaded, sluice as startProcess } from '../helpers/process.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { createIo, fileOf, itEndsWrongUsage, sluice } from './run.ts'

describe('sluice health', () => {
  let upstream: TestUpstream
  let gateway: TestGateway
  beforeAll(async () => {
    upstream = await startUpstream()
    gateway = await startGateway({ data: upstream.url })
  })
  const file = (host: string, rest = ''): string =>
    fileOf(`admin: { host: "${host}", port: "\${ADMIN_PORT:-1}" }\n${rest}`)
  const health = (...args: readonly string[]) =>
    sluice(['health', ...args], { env: { ADMIN_PORT: String(gateway.adminPort) } })

  it('asks the admin listener of the configuration, with its variables', async () => {
    const config = file('127.0.0.1')
    expect(await health('--config', config)).toEqual({ code: 0, stdout: 'ok\n', stderr: '' })
    expect(await health('--config', config, '--ready')).toMatchObject({ code: 0, stdout: 'ready\n' })
    const env = { ADMIN_PORT: String(gateway.adminPort), SLUICE_CONFIG: config }
    expect(await sluice(['health'], { env })).toMatchObject({ code: 0, stdout: 'ok\n' })
  })

  it.each([
    'listen: {}\nadmin: # here\n\n# a comment\n  host: 127.0.0.1\n\n  port: PORT\nroutes: []',
    'clients: [\n  { id: a } ]\nadmin: { host: 127.0.0.1, # a comment\r\n  port: PORT }\r\nroutes: []',
    '{ "routes": [],\n"admin": { "port": PORT } }',
    '{ routes: [],\nadmin: { port: PORT },\nlisten: {} }',
    'x: &admin { port: PORT }\nadmin: *admin\n',
    'x: &port PORT\nadmin:\n  port: *port\n',
    'x: &all { admin: { port: PORT } }\n<<: *all',
  ])('finds the section in %j', async (text) => {
    const config = fileOf(text.replace('PORT', String(gateway.adminPort)))
    expect(await health('--config', config)).toMatchObject({ code: 0, stdout: 'ok\n' })
  })

  it('loads only the packages that it needs, as container engines call it every few seconds', async () => {
    const loaded = createFolder()
    const env = { SLUICE_CONFIG: fileOf(`admin: { port: ${gateway.adminPort} }`), NODE_V8_COVERAGE: loaded }
    const ended = startProcess(['health', '--ready'], env)
    expect(await ended.ended()).toBe(0)
    expect([...packagesLoaded(loaded)]).toEqual(['fastest-levenshtein', 'yaml'])
  })

  it('asks the listener of --admin, and accepts --json', async () => {
    const admin = `http://127.0.0.1:${gateway.adminPort}`
    const ended = await sluice(['health', '--admin', admin, '--json'])
    expect(JSON.parse(ended.stdout)).toEqual({ status: 200, answer: 'ok' })
  })

  it('reaches a listener of all addresses over loopback', async () => {
    expect(await health('--config', file('0.0.0.0'))).toMatchObject({ code: 0 })
    for (const host of ['::', '0:0:0:0:0:0:0:0']) {
      const { stderr } = await sluice(['health', '--config', file(host)])
      expect(stderr).toContain(`no response from http://[${host}]:1: ECONNREFUSED`)
    }
    const flags = ['--admin-host', '::', '--admin-port', '1']
    expect((await sluice(['health', ...flags])).stderr).toContain('no response from http://[::]:1: ')
  })

  it('lets flags override the file, and needs no file', async () => {
    const { adminPort } = gateway
    expect(await sluice(['health', '--admin-port', `${adminPort}`])).toMatchObject({ code: 0 })
    const flags = ['--admin-host', '127.0.0.1', '--admin-port', `${adminPort}`]
    expect(await sluice(['health', '--config', file('127.0.0.9'), ...flags])).toMatchObject({ code: 0 })
  })

  it('ignores mistakes of the file, which the running gateway may have rejected', async () => {
    for (const mistake of [
      'upstream: { data: "${NOT_SET}" }\nroutes: nothing\n',
      'routes: [ {\n',
      'a: b: c\n',
    ]) {
      expect(await health('--config', file('127.0.0.1', mistake))).toMatchObject({ code: 0 })
    }
    for (const unreadable of ['/nowhere/sluice.yaml', fileOf('routes: [')]) {
      const flags = ['--config', unreadable, '--admin-port', String(gateway.adminPort)]
      expect(await health(...flags)).toMatchObject({ code: 0 })
    }
  })

  it('exits with 1 and one line if the gateway does not answer', async () => {
    const { code, stdout, stderr } = await sluice(['health', '--config', file('127.0.0.1')])
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toMatch(/^sluice: no response from http:\/\/127\.0\.0\.1:1: .*ECONNREFUSED.*\n$/)
    const missing = await sluice(['health', '--config', '/nowhere.yaml', '--admin-port', '1'])
    expect(missing.stderr).toMatch(/; \/nowhere\.yaml: does not exist\n$/)
  })

  it('exits with 1 and the reason if the gateway is not ready', async () => {
    const { port, close } = await startUpstream((request, response) => {
      response.writeHead(request.url === '/readyz' ? 503 : 200).end('not ready: the gateway is draining\n')
    })
    expect(await sluice(['health', '--admin-port', `${port}`, '--ready'])).toEqual({
      ...{ code: 1, stdout: '' },
      stderr: `sluice: http://127.0.0.1:${port} answers 503: not ready: the gateway is draining\n`,
    })
    expect(await sluice(['health', '--admin-port', `${port}`])).toMatchObject({ code: 0 })
    await close()
  })

  it('fails after its timeout', async () => {
    const { port, close } = await startUpstream(() => {})
    const { io } = createIo()
    await expect(run({ 'admin-port': `${port}` }, io as unknown as Io, 100)).rejects.toThrow(
      `no response from http://127.0.0.1:${port}: none within 0.1 s`,
    )
    await close()
  })

  it('reports that it cannot know a port that the system chose', async () => {
    expect(await sluice(['health', '--config', fileOf('admin: { port: 0 }')])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('Which admin port? Give --admin-port from 1 to 65535, or --admin URL.'),
    })
  })

  itEndsWrongUsage([
    [['health', '--redy'], 'Unknown flag --redy; did you mean --ready?'],
    [
      ['health', '--admin-port', 'abc'],
      'Which admin port? Give --admin-port from 1 to 65535, or --admin URL.',
    ],
    [['health', '--admin-port', '0'], 'Which admin port? Give --admin-port from 1 to 65535, or --admin URL.'],
  ])
})
