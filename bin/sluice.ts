#!/usr/bin/env node

// A gateway that is still starting reads its configuration anyway; without a listener, a reload would end it.
if (process.argv[2] === 'start') process.on('SIGHUP', () => {})

// A reader that leaves early, such as `head`, is no failure.
process.stdout.on('error', () => process.exit(0))

const { main } = await import('../src/commands/cli.ts')
const code = await main(process.argv.slice(2), process)
// Ends whatever may still be under way, once all output is written.
process.stdout.write('', () => process.exit(code))
