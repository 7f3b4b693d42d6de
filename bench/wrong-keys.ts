/**
 * Measures refused keys: `npm run bench:keys [-- --rounds N --seconds S --requests N]`. Exits with 1 if a
 * call with a wrong key takes more processor time than one with a forged token. Then sends a million wrong
 * keys, and prints the memory of the gateway meanwhile.
 */
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { gateway } from './contenders.ts'
import { stop } from './environment.ts'
import { CALLERS, createKeys, KEY, linesFile, measured, printed, withKeys } from './keys.ts'
import { forge, mintTokens } from './load.ts'
import { type Bench, isDearer, measure, runCommand, runProven } from './measure.ts'
import { markdown } from './report.ts'

/** Tokens and keys. A round begins after those of the round before, so that no cache has them. */
const DISTINCT = 50_000
/** Seconds between two readings of the memory. */
const PART_S = 10

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    seconds: { type: 'string', default: '2' },
    requests: { type: 'string', default: '1000000' },
  },
})

/** True if a call with a wrong key takes more processor time than one with a forged token. */
async function keysAreDearer(bench: Bench): Promise<boolean> {
  const tokens = await mintTokens('RS256', DISTINCT)
  const forged = readFileSync(tokens.file, 'utf8').trim().split('\n').map(forge)
  const wrong = { tokens: linesFile('wrong-keys.txt', createKeys(DISTINCT)), fresh: true, ...KEY }
  const token = {
    name: 'a forged token',
    start: gateway(bench, { limit: CALLERS }),
    work: { tokens: linesFile('forged.txt', forged), fresh: true },
    authenticates: true,
  }
  const key = withKeys(bench, createKeys(CALLERS), 'a wrong key', wrong)
  const contenders = [key, token].map((one) => ({ ...one, refuses: true }))
  return isDearer(printed(await measured(bench, contenders)))
}

/** Sends wrong keys, all different, and prints the memory of the gateway after each part of them. */
async function sendWrongKeys(bench: Bench, count: number): Promise<void> {
  const wrong = { tokens: linesFile('many.txt', createKeys(count)), fresh: true, ...KEY }
  const contender = withKeys(bench, createKeys(CALLERS), 'a wrong key', wrong)
  const running = await runProven(bench, { ...contender, refuses: true })
  const rows: string[][] = []
  do {
    const { rssMb, wrong: unexpected } = await measure(bench, running, PART_S)
    if (unexpected > 0) throw new Error(`${unexpected} calls were not refused`)
    rows.push([String(running.sent), rssMb.toFixed(0)])
  } while (running.sent < count)
  await stop(running.child)
  console.log(markdown(['requests with wrong keys', 'MB resident'], rows))
}

async function command(bench: Bench): Promise<number> {
  const areDearer = await keysAreDearer(bench)
  await sendWrongKeys(bench, Number(values.requests))
  return areDearer ? 1 : 0
}

await runCommand(values, command)
