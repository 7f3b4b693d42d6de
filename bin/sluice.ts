#!/usr/bin/env node
import { main } from '../src/commands/cli.ts'

// A reader that leaves early, such as `head`, is no failure.
process.stdout.on('error', () => process.exit(0))

const code = await main(process.argv.slice(2), process)
// Ends whatever may still be under way, once all output is written.
process.stdout.write('', () => process.exit(code))
