/**
 * Mutates the code one place at a time and runs the tests that run its line:
 * `npm run mutate [-- --count N --seed N --from I --covering FILE]`; default: 300, seed 1, from the first.
 * Prints each mutation that no test notices; exits with 1 if there is one. Works on copies of the folder,
 * one for each core. First finds which test runs which line, in a quarter of an hour; FILE keeps that.
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
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { createRandom } from '../test/simulation/random.ts'
import { coveredBy, type CoveringTests, testsIn, testsOfLine } from './covering-tests.ts'
import { vitest } from './vitest.ts'

/** The folders of `src` that are mutated. */
const ROOMS = ['limit', 'policy', 'upstream', 'downstream', 'par', 'authenticate']
const SOURCES = ROOMS.map((room) => `src/${room}/**`)
/** The tests of what these rooms do, by themselves and in a gateway. */
const TESTS = [...ROOMS, 'edge', 'fuzz', 'gateway', 'simulation'].map((folder) => `test/${folder}`)
/** Tests of processes, whose lines are not known. */
const OF_PROCESSES = [
  'test/process',
  'test/commands/start.test.ts',
  'test/commands/connect.test.ts',
  'test/downstream',
  'test/limit/redis',
]

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
  readonly file: string
  readonly line: number
  readonly before: string
  readonly after: string
}

function mutationsOf(file: string): Mutation[] {
  const found: Mutation[] = []
  for (const [i, before] of readFileSync(file, 'utf8').split('\n').entries()) {
    if (/^\s*(?:\/\/|\/?\*|import |export type |(?:export )?interface |readonly )/.test(before)) continue
    for (const [pattern, replacement] of MUTATIONS) {
      for (const { index, 0: text } of before.matchAll(pattern)) {
        const after =
          before.slice(0, index) +
          text.replace(new RegExp(pattern.source), replacement) +
          before.slice(index + text.length)
        if (after !== before) found.push({ file, line: i + 1, before, after })
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

/** Creates a copy of the folder, which is deleted at the end. */
function createCopy(): string {
  const copy = mkdtempSync(join(tmpdir(), 'sluice-mutate-'))
  process.once('exit', () => rmSync(copy, { recursive: true, force: true }))
  for (const name of readdirSync('.')) {
    if (name === '.git' || name === 'dist') continue
    if (name === 'node_modules') symlinkSync(join(process.cwd(), name), join(copy, name))
    else cpSync(name, join(copy, name), { recursive: true })
  }
  return copy
}

const copies = Array.from({ length: availableParallelism() }, createCopy)

/** Acts on each item, in one copy each at a time. */
async function forEach<Item>(items: Iterable<Item>, act: (item: Item, copy: string) => Promise<void>) {
  const rest = items[Symbol.iterator]()
  const workers = copies.map(async (copy) => {
    for (let next = rest.next(); next.done !== true; next = rest.next()) await act(next.value, copy)
  })
  await Promise.all(workers)
}

/** Returns the tests by the lines that they run, from a file if there is one; writes it otherwise. */
async function coveringTests(file: string | undefined): Promise<CoveringTests> {
  if (file !== undefined && existsSync(file)) return JSON.parse(readFileSync(file, 'utf8')) as CoveringTests
  const covering: Record<string, CoveringTests[string]> = {}
  await forEach(testsIn(TESTS), async (test, copy) => {
    covering[test] = await coveredBy(test, SOURCES, copy)
  })
  if (file !== undefined) writeFileSync(file, JSON.stringify(covering))
  return covering
}

/** Returns true if the copy compiles; checks only what depends on the file that was changed since the last time. */
const compiles = (copy: string): boolean =>
  spawnSync(
    'node_modules/.bin/tsc',
    ['-p', 'tsconfig.build.json', '--noEmit', '--incremental', '--tsBuildInfoFile', 'mutated.tsbuildinfo'],
    { cwd: copy, stdio: 'ignore' },
  ).status === 0

/** Returns true if no test notices the mutation that a copy has. */
async function survives({ file, line }: Mutation, covering: CoveringTests, copy: string): Promise<boolean> {
  // A mutation that does not compile is noticed: half of them.
  if (!compiles(copy)) return false
  const tests = testsOfLine(covering, file, line)
  const inOrder = { SLUICE_TEST_ORDER: tests.join(',') }
  // Each worker takes 3 s of a core to import the code, and the first tests notice most mutations.
  const one = ['--bail', '1', '--maxWorkers', '1', ...tests]
  if (tests.length > 0 && !(await vitest(copy, one, inOrder))) return false
  return await vitest(copy, ['--bail', '1', ...tests, ...OF_PROCESSES], { SLUICE_SLOW: '1' })
}

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '300' },
    seed: { type: 'string', default: '1' },
    from: { type: 'string', default: '1' },
    covering: { type: 'string' },
  },
})
const all = ROOMS.flatMap((room) =>
  readdirSync(join('src', room), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .toSorted()
    .flatMap((name) => mutationsOf(join('src', room, name))),
)
const picked = pick(all, Number(values.count), Number(values.seed))
const tried = [...picked.entries()].slice(Number(values.from) - 1)
const covering = await coveringTests(values.covering)
let survivors = 0
await forEach(tried, async ([i, mutation], copy) => {
  const { file, line, before, after } = mutation
  const text = readFileSync(file, 'utf8').split('\n')
  text[line - 1] = after
  writeFileSync(join(copy, file), text.join('\n'))
  const isNoticed = !(await survives(mutation, covering, copy))
  cpSync(file, join(copy, file))
  const about = `${i + 1}/${picked.length}`
  if (isNoticed) return console.log(`${about} noticed: ${file}:${line}`)
  survivors++
  console.log(`${about} survived: ${file}:${line}\n  - ${before.trim()}\n  + ${after.trim()}`)
})
console.log(
  `${survivors} of ${tried.length} mutations were not noticed (of ${all.length} possible, seed ${values.seed})`,
)
process.exitCode = survivors === 0 ? 0 : 1
