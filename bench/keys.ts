/** Compares calls with API keys and with reused tokens. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createKeyText, hashOfKey } from '../src/authenticate/key/key-text.ts'
import { type Contender, gateway } from './contenders.ts'
import { folder } from './environment.ts'
import { mintTokens, type Tokens, type Work } from './load.ts'
import { type Bench, compare, isDearer, ratios, type Result, type Round, spread } from './measure.ts'
import { markdown } from './report.ts'

/** Callers with a key each, or a token each. */
export const CALLERS = 1000
/** The part of the work of callers with keys that is not their keys. */
export const KEY = { credential: 'X-Api-Key: ' }

const cpuUs = ({ cpuUs }: Round): number => cpuUs

/** Writes lines of equal length. */
export function linesFile(name: string, lines: readonly string[]): Tokens {
  const file = join(folder, name)
  writeFileSync(file, `${lines.join('\n')}\n`)
  return { file, count: lines.length, lineBytes: lines[0]!.length + 1 }
}

export const createKeys = (count: number): readonly string[] => Array.from({ length: count }, createKeyText)

/** Creates the contender whose callers have keys, with this work. */
export function withKeys(bench: Bench, keys: readonly string[], name: string, work: Work): Contender {
  const keysFile = join(folder, 'keys.yaml')
  const items = keys.map((key, i) => `- { id: client-${i}, sha256: "${hashOfKey(key)}" }\n`)
  writeFileSync(keysFile, items.join(''), { mode: 0o600 })
  const start = gateway(bench, { keysFile, limit: CALLERS })
  return { name, start, work, authenticates: true, goodKey: keys.at(-1)! }
}

export async function measured(bench: Bench, contenders: readonly Contender[]): Promise<readonly Result[]> {
  const results = await compare(bench, contenders)
  for (const { contender, failure, rounds } of results) {
    if (failure !== undefined) throw new Error(`${contender.name}: ${failure}`)
    const wrong = rounds.reduce((sum, round) => sum + round.wrong, 0)
    if (wrong > 0) throw new Error(`${contender.name}: ${wrong} wrong answers`)
  }
  return results
}

/** Prints the processor time of two contenders, and returns the ratios of the first to the second. */
export function printed([first, second]: readonly Result[]): readonly number[] {
  const rows = [first!, second!].map(({ contender, rounds }) => [
    contender.name,
    spread(rounds.map(cpuUs)).median.toFixed(1),
  ])
  const found = ratios(first!, second!, cpuUs)
  const median = spread(found).median.toFixed(3)
  console.log(`${markdown(['us of processor time', 'median'], rows)}\n\nA ratio of ${median}.\n`)
  return found
}

/** Prints what a call with a key and with a reused token takes. True if the key is dearer. */
export async function keysAreDearer(bench: Bench): Promise<boolean> {
  const keys = createKeys(CALLERS + 1)
  const work = { tokens: linesFile('keys.txt', keys.slice(0, -1)), ...KEY }
  const token = {
    name: 'a reused token',
    start: gateway(bench, { limit: CALLERS }),
    work: { tokens: await mintTokens('RS256', CALLERS) },
    authenticates: true,
  }
  return isDearer(printed(await measured(bench, [withKeys(bench, keys, 'a valid key', work), token])))
}
