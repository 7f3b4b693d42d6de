import { expect, it } from 'vitest'
import { takeOver } from '../../src/commands/io.ts'

it('takes over a signal that has come while the process was busy, and only one', async () => {
  const got: string[] = []
  process.on('SIGUSR2', () => got.push('before'))
  process.kill(process.pid, 'SIGUSR2')
  await new Promise<void>((resolve) => {
    takeOver(process, 'SIGUSR2', (signal) => {
      got.push(signal)
      resolve()
    })
  })
  expect(got).toEqual(['SIGUSR2'])
  expect(process.listenerCount('SIGUSR2')).toBe(0)
})
