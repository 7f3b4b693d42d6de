import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { checkAlive, createBackoff, wholeLines } from '../../../src/process/workers/supervisor.ts'

it('restarts immediately, then with growing delays, and immediately again after a long run', () => {
  const wait = createBackoff()
  expect(Array.from({ length: 12 }, () => wait(500))).toEqual([
    0, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000,
  ])
  expect(wait(10_000)).toBe(0)
  expect(wait(9_999)).toBe(100)
})

it('passes text on in whole lines, at any chunk size', () => {
  const text = Array.from({ length: 50 }, (_, i) => `${'x'.repeat(i * 7)}${i}\n`).join('')
  for (const size of [1, 2, 3, 10, 100, 5000, text.length]) {
    const written: string[] = []
    const push = wholeLines((lines) => written.push(lines))
    for (let at = 0; at < text.length; at += size) push(text.slice(at, at + size))
    expect(written.join('')).toBe(text)
    for (const lines of written) expect(lines.endsWith('\n')).toBe(true)
  }
})

describe('a worker counts as hung', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }))
  afterEach(() => void vi.useRealTimers())

  it('after ten checks without an answer, and not if it answers with an error', async () => {
    const ask = vi
      .fn<() => Promise<unknown>>()
      .mockResolvedValueOnce(undefined)
      .mockRejectedValueOnce(new Error('not yet'))
      .mockReturnValue(new Promise(() => {}))
    const onHang = vi.fn<() => void>()
    checkAlive(ask, onHang, 5)
    await vi.advanceTimersByTimeAsync(3 * 5 + 9 * 5)
    expect([ask.mock.calls.length, onHang.mock.calls.length]).toEqual([3, 0])
    await vi.advanceTimersByTimeAsync(100)
    expect([ask.mock.calls.length, onHang.mock.calls.length]).toEqual([3, 1])
  })

  it('a worker is not replaced because this process was paused: checks are counted, not time', async () => {
    let answer = (): void => {}
    const onHang = vi.fn<() => void>()
    const stop = checkAlive(() => new Promise<void>((resolve) => (answer = resolve)), onHang, 5)
    await vi.advanceTimersByTimeAsync(9 * 5)
    // No check runs during the pause, and the answer is read first.
    answer()
    await vi.advanceTimersByTimeAsync(9 * 5)
    expect(onHang).not.toHaveBeenCalled()
    stop()
    await vi.advanceTimersByTimeAsync(100)
    expect(onHang).not.toHaveBeenCalled()
  })
})
