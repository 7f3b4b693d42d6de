#!/usr/bin/env node

// A gateway that is still starting reads its configuration anyway; without a listener, a reload would end it.
if (process.argv[2] === 'start') process.on('SIGHUP', () => {})

process.stdout.on('error', ({ code, message }: NodeJS.ErrnoException) => {
  // A reader that leaves early, such as `head`, is no failure.
  if (code === 'EPIPE') process.exit(0)
  process.stderr.write(`sluice: standard output cannot be written: ${code ?? message}\n`)
  process.exit(1)
})

const { main } = await import('../src/commands/cli.ts')
const code = await main(process.argv.slice(2), process)
// Ends whatever may still be under way, once all output is written, or has failed to be.
const end = (): void => void setImmediate(() => process.exit(code))
if (process.stdout.writableLength === 0) end()
else process.stdout.write('', end)
