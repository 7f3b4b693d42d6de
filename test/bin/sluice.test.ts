import { execFileSync, spawn } from 'node:child_process'
import { openSync, readFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import type { Report } from '../../src/commands/replay/replay.ts'
import { VERSION } from '../../src/runtime/package.ts'
import { configFile, line, SYNC } from '../commands/replay/logs.ts'
import { BIN, sluice } from '../helpers/process.ts'

const ended = async (args: readonly string[], stdin: string | Buffer = '') => {
  const process = sluice(args, {}, stdin)
  return { code: await process.ended(), stdout: process.stdout(), stderr: process.stderr() }
}

/** Tests of the built program that the tests of commands cannot make, since they call `main` in their own process. */
describe('the built program', () => {
  it('exits with the exit code, and writes to each stream', async () => {
    const [version, wrong] = await Promise.all([ended(['--version']), ended(['check', '--port'])])
    const commit = execFileSync('git', ['rev-parse', 'HEAD'], { encoding: 'utf8' }).trim()
    expect(version).toEqual({ code: 0, stdout: expect.stringContaining(VERSION) as string, stderr: '' })
    expect(version.stdout.replace('-dirty', '')).toBe(`${VERSION} (commit ${commit})\n`)
    expect(wrong).toEqual({
      code: 64,
      stdout: '',
      stderr: 'sluice: The flag "port" needs a value.\nSee "sluice check --help".\n',
    })
  })

  it('reads the configuration from standard input, and refuses workers that would count separately', async () => {
    const start = (stdin: string, ...flags: string[]) => ended(['start', '--config', '-', ...flags], stdin)
    const [wrong, separate] = await Promise.all([
      start('store: disk', '--port', 'http'),
      start(readFileSync('config/sluice.yaml', 'utf8'), '--store', 'memory', '--workers', '4'),
    ])
    for (const { code, stdout } of [wrong, separate])
      expect({ code, stdout }).toEqual({ code: 78, stdout: '' })
    expect(wrong.stderr).toMatch(/^--port: must be a port from 0 to 65535\nstdin:1:1: /)
    expect(wrong.stderr).toContain(
      '\nstdin:1:8: store: must be "memory" or a mapping with "redis", such as {',
    )
    expect(separate.stderr).toBe(
      '--workers: needs "store: { redis: … }", because "store: memory" counts in each process\n',
    )
  })

  const config = configFile(`  requests: { per: [client], limit: 2, window: 1m }\n${SYNC}`)
  const clients = Array.from({ length: 2000 }, (_, at) => line({ at, client: `client-${at}` })).join('\n')

  it('reads a compressed log from standard input, and writes all of a long report', async () => {
    const replay = ['replay', '-', '--config', config, '--json', '--top', '2000']
    const { code, stdout, stderr } = await ended(replay, gzipSync(clients))
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect((JSON.parse(stdout) as Report).clients).toHaveLength(2000)
  })

  it('exits with 1 if its output cannot be written', async () => {
    const full = openSync('/dev/full', 'w')
    const child = spawn(process.execPath, [BIN, 'schema', '--json'], { stdio: ['ignore', full, 'pipe'] })
    let stderr = ''
    child.stderr!.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    const code = await new Promise((resolve) => child.once('close', resolve))
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: 'sluice: standard output cannot be written: ENOSPC\n',
    })
  })

  it('exits with 0 if the reader of its output exits early', async () => {
    const process = sluice(['schema', '--json'])
    process.child.stdout!.destroy()
    expect(await process.ended()).toBe(0)
    expect(process.stderr()).toBe('')
  })
})
