import { expect, it } from 'vitest'
import { wholeLines } from '../../../src/process/workers/whole-lines.ts'

it('passes text on in whole lines, wherever it is cut', () => {
  const text = Array.from({ length: 50 }, (_, i) => `${'x'.repeat(i * 7)}${i}\n`).join('')
  for (const size of [1, 2, 3, 10, 100, 5000, text.length]) {
    const written: string[] = []
    const take = wholeLines((lines) => written.push(lines))
    for (let at = 0; at < text.length; at += size) take(text.slice(at, at + size))
    expect(written.join('')).toBe(text)
    for (const lines of written) expect(lines.endsWith('\n')).toBe(true)
  }
})
