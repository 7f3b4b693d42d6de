/**
 * Puts faults into a copy of the limiter, one at a time, and simulates it until the fault is found:
 * `npm run simulate:faults`. Fails if one is not found in two minutes. `-- TEXT`: only those whose
 * name contains the text.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { FIRST_SETTLED } from '../test/simulation/history.ts'
import { SOURCE_FAULTS } from '../test/simulation/source-faults.ts'

const SECONDS = 120

/**
 * The profile that shows a fault, where all profiles together take too long to: a call that is
 * refunded twice needs a lost answer in a calendar period, and few histories have weeks.
 */
const PROFILES: Readonly<Record<string, string>> = {
  'a merge is repeated': 'kept',
  'a week begins a day late': 'kept',
  'a settlement is repeated': 'kept',
  'a settlement without an answer is taken as done': 'kept',
  'an own call is settled only in the store': 'kept',
  'a settlement does not wait for the merge of its call': 'kept',
  'a call that is settled leaves no room in an outage': 'kept',
}
function profileOf(fault: string): string | undefined {
  if (/\bcosts?\b/.test(fault)) return 'points'
  if (/\bshare\b/.test(fault)) return 'shares'
  return fault.includes('at once') ? 'atOnce' : PROFILES[fault]
}

let missed = 0
const [wanted = ''] = process.argv.slice(2)
for (const [fault, changes] of Object.entries(SOURCE_FAULTS).filter(([fault]) => fault.includes(wanted))) {
  const copy = mkdtempSync(join(tmpdir(), 'sluice-fault-'))
  for (const name of ['src', 'test', 'scripts', 'package.json', 'tsconfig.json'])
    cpSync(name, join(copy, name), { recursive: true })
  symlinkSync(join(process.cwd(), 'node_modules'), join(copy, 'node_modules'))
  for (const [file, text, replacement] of changes) {
    const before = readFileSync(join(copy, file), 'utf8')
    if (!before.includes(text)) throw new Error(`${file} does not contain: ${text}`)
    writeFileSync(
      join(copy, file),
      before.replace(text, () => replacement),
    )
  }
  const startedAt = performance.now()
  const name = profileOf(fault)
  const profile = name === undefined ? [] : ['--profile', name]
  const from = fault.includes('settle') ? ['--from', String(FIRST_SETTLED)] : []
  const args = ['tsx', 'scripts/simulate.ts', '--seconds', String(SECONDS), ...profile, ...from]
  const { stderr } = spawnSync('npx', args, { cwd: copy, encoding: 'utf8' })
  const secs = ((performance.now() - startedAt) / 1000).toFixed(0)
  const isFound = stderr.includes('is broken')
  if (!isFound) missed++
  console.log(`${isFound ? 'found' : 'NOT FOUND'} in ${secs} s: ${fault}`)
  const [, broken] = /^(?!npm)(.*is broken.*)$/m.exec(stderr) ?? []
  console.log(`  ${broken ?? stderr.slice(0, 500)}`)
  rmSync(copy, { recursive: true })
}
process.exitCode = missed === 0 ? 0 : 1
