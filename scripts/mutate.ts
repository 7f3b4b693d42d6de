/**
 * Mutates the code one place at a time and runs the tests of its room:
 * `npm run mutate [-- --count N --seed N --shard I/N --from I]`; default: 300, seed 1, all
 * shards, from the first of the shard. Prints each mutation that no test notices; exits with 1 if there
 * is one. Works on a copy of the folder.
 */
import { spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { createRandom } from '../test/simulation/random.ts'

/** The tests of calls without Redis, by what their callers get. */
const OUTAGE = ['test/simulation/hand-over.test.ts', 'test/simulation/without-redis.test.ts']

/** Room → its tests. They follow those of the mutated file's folder; `LATER` follow if these pass. */
const ROOMS: Readonly<Record<string, readonly string[]>> = {
  limit: ['test/limit', 'test/policy', ...OUTAGE],
  policy: ['test/policy', 'test/limit'],
  upstream: ['test/upstream'],
  downstream: ['test/downstream', 'test/edge'],
  par: ['test/par'],
  authenticate: ['test/authenticate'],
}
/** The tests that follow: most of what the first ones miss is found by scenarios. */
const LATER = [['test/gateway/scenarios'], ['test/gateway', 'test/fuzz']]
/** A run that takes longer is in an endless loop. */
const RUN_SECONDS = '900'

/** Patterns, and their replacements. */
const MUTATIONS: readonly (readonly [pattern: RegExp, replacement: string])[] = [
  [/ === /g, ' !== '],
  [/ !== /g, ' === '],
  [/ && /g, ' || '],
  [/ \|\| /g, ' && '],
  [/ \?\? /g, ' && '],
  [/ < /g, ' <= '],
  [/ <= /g, ' < '],
  [/ > /g, ' >= '],
  [/ >= /g, ' > '],
  [/ \+ /g, ' - '],
  [/ - /g, ' + '],
  [/\btrue\b/g, 'false'],
  [/\bfalse\b/g, 'true'],
  [/\bif \((?!!)/g, 'if (!'],
  // A statement that is only a call.
  [/^( +)(?:void )?[\w.#]+(?:\?\.|!\.)?[\w.#]*\([^{]*\)$/g, '$1;'],
]

interface Mutation {
  readonly room: string
  readonly file: string
  readonly line: number
  readonly before: string
  readonly after: string
}

function mutationsOf(room: string, file: string): Mutation[] {
  const found: Mutation[] = []
  for (const [i, before] of readFileSync(file, 'utf8').split('\n').entries()) {
    if (/^\s*(?:\/\/|\/?\*|import |export type |(?:export )?interface |readonly )/.test(before)) continue
    for (const [pattern, replacement] of MUTATIONS) {
      for (const { index, 0: text } of before.matchAll(pattern)) {
        const after =
          before.slice(0, index) +
          text.replace(new RegExp(pattern.source), replacement) +
          before.slice(index + text.length)
        if (after !== before) found.push({ room, file, line: i + 1, before, after })
      }
    }
  }
  return found
}

/** Picks without repetition, the same for the same seed. */
function pick<Item>(items: readonly Item[], count: number, seed: number): readonly Item[] {
  const { next } = createRandom(seed)
  const rest = [...items]
  return Array.from(
    { length: Math.min(count, rest.length) },
    () => rest.splice(Math.floor(next() * rest.length), 1)[0]!,
  )
}

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '300' },
    seed: { type: 'string', default: '1' },
    shard: { type: 'string', default: '1/1' },
    from: { type: 'string', default: '1' },
  },
})
const folder = mkdtempSync(join(tmpdir(), 'sluice-mutate-'))
process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
for (const name of readdirSync('.')) {
  if (name === '.git' || name === 'dist') continue
  if (name === 'node_modules') symlinkSync(join(process.cwd(), name), join(folder, name))
  else cpSync(name, join(folder, name), { recursive: true })
}

/** Returns the tests named like a file of `src`, or else those of its folder below its room, if it has any. */
function nearest(room: string, file: string): readonly string[] {
  const folder = dirname(file).replace('src', 'test')
  const own = join(folder, `${basename(file, '.ts')}.test.ts`)
  return [own, folder].filter((path) => path !== join('test', room) && existsSync(path)).slice(0, 1)
}

function passes(tests: readonly string[], options: readonly string[] = []): boolean {
  // `timeout` also ends the workers: one may be in an endless loop.
  const args = ['--kill-after=1', RUN_SECONDS, 'npx', 'vitest', 'run', '--bail', '1', ...options, ...tests]
  const env = { ...process.env, SLUICE_SLOW: '1', SLUICE_MUTATED: '1' }
  return spawnSync('timeout', args, { cwd: folder, env, stdio: 'ignore' }).status === 0
}

/** Returns true if the copy compiles. A mutation that does not compile is noticed. */
const compiles = (): boolean =>
  spawnSync('npx', ['tsc', '-p', 'tsconfig.build.json', '--noEmit'], { cwd: folder, stdio: 'ignore' })
    .status === 0

const all = Object.keys(ROOMS).flatMap((room) =>
  readdirSync(join('src', room), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .toSorted()
    .flatMap((name) => mutationsOf(room, join('src', room, name))),
)
let survivors = 0
const [shard, shards] = values.shard.split('/').map(Number) as [number, number]
const picked = pick(all, Number(values.count), Number(values.seed)).filter((_, i) => i % shards === shard - 1)
const tried = [...picked.entries()].slice(Number(values.from) - 1)
for (const [i, { room, file, line, before, after }] of tried) {
  const text = readFileSync(file, 'utf8').split('\n')
  text[line - 1] = after
  writeFileSync(join(folder, file), text.join('\n'))
  // The first tests often take less time than the compiler; a few of them, less in one worker than in all.
  const near = nearest(room, file)
  const survives =
    (near.length === 0 || passes(near, ['--maxWorkers', '1'])) &&
    passes(ROOMS[room]!) &&
    compiles() &&
    LATER.every((tests) => passes(tests))
  cpSync(file, join(folder, file))
  if (survives) {
    survivors++
    console.log(
      `${i + 1}/${picked.length} survived: ${file}:${line}\n  - ${before.trim()}\n  + ${after.trim()}`,
    )
  } else console.log(`${i + 1}/${picked.length} noticed: ${file}:${line}`)
}
console.log(
  `${survivors} of ${tried.length} mutations were not noticed (of ${all.length} possible, seed ${values.seed})`,
)
process.exitCode = survivors === 0 ? 0 : 1
