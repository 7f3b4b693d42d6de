import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { createFolder } from '../helpers/folder.ts'
import { call } from '../helpers/gateway.ts'
import { sluice } from '../helpers/process.ts'
import { freePort } from '../helpers/ports.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { until } from '../helpers/wait.ts'

const deploy = fileURLToPath(new URL('../../deploy', import.meta.url))
const read = (path: string): string => readFileSync(join(deploy, path), 'utf8')
interface Service {
  readonly command: readonly string[]
  readonly volumes?: readonly string[]
  readonly ports?: readonly string[]
}
const { services, volumes: named } = parse(read('compose.demo.yaml'), { merge: true }) as {
  services: Readonly<Record<string, Service>>
  volumes: Readonly<Record<string, unknown>>
}

describe('deploy/compose.demo.yaml', () => {
  it('mounts only existing files, and publishes ports on loopback only, each once', () => {
    const all = Object.values(services)
    for (const volume of all.flatMap(({ volumes = [] }) => volumes)) {
      const [from] = volume.split(':') as [string]
      expect(from.startsWith('.') ? existsSync(join(deploy, from)) : Object.hasOwn(named, from), volume).toBe(
        true,
      )
    }
    const ports = all.flatMap(({ ports = [] }) => ports.map((port) => port.split(':').slice(0, 2).join(':')))
    for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:\d+$/)
    expect(new Set(ports).size).toBe(ports.length)
  })

  it('gives both gateways callers, refusals and one count', async () => {
    const redis = await sharedRedis()
    const folder = createFolder()
    const makeToken = () => {
      const [program, ...args] = services['token']!.command as [string, ...string[]]
      const script = args.map((word) => word.replaceAll('/run/demo', folder).replaceAll('$$', '$'))
      return execFileSync(program, script, { encoding: 'utf8' })
    }
    makeToken()
    const first = readFileSync(join(folder, 'token'), 'utf8')
    const printed = makeToken()
    const secret = readFileSync(join(folder, 'token'), 'utf8')
    expect(secret).toMatch(/^[0-9a-f]{32}$/)
    expect(secret).not.toBe(first)
    expect(printed).toContain(secret)
    const names = ['gateway-1:8080', 'gateway-2:8080', 'backends:3000', 'backends:4000']
    const free = await Promise.all(names.map(() => freePort()))
    const here = (text: string): string =>
      names
        .reduce((text, name, i) => text.replaceAll(name, `127.0.0.1:${free[i]}`), text)
        .replace('redis://redis:6379', redis.url)
        .replace('0.0.0.0', '127.0.0.1')
        .replace('/run/demo', folder)
    const backends = services['backends']!.command.map((word) =>
      word === '3000' ? String(free[2]) : word === '4000' ? String(free[3]) : here(word),
    )
    const started = [sluice(backends)]
    const file = join(folder, 'sluice.yaml')
    writeFileSync(file, here(read('demo/sluice.yaml')))
    const adminPorts = [await freePort(), await freePort()]
    for (const [i, port] of adminPorts.entries())
      started.push(
        sluice(['start', '--config', file, '--port', String(free[i]), '--admin-port', String(port)]),
      )

    const overview = async (port: number) => {
      const { json } = await call(port, { path: '/overview', token: secret })
      return json
    }
    for (const port of adminPorts)
      await until(
        'a refusal',
        async () =>
          (await overview(port).catch(() => undefined))?.activity?.callers.some(
            ({ refusals }: { refusals: number }) => refusals > 0,
          ) === true,
        40_000,
      )
    const [one, two] = await Promise.all(adminPorts.map(overview))
    expect(one.counts).toBe('Redis')
    for (const { activity } of [one, two])
      expect(activity.callers.map(({ client }: { client: string }) => client)).toContain('acme')
    for (const process of started) expect(process.stdout()).not.toContain('"msg":"request"')
  })
})
