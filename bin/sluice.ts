#!/usr/bin/env node

// Until `start` handles SIGHUP, ignore it: the default action would end the process.
if (process.argv[2] === 'start') process.on('SIGHUP', () => {})

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
