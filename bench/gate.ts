/**
 * Compares this working tree with another commit, in alternate rounds: `npm run bench:gate [-- REF --rounds N --seconds S --refused]`; default: HEAD,
 * admitted requests.
 * Exits with 1 if a request takes over 5 % more processor time, and the spread leaves no doubt that it takes more.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { gateway, ROOT } from './contenders.ts'
import { folder } from './environment.ts'
import { mintTokens } from './load.ts'
import { type Bench, compare, ratios, runCommand, spread } from './measure.ts'
import { markdown } from './report.ts'

const DEARER = 1.05
/** Processes of each commit: two processes of the same code differ by a few per cent. */
const STARTS = 3

function must(command: string, args: readonly string[], cwd: string): string {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8' })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed: ${stderr}${stdout}`)
  return stdout.trim()
}

/** Builds a commit in a worktree of its own. */
function build(commit: string): string {
  const root = join(folder, 'commit')
  process.once('exit', () => spawnSync('git', ['worktree', 'remove', '--force', root], { cwd: ROOT }))
  must('git', ['worktree', 'add', '--detach', root, commit], ROOT)
  const lock = (of: string): string => readFileSync(join(of, 'package-lock.json'), 'utf8')
  if (lock(root) === lock(ROOT)) symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'))
  else must('npm', ['ci', '--silent'], root)
  must('npm', ['run', '--silent', 'build'], root)
  return root
}

/** The bounds between which the median lies, with 95 % confidence. */
function confidence(values: readonly number[]): readonly [number, number] {
  const sorted = values.toSorted((a, b) => a - b)
  const rank = Math.max(0, Math.floor((sorted.length - 1.96 * Math.sqrt(sorted.length)) / 2))
  return [sorted[rank]!, sorted.at(-1 - rank)!]
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '15' },
    seconds: { type: 'string', default: '2' },
    refused: { type: 'boolean', default: false },
  },
})

async function command(bench: Bench): Promise<number> {
  const commit = must('git', ['rev-parse', '--short', positionals[0] ?? 'HEAD'], ROOT)
  const { refused } = values
  const options = refused ? { limit: 1, windowS: 3600 } : { limit: 1000 }
  const work = { tokens: await mintTokens('RS256', refused ? 20 : 1000) }
  const terms = { work, authenticates: true, limit: options.limit, keepsCounters: refused, refuses: refused }
  const contenders = [
    { ...terms, name: commit, start: gateway(bench, { ...options, root: build(commit) }) },
    { ...terms, name: 'working tree', start: gateway(bench, options) },
  ]
  const cpu: number[] = []
  const rps: number[] = []
  for (let i = 0; i < STARTS; i++) {
    const rounds = Math.ceil(bench.rounds / STARTS)
    const [old, now] = await compare({ ...bench, rounds }, contenders)
    const failed = [old!, now!].find(({ failure }) => failure !== undefined)
    if (failed !== undefined) throw new Error(`${failed.contender.name}: ${failed.failure}`)
    cpu.push(...ratios(now!, old!, (round) => round.cpuUs))
    rps.push(...ratios(now!, old!, (round) => round.rps))
  }
  const line = (name: string, values: readonly number[]): readonly string[] => {
    const { median, min, max } = spread(values)
    return [name, ...[median, ...confidence(values), min, max].map((value) => value.toFixed(3))]
  }
  const header = [`working tree / ${commit}`, 'median', '95 % from', 'to', 'min', 'max']
  console.log(markdown(header, [line('requests/s', rps), line('processor time', cpu)]))
  const dearer = spread(cpu).median > DEARER && confidence(cpu)[0] > 1
  console.log(dearer ? `More than ${((DEARER - 1) * 100).toFixed(0)} % dearer.` : 'Not dearer.')
  return dearer ? 1 : 0
}

await runCommand(values, command)
