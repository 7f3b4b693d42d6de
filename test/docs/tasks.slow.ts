import { spawn } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { Agent, createServer } from 'node:http'
import { delimiter, join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { createFolder } from '../helpers/folder.ts'
import { call, token, yaml } from '../helpers/gateway.ts'
import { LONG } from '../helpers/runs.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { BIN, serving, type ServingProcess, withTests } from '../helpers/process.ts'
import { freePort } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { codeBlocks, fileText, REPOSITORY } from '../helpers/repository.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** The commands of docs/tasks are run in a shell, in their order, against running gateways. */
const page = (name: string): string => fileText(`docs/tasks/${name}`)

const folder = createFolder()
const bin = join(folder, 'bin')
mkdirSync(bin)

/** Puts a program into the PATH of the commands. */
function program(name: string, command: string): void {
  writeFileSync(join(bin, name), `#!/bin/sh\n${command}\n`)
  chmodSync(join(bin, name), 0o755)
}
program('sluice', `exec ${process.execPath} ${BIN} "$@"`)

/** Runs a block of commands and returns what they print. Each of them must succeed. */
async function run(block: string, env: Record<string, string>): Promise<string> {
  const path = `${bin}${delimiter}${process.env['PATH']}`
  const shell = withTests(spawn('sh', ['-ec', block], { env: { ...process.env, PATH: path, ...env } }))
  let output = ''
  for (const stream of [shell.stdout, shell.stderr])
    stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const code = await new Promise((resolve) => shell.once('close', resolve))
  expect(code, `${block}\n${output}`).toBe(0)
  return output
}

const upstream = await startUpstream()

const QUICK = { more: { drainTimeout: '100ms' } }

describe('docs/tasks', () => {
  let gateway: ServingProcess
  const env = { SLUICE_CONFIG: join(folder, 'sluice.yaml') }
  const callAs = async (client: string) =>
    await call(gateway.port, { path: '/v3/accounts', token: await token(client) })
  beforeAll(async () => {
    const store = { redis: { url: (await sharedRedis()).url }, prefix: 'docs-tasks' }
    const admin = { port: await freePort() }
    writeFileSync(env.SLUICE_CONFIG, yaml({ data: upstream.url, store, admin, limit: 3, ...QUICK }))
    gateway = await serving({ file: env.SLUICE_CONFIG })
  })

  it('block a client, and lift the block', async () => {
    const [find, set, check, lift] = codeBlocks(page('block-a-client.md'), 'sh')
    expect((await callAs('acme')).status).toBe(200)
    await until('it is shown', async () => {
      const { body } = await call(gateway.adminPort, { path: '/overview' })
      return body.includes('"client:acme"')
    })
    expect(await run(find!, env)).toContain('acme')
    expect(await run(set!, env)).toContain('requests')
    expect((await callAs('acme')).status).toBe(429)
    expect((await callAs('other')).status).toBe(200)
    expect(await run(check!, env)).toContain('INC-123')
    await run(lift!, env)
    expect((await callAs('acme')).status).toBe(200)
  })

  it('raise a client for a day, and end that', async () => {
    const [look, raise, check, end] = codeBlocks(page('raise-a-client-for-a-day.md'), 'sh')
    expect(await run(look!, env)).toMatch(/requests +3 +2 /)
    await run(raise!, env)
    expect((await callAs('acme')).headers['x-ratelimit-limit']).toBe('5000')
    expect(await run(check!, env)).toContain('INC-123, migration')
    await run(end!, env)
    expect((await callAs('acme')).headers['x-ratelimit-limit']).toBe('3')
  })
})

describe('docs/tasks/rotate-the-redis-password.md', () => {
  it('leaves no gateway without a valid password', async () => {
    const secret = join(folder, 'redis-password')
    const text = page('rotate-the-redis-password.md').replaceAll('/run/secrets/redis', secret)
    const [add, write, check, remove, withoutUsers] = codeBlocks(text, 'sh')
    const [, options] = /redis: (\{.*\}) \}/.exec(codeBlocks(text, 'yml')[0]!)!
    const acl = join(folder, 'users.acl')
    writeFileSync(acl, '')
    const redis = await startRedis({ tcp: true, args: ['--aclfile', acl] })
    program('redis-cli', `exec /usr/bin/redis-cli -e -p ${redis.port} "$@"`)
    const outages = fileText('docs/outages.md')
    const [, user] = /^ACL SETUSER (sluice .*)$/m.exec(outages)!
    await redis.command('ACL', 'SETUSER', ...user!.replace('>password', '>old-password').split(' '))

    const file = join(folder, 'rotated.yaml')
    const store = { redis: parse(options!.replace('redis://redis.internal:6379', redis.url)) as object }
    writeFileSync(file, yaml({ data: upstream.url, store, ...QUICK }))
    writeFileSync(secret, 'old-password', { mode: 0o600 })
    const env = { SLUICE_CONFIG: file, OLD: 'old-password', NEW: 'new-password' }
    const leftFile = join(folder, 'left-out.yaml')
    const leftSecret = join(folder, 'left-out')
    writeFileSync(leftFile, readFileSync(file, 'utf8').replace(secret, leftSecret))
    writeFileSync(leftSecret, env.OLD)
    const decidedBy = async ({ port, lines }: ServingProcess) => {
      const { headers } = await call(port, { path: '/v3/accounts', token: await token('acme') })
      const line = () => lines().find(({ requestId }) => requestId === headers['x-request-id'])
      await until('the line is written', () => line() !== undefined)
      return line()!['mode']
    }
    const gateways = [await serving({ file }), await serving({ file })]
    const left = await serving({ file: leftFile })
    await run(add!, env)
    await run(write!, env)
    expect(statSync(secret).mode & 0o777).toBe(0o600)
    for (const { lines } of gateways)
      await until('it is read', () => lines().some(({ msg }) => msg === 'secrets renewed'))
    await run(check!, env)
    await run(remove!, env)
    expect(readFileSync(acl, 'utf8').match(/#\w{64}/g)).toHaveLength(1)
    await redis.command('CLIENT', 'KILL', 'USER', 'sluice')
    await until('it is rejected', () => left.lines().some(({ level }) => level === 'error'))
    expect(left.lines().find(({ level }) => level === 'error')!['msg']).toContain('password')
    expect(await decidedBy(left)).toBe('local')
    for (const gateway of gateways) {
      await until('Redis decides', async () => (await decidedBy(gateway)) === 'store')
      expect(gateway.lines().filter(({ level }) => level === 'error')).toEqual([])
    }
    writeFileSync(leftSecret, env.NEW)
    await until('Redis decides', async () => (await decidedBy(left)) === 'store')

    expect(await run(withoutUsers!, env)).toBe('OK\n')
    await expect(run('redis-cli PING', { REDISCLI_AUTH: env.OLD })).rejects.toThrow('WRONGPASS')
    expect(await run('redis-cli PING', { REDISCLI_AUTH: env.NEW })).toBe('PONG\n')
  })
})

describe('docs/tasks/upgrade-a-single-host.md', () => {
  it.runIf(LONG)('replaces both gateways under load without a failed request', async () => {
    const text = page('upgrade-a-single-host.md')
    const ports = await Promise.all(Array.from({ length: 5 }, freePort))
    const names = ['127.0.0.1:8081', '127.0.0.1:8082', '127.0.0.1:9091', '127.0.0.1:9092']
    /** Replaces the ports of the page by free ones. */
    const local = (text: string): string =>
      names.reduce((text, name, i) => {
        const bare = name.replace(/.*:/, '')
        return text.replaceAll(name, `127.0.0.1:${ports[i]}`).replaceAll(`port ${bare}`, `port ${ports[i]}`)
      }, text)

    const file = join(folder, 'upgraded.yaml')
    const [, trusted] = /trustedProxies: (\[[^\]]*\])/.exec(text)!
    const store = { redis: { url: (await sharedRedis()).url }, prefix: 'docs-upgrade' }
    const settings = { trustedProxies: parse(trusted!) as string[], listen: { hosts: ['api.example.com'] } }
    writeFileSync(file, yaml({ data: upstream.url, store, limit: 1_000_000, ...settings }))
    const start = (i: number) =>
      serving({ file }, ['--port', String(ports[i]), '--admin-port', String(ports[i + 2])])
    const gateways = [await start(0), await start(1)]

    const [backend] = codeBlocks(text, 'haproxy')
    const adapted = readFileSync(join(REPOSITORY, 'deploy/haproxy.cfg'), 'utf8')
      .replace(/^resolvers docker\n.*\n/m, '')
      .replace(/^backend gateways\n(?: .*\n)+/m, local(backend!))
      .replace('bind :8080', `bind 127.0.0.1:${ports[4]}`)
      .replace(/^frontend health\n(?: .*\n?)+/m, '')
      .replace('maxconn 10000', 'maxconn 1000')
    expect(adapted).toContain('server gateway-2')
    writeFileSync(join(folder, 'haproxy.cfg'), adapted)
    withTests(spawn('haproxy', ['-f', join(folder, 'haproxy.cfg')], { stdio: 'ignore' }))

    const acme = await token('acme')
    const statuses = new Map<number, number>()
    const request = async (agent?: Agent) => {
      const headers = { Host: 'api.example.com' }
      const { status } = await call(ports[4]!, { token: acme, headers, ...(agent && { agent }) })
      return status
    }
    await until('HAProxy serves', () =>
      request().then(
        (status) => status === 200,
        () => false,
      ),
    )
    const ended = new AbortController()
    async function load(agent?: Agent): Promise<void> {
      while (!ended.signal.aborted) {
        const status = await request(agent).catch(() => 0)
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
        // Leaves the processor to the starts.
        await setTimeout(20)
      }
    }
    const loads = [load(), load(), load(new Agent()), load(new Agent())]

    // `systemctl restart sluice@N` sends SIGTERM, waits for the end, and starts the process.
    const replaced: string[] = []
    async function restart(name: string): Promise<string> {
      const i = Number(name.at(-1)) - 1
      gateways[i]!.kill('SIGTERM')
      const code = await gateways[i]!.ended()
      gateways[i] = await start(i)
      replaced.push(`${name} ${code}`)
      return 'restarted'
    }
    const systemd = createServer((request, response) => {
      const refuse = (error: Error) => void response.destroy(error)
      restart(request.url!.slice(1)).then((text) => void response.end(text), refuse)
    })
    const fetched = `fetch("${(await listenLocally(systemd)).url}/" + process.argv[2])`
    program('systemctl', `[ "$1" = restart ] && exec ${process.execPath} -e '${fetched}' -- "$@"`)
    for (const block of codeBlocks(text, 'sh')) await run(local(block), { SLUICE_CONFIG: file })
    ended.abort()
    await Promise.all(loads)
    expect(replaced).toEqual(['sluice@1 0', 'sluice@2 0'])
    expect([...statuses.keys()]).toEqual([200])
  })
})
