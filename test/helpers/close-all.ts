import { afterAll, afterEach, beforeEach, vi } from 'vitest'
import { closeDownTo, countOpen } from './closing.ts'

/** Closes what tests start by the helpers: each with its test, the rest with its file. Tests that run at once share what is open. */
let before = 0
beforeEach(({ task }) => {
  if (task.concurrent !== true) before = countOpen()
})
afterEach(async ({ task }) => {
  if (task.concurrent !== true) await closeDownTo(before)
})
afterAll(() => {
  // The next file of this process has the clock of the system, also if this file has faked it.
  vi.useRealTimers()
  return closeDownTo(0)
})
