import { spawn } from 'node:child_process'
import { openSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import type { Report } from '../../src/commands/replay/replay.ts'
import { configFile, line, SYNC } from '../commands/replay/logs.ts'
import { BIN, sluice } from '../helpers/process.ts'

/** Further tests of the streams of the built program. */
describe('the built program', () => {
  const config = configFile(`  requests: { per: [client], limit: 2, window: 1m }\n${SYNC}`)
  const clients = Array.from({ length: 2000 }, (_, at) => line({ at, client: `client-${at}` })).join('\n')

  it('reads a compressed log from standard input, and writes all of a long report', async () => {
    const replay = ['replay', '-', '--config', config, '--json', '--top', '2000']
    const launched = sluice(replay, {}, gzipSync(clients))
    const [code, stdout, stderr] = [await launched.ended(), launched.stdout(), launched.stderr()]
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
