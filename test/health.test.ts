import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Health, type HealthOptions } from '../src/health.ts'

const BROKEN = new Error('connection refused')

function track(options: Partial<HealthOptions> = {}) {
  const changes: string[] = []
  const health = new Health({
    backoffMs: 100,
    onDown: (cause) => changes.push(`down: ${cause.message}`),
    onUp: () => changes.push('up'),
    ...options,
  })
  return { health, changes }
}

describe('the health of a dependency', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  test('goes down after the configured failures in a row, and reports it once', () => {
    const { health, changes } = track({ failures: 3 })
    health.failed(BROKEN)
    health.failed(BROKEN)
    health.succeeded()
    health.failed(BROKEN)
    health.failed(BROKEN)
    expect(health.up).toBe(true)
    health.failed(BROKEN)
    health.failed(BROKEN)
    expect(health.up).toBe(false)
    expect(changes).toEqual(['down: connection refused'])
    health.succeeded()
    health.succeeded()
    expect(changes).toEqual(['down: connection refused', 'up'])
  })

  test('the health of a dependency is up while the failures fall within one stall', () => {
    const { health } = track({ failures: 3, spanMs: 250 })
    for (let i = 0; i < 10; i++) health.failed(BROKEN)
    expect(health.up).toBe(true)
    vi.advanceTimersByTime(250)
    health.failed(BROKEN)
    expect(health.up).toBe(false)
  })

  test('probes with increasing delays until a probe succeeds', async () => {
    let broken = true
    const probes: number[] = []
    const { health, changes } = track({
      maxBackoffMs: 400,
      probe: () => {
        probes.push(Date.now() - startedAt)
        return broken ? Promise.reject(BROKEN) : Promise.resolve()
      },
    })
    const startedAt = Date.now()
    health.failed(BROKEN)
    await vi.advanceTimersByTimeAsync(1500)
    expect(probes).toEqual([100, 300, 700, 1100, 1500])
    broken = false
    await vi.advanceTimersByTimeAsync(400)
    expect(changes).toEqual(['down: connection refused', 'up'])
    await vi.advanceTimersByTimeAsync(5000)
    expect(probes).toHaveLength(6)
  })

  test('lets one caller at a time probe if it has no probe function', () => {
    const { health } = track({ maxBackoffMs: 400 })
    expect(health.due()).toBe(false)
    health.trip(BROKEN)
    expect(health.due()).toBe(false)
    vi.advanceTimersByTime(100)
    expect([health.due(), health.due()]).toEqual([true, false])
    vi.advanceTimersByTime(199)
    expect(health.due()).toBe(false)
    vi.advanceTimersByTime(1)
    expect(health.due()).toBe(true)
  })

  test('starts with the short delay at the next outage', () => {
    const { health } = track({ maxBackoffMs: 400 })
    health.trip(BROKEN)
    vi.advanceTimersByTime(100)
    expect(health.due()).toBe(true)
    health.succeeded()
    health.trip(BROKEN)
    vi.advanceTimersByTime(100)
    expect(health.due()).toBe(true)
  })

  test('checks while it is up, and repeats a failed check until a check succeeds or it is down', async () => {
    let answers: boolean[] = [false, true]
    const probe = vi.fn(() => (answers.shift() === true ? Promise.resolve() : Promise.reject(BROKEN)))
    const { health, changes } = track({ failures: 3, probe })
    health.check()
    health.check()
    await vi.advanceTimersByTimeAsync(1000)
    expect(probe).toHaveBeenCalledTimes(2)
    expect(changes).toEqual([])
    answers = [false, false, false, false, true]
    health.check()
    await vi.advanceTimersByTimeAsync(200)
    expect(changes).toEqual(['down: connection refused'])
    await vi.advanceTimersByTimeAsync(200)
    expect(changes).toEqual(['down: connection refused', 'up'])
  })

  test('neither probes nor reports after it is stopped', async () => {
    const probe = vi.fn(() => Promise.reject(BROKEN))
    const { health, changes } = track({ probe })
    health.trip(BROKEN)
    health.stop()
    await vi.advanceTimersByTimeAsync(1000)
    health.succeeded()
    expect(probe).not.toHaveBeenCalled()
    expect(changes).toEqual(['down: connection refused'])
  })
})
