import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const LINES = fileURLToPath(new URL('../../dist/src/observe/line-writer.js', import.meta.url))

it('reports the number of dropped lines when the reader continues', async () => {
  const script = `
    import { createLineWriter } from ${JSON.stringify(LINES)}
    const lines = createLineWriter(1, (lost) => lines.write(JSON.stringify({ lost }) + '\\n'))
    const line = 'x'.repeat(999) + '\\n'
    for (let i = 0; i < 20_000; i++) lines.write(line)
    process.stderr.write('written')
    process.stdin.resume().once('end', () => lines.close())
  `
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script])
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
