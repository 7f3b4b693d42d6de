#!/usr/bin/env node

import { keepTickObject } from '../src/runtime/tick-object.ts'

keepTickObject()

// Until `start` handles signals, a third of a second later: the kernel drops SIGTERM for process 1 without a
// listener, and a container would be killed at the end of its grace period. SIGHUP and SIGUSR2 would end the process.
if (process.argv[2] === 'start') {
  process.on('SIGHUP', () => {}).on('SIGUSR2', () => {})
  process.on('SIGTERM', () => process.exit(0)).on('SIGINT', () => process.exit(0))
}

// A closed standard error must not end the gateway.
process.stderr.on('error', () => {})
process.stdout.on('error', ({ code, message }: NodeJS.ErrnoException) => {
  // A reader that exits early, such as `head`, is not a failure.
  if (code === 'EPIPE') process.exit(0)
  process.stderr.write(`sluice: standard output cannot be written: ${code ?? message}\n`)
  process.exit(1)
})

const { main } = await import('../src/commands/cli.ts')
const code = await main(process.argv.slice(2), process)
// Exits after all output is written, even if handles are still open.
const end = (): void => void setImmediate(() => process.exit(code))
if (process.stdout.writableLength === 0) end()
else process.stdout.write('', end)
