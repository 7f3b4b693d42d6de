import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const LINES = fileURLToPath(new URL('../../dist/src/observe/line-writer.js', import.meta.url))

/** Writes 20 MB of lines, which are not read yet. */
function fill(then: string) {
  const script = `
    import { createLineWriter } from ${JSON.stringify(LINES)}
    const lines = createLineWriter(1, (lost) => lines.write(JSON.stringify({ lost }) + '\\n'), () => {})
    const line = 'x'.repeat(999) + '\\n'
    for (let i = 0; i < 20_000; i++) lines.write(line)
    process.stderr.write('written')
    ${then}
  `
  return spawn(process.execPath, ['--input-type=module', '--eval', script])
}

it('reports the number of dropped lines when the reader continues', async () => {
  const child = fill("process.stdin.resume().once('end', () => lines.close())")
  await once(child.stderr, 'data')
  let out = ''
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString()
    if (out.includes('lost')) child.stdin.end()
  })
  await once(child, 'close')
  const written = out.split('\n').filter((one) => one.startsWith('x')).length
  const lost = /\{"lost":(\d+)\}/.exec(out)
  expect(Number(lost?.[1])).toBe(20_000 - written)
  expect(written).toBeLessThan(20_000)
})

it.each(['process.exit(3)', 'await lines.close(); process.exit(3)'])(
  'does not delay the exit of the process if no process reads: %s',
  async (then) => {
    const child = fill(`setTimeout(async () => { ${then} })`)
    expect(await once(child, 'exit')).toEqual([3, null])
    child.stdout.destroy()
  },
)

it.each([
  ['a full disk', 'ENOSPC'],
  ['a closed reader', 'EPIPE'],
])('says once on standard error that %s takes no lines, and goes on', async (what, code) => {
  const script = `
    import { setTimeout as sleep } from 'node:timers/promises'
    import { createLog } from ${JSON.stringify(LINES.replace('line-writer', 'log'))}
    const { log, close } = createLog('info', 'json')
    for (let i = 0; i < 3; i++) {
      log.info('line')
      await sleep(150)
    }
    await close()
    process.exit(3)
  `
  const full = what === 'a full disk' ? openSync('/dev/full', 'w') : undefined
  const args = ['--input-type=module', '--eval', script]
  const child = spawn(process.execPath, args, { stdio: ['ignore', full ?? 'pipe', 'pipe'] })
  if (full !== undefined) closeSync(full)
  child.stdout?.destroy()
  expect(await Promise.all([text(child.stderr!), once(child, 'exit')])).toEqual([
    expect.stringMatching(new RegExp(`^sluice: cannot log: .*${code}.*\n$`)),
    [3, null],
  ])
})
