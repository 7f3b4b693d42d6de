/**
 * Compares this working tree with another commit and with the one in bench/baseline, in alternate rounds:
 * `npm run bench:gate [-- REF --rounds N --seconds S --refused]`; default: HEAD, admitted requests.
 * Then compares a call with an API key with one with a reused token. Exits with 1 if a request takes over
 * 5 % more processor time than at either commit, or with a key than with a token, and the spread leaves no
 * doubt that it takes more.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { type Contender, gateway, ROOT } from './contenders.ts'
import { folder } from './environment.ts'
import { type Garbage, measureGarbage } from './garbage.ts'
import { mintTokens } from './load.ts'
import {
  type Bench,
  compare,
  confidence,
  DEARER,
  isDearer,
  ratios,
  type Result,
  type Round,
  runCommand,
  spread,
} from './measure.ts'
import { keysAreDearer } from './keys.ts'
import { markdown } from './report.ts'

/** Processes of each commit: two processes of the same code differ by a few per cent. */
const STARTS = 3
const GARBAGE_S = 10

const FIGURES = {
  'requests/s': ({ rps }: Round) => rps,
  'processor time': ({ cpuUs }: Round) => cpuUs,
  p99: ({ p99Us }: Round) => p99Us,
  'resident memory': ({ rssMb }: Round) => rssMb,
}

function must(command: string, args: readonly string[], cwd: string): string {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8' })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed: ${stderr}${stdout}`)
  return stdout.trim()
}

/** Builds a commit in a worktree of its own. */
function build(commit: string): string {
  const root = join(folder, commit)
  process.once('exit', () => spawnSync('git', ['worktree', 'remove', '--force', root], { cwd: ROOT }))
  must('git', ['worktree', 'add', '--detach', root, commit], ROOT)
  const lock = (of: string): string => readFileSync(join(of, 'package-lock.json'), 'utf8')
  if (lock(root) === lock(ROOT)) symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'))
  else must('npm', ['ci', '--silent'], root)
  must('npm', ['run', '--silent', 'build'], root)
  return root
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '15' },
    seconds: { type: 'string', default: '2' },
    refused: { type: 'boolean', default: false },
  },
})

const commitOf = (ref: string): string => must('git', ['rev-parse', '--short', ref], ROOT)

/** Measures all contenders in rounds of several processes. */
async function measureAll(bench: Bench, contenders: readonly Contender[]): Promise<readonly Result[]> {
  const rounds = Math.ceil(bench.rounds / STARTS)
  const all: Result[] = contenders.map((contender) => ({ contender, rounds: [], failure: undefined }))
  for (let i = 0; i < STARTS; i++) {
    for (const [j, { contender, failure, ...more }] of (
      await compare({ ...bench, rounds }, contenders)
    ).entries()) {
      if (failure !== undefined) throw new Error(`${contender.name}: ${failure}`)
      all[j]!.rounds = [...all[j]!.rounds, ...more.rounds]
    }
  }
  return all
}

interface Measured {
  readonly result: Result
  readonly garbage: Garbage
}

/** Returns the figures of one commit relative to another. */
function table(name: string, now: Measured, old: Measured): string {
  const lines = Object.entries(FIGURES).map(([title, figure]): readonly string[] => {
    const values = ratios(now.result, old.result, figure)
    const { median, min, max } = spread(values)
    return [title, ...[median, ...confidence(values), min, max].map((value) => value.toFixed(3))]
  })
  const bytes = (title: string, of: number, to: number): readonly string[] => {
    return [`${title}, ${of.toFixed(1)} of ${to.toFixed(1)}`, (of / to).toFixed(3), '', '', '', '']
  }
  lines.push(
    bytes('bytes allocated', now.garbage.allocatedBytes, old.garbage.allocatedBytes),
    bytes('bytes promoted', now.garbage.promotedBytes, old.garbage.promotedBytes),
  )
  return markdown([`working tree / ${name}`, 'median', '95 % from', 'to', 'min', 'max'], lines)
}

async function command(bench: Bench): Promise<number> {
  const baseline = readFileSync(join(ROOT, 'bench', 'baseline'), 'utf8').split(/\s/)[0]!
  const commits = [...new Set([positionals[0] ?? 'HEAD', baseline].map(commitOf))]
  const { refused } = values
  const options = refused ? { limit: 1, windowS: 3600 } : { limit: 1000 }
  const work = { tokens: await mintTokens('RS256', refused ? 20 : 1000) }
  const terms = { work, authenticates: true, limit: options.limit, keepsCounters: refused, refuses: refused }
  const results = await measureAll(bench, [
    ...commits.map((commit) => ({
      ...terms,
      name: commit,
      start: gateway(bench, { ...options, root: build(commit) }),
    })),
    { ...terms, name: 'working tree', start: gateway(bench, options) },
  ])
  const measured: Measured[] = []
  for (const result of results) {
    await bench.store.flushall()
    measured.push({ result, garbage: await measureGarbage(bench, result.contender, GARBAGE_S) })
  }
  const now = measured.pop()!
  let code = !refused && (await keysAreDearer(bench)) ? 1 : 0
  for (const old of measured) {
    const { name } = old.result.contender
    const cpu = ratios(now.result, old.result, FIGURES['processor time'])
    const dearer = isDearer(cpu)
    if (dearer) code = 1
    const verdict = dearer ? `More than ${((DEARER - 1) * 100).toFixed(0)} % dearer` : 'Not dearer'
    console.log(`${table(name, now, old)}\n\n${verdict} than ${name}.\n`)
  }
  return code
}

await runCommand(values, command)
