import { afterEach, expect, it } from 'vitest'
import { watchOver } from '../../../src/process/workers/health-check.ts'
import { until } from '../../helpers/wait.ts'

let end: () => void = () => {}
afterEach(() => end())

it('tells once of who leaves a question unanswered, and not of who answers, if only with a failure', async () => {
  let silent = 0
  let asked = 0
  const answers = [
    () => Promise.resolve(),
    () => Promise.reject(new Error('not yet')),
    () => new Promise(() => {}),
  ]
  end = watchOver(
    () => answers[asked++]!(),
    () => silent++,
    5,
  )
  await until('it is told', () => silent === 1)
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect([asked, silent]).toEqual([3, 1])
})

it('does not count the time in which this process was stopped', async () => {
  let silent = 0
  let answer: (() => void) | undefined
  end = watchOver(
    () => new Promise<void>((resolve) => (answer = resolve)),
    () => silent++,
    30,
  )
  await until('it is asked', () => answer !== undefined)
  // As a process that is stopped, it does nothing for longer than all looks would take.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000)
  await new Promise((resolve) => setTimeout(resolve, 35))
  answer!()
  await new Promise((resolve) => setTimeout(resolve, 35))
  expect(silent).toBe(0)
})
