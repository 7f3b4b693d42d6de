import { execFile, spawn } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { closeLater } from '../helpers/closing.ts'
import { createFolder } from '../helpers/folder.ts'
import { BIN, sluice, withTests } from '../helpers/process.ts'
import { freePort } from '../helpers/ports.ts'
import { codeBlocks, fileText } from '../helpers/repository.ts'
import { until } from '../helpers/wait.ts'

/** The commands of docs/first-steps.md are run in a shell, in their order, with other ports. */
const [service, ...blocks] = codeBlocks(fileText('docs/first-steps.md'), 'sh')
const [byAddress, byKey, byToken] = [blocks.slice(0, 5), blocks.slice(5, 9), blocks.slice(9)]

const folder = createFolder()
const bin = join(folder, 'bin')
mkdirSync(bin)
writeFileSync(join(bin, 'sluice'), `#!/bin/sh\nexec ${process.execPath} ${BIN} "$@"\n`)
chmodSync(join(bin, 'sluice'), 0o755)
const env = { ...process.env, PATH: `${bin}${delimiter}${process.env['PATH']}` }

/** The ports of the page, and those that the test has in their place. */
const PORTS = new Map<string, string>()
for (const port of ['4000', '8080', '9090', '8081', '9091']) PORTS.set(port, String(await freePort()))
const moved = (text: string): string =>
  text.replaceAll(/\b(?:4000|8080|9090|8081|9091)\b/g, (port) => PORTS.get(port)!)

const shell = async (block: string, cwd: string): Promise<string> =>
  (await promisify(execFile)('sh', ['-ec', block], { cwd, env })).stdout

/** Starts a command that runs until the test ends it. */
function start(command: string, cwd: string) {
  // `exec`: so that the signal ends the command, and not only its shell.
  const child = withTests(spawn('sh', ['-c', `exec ${command}`], { cwd, env, stdio: 'ignore' }))
  closeLater(() => child.kill('SIGKILL'))
  return child
}

/** True once a server answers with 200. The admin listener answers before the gateway serves callers. */
const isUp = async (url: string): Promise<boolean> =>
  await fetch(url).then(
    ({ ok }) => ok,
    () => false,
  )

/** Runs the block that writes a configuration and starts the gateway; returns what it prints, and the gateway. */
async function startGateway(block: string, name: string, admin: string) {
  const cwd = join(folder, name)
  mkdirSync(cwd)
  const lines = block.trim().split('\n')
  const [init, ...others] = lines.filter((line) => !line.startsWith('sluice start'))
  const printed = await shell(moved(init!), cwd)
  const file = join(cwd, 'sluice.yaml')
  writeFileSync(file, moved(readFileSync(file, 'utf8')))
  const checked = await shell(moved(others.join('\n')), cwd)
  const child = start(moved(lines.find((line) => line.startsWith('sluice start'))!), cwd)
  await until('the gateway', () => isUp(`http://127.0.0.1:${PORTS.get(admin)}/readyz`))
  return { cwd, printed, checked, child }
}

/** Runs the block that lowers the limit, and waits until the gateway has read the file. */
async function lowerLimit(block: string, cwd: string): Promise<void> {
  await shell(block, cwd)
  await until('the new limit', async () => {
    const { limits } = JSON.parse(await shell('sluice explain / --json', cwd)) as {
      limits: { limit: number }[]
    }
    return limits[0]!.limit === 5
  })
}

const statusesIn = (text: string): string[] =>
  [...text.matchAll(/^HTTP\/1\.1 (\d{3})/gm)].map((match) => match[1]!)

describe('docs/first-steps.md', { timeout: 300_000 }, () => {
  beforeAll(async () => {
    start(moved(service!), folder)
    await until('the service', () => isUp(`http://127.0.0.1:${PORTS.get('4000')}`))
  })

  it('leads to a first call, a refused one and an explanation, by address and by API key', async () => {
    const [begin, first, lower, more, why] = byAddress
    const { cwd, checked, child } = await startGateway(begin!, 'api', '9090')
    expect(checked).toMatch(/^ok +upstream api /m)
    expect(statusesIn(await shell(moved(first!), cwd))).toEqual(['200'])
    await lowerLimit(lower!, cwd)
    expect(statusesIn(await shell(moved(more!), cwd)).at(-1)).toBe('429')
    const explained = await shell(why!, cwd)
    expect(explained).toContain('by the limit "requests": 5 of 5 calls are used')
    expect(explained).toMatch(/^ip:127\.0\.0\.1 /m)
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGTERM')
    await ended

    const keys = await startGateway(byKey[0]!, 'keys', '9090')
    const call = /^ +(curl .*)$/m.exec(keys.printed)![1]!
    expect(statusesIn(await shell(moved(call), keys.cwd))).toEqual(['200'])
    expect(statusesIn(await shell(moved(first!), keys.cwd))).toEqual(['401'])
    const [, lowerKeys, refused, another] = byKey
    await lowerLimit(lowerKeys!, keys.cwd)
    const [key] = /slk_[a-z2-7]{39}/.exec(keys.printed)!
    const again = await shell(moved(refused!.replace('slk_...', key)), keys.cwd)
    expect(statusesIn(again).at(-1)).toBe('429')
    expect(again).toContain('by the limit "requests": 5 of 5 calls are used')
    expect(await shell(another!, keys.cwd)).toMatch(/^slk_[\s\S]* acme|:acme/m)
    keys.child.kill('SIGTERM')
    await new Promise((resolve) => keys.child.once('exit', resolve))
  })

  it('leads to a first call, a refused one and an explanation, by token', async () => {
    const sandbox = sluice(['sandbox', '--port', PORTS.get('8080')!, '--admin-port', PORTS.get('9090')!])
    await until('the sandbox', () => sandbox.stdout().includes('limits top'))
    const { cwd } = await startGateway(byToken[0]!, 'token', '9091')
    const printed = await shell(moved(byToken[1]!), cwd)
    expect(statusesIn(printed)).toEqual(['200', '429'])
    expect(printed).toContain('by the limit "sync": 1 of 1 calls are used')
    expect(printed).toMatch(/^result +accepted as client sandbox/m)
  })
})
