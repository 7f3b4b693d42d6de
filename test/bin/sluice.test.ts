import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { VERSION } from '../../src/runtime/package.ts'
import { sluice } from '../helpers/process.ts'

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
})
