/** Which tests run which lines of the code. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { vitest } from './vitest.ts'

/** The lines of `src` that a test file runs, by file, and how long it takes. */
interface Covered {
  readonly seconds: number
  readonly lines: Readonly<Record<string, readonly number[]>>
}
/** The lines that tests run, by test file. */
export type CoveringTests = Readonly<Record<string, Covered>>

/** The coverage of a file of `src` in `coverage-final.json`: its statements by number, and how often each ran. */
interface FileCoverage {
  readonly statementMap: Readonly<
    Record<string, Readonly<Record<'start' | 'end', { readonly line: number }>>>
  >
  readonly s: Readonly<Record<string, number>>
}

/** Returns the test files in folders. */
export const testsIn = (folders: readonly string[]): readonly string[] =>
  folders.flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.test.ts'))
      .map((name) => join(folder, name)),
  )

/** Runs a test file in a copy of the repository, and returns what it covers of files that match patterns. */
export async function coveredBy(test: string, sources: readonly string[], copy: string): Promise<Covered> {
  const reports = mkdtempSync(join(tmpdir(), 'sluice-coverage-'))
  const startedAt = performance.now()
  const ofReport = ['--coverage.reporter=json', `--coverage.reportsDirectory=${reports}`]
  const options = ['--coverage', ...ofReport, ...sources.map((pattern) => `--coverage.include=${pattern}`)]
  await vitest(copy, [...options, '--maxWorkers', '1', test])
  const seconds = (performance.now() - startedAt) / 1000
  const report = join(reports, 'coverage-final.json')
  const files = existsSync(report)
    ? (JSON.parse(readFileSync(report, 'utf8')) as Record<string, FileCoverage>)
    : {}
  rmSync(reports, { recursive: true })
  const lines = Object.entries(files).map(([file, coverage]) => [relative(copy, file), linesOf(coverage)])
  return { seconds, lines: Object.fromEntries(lines) as Covered['lines'] }
}

/** Returns the lines whose innermost statement ran. */
function linesOf({ statementMap, s }: FileCoverage): readonly number[] {
  const innermost = new Map<number, { readonly size: number; readonly hasRun: boolean }>()
  for (const [id, { start, end }] of Object.entries(statementMap)) {
    const size = end.line - start.line
    for (let line = start.line; line <= end.line; line++) {
      const known = innermost.get(line)
      const hasRun = s[id]! > 0 || (known?.size === size && known.hasRun)
      if (known === undefined || size <= known.size) innermost.set(line, { size, hasRun })
    }
  }
  return [...innermost].filter(([, { hasRun }]) => hasRun).map(([line]) => line)
}

/**
 * Returns the tests that run a line, or its file if the line has no statement: those named like its file first,
 * then those of its folder, then the quickest.
 */
export function testsOfLine(tests: CoveringTests, file: string, line: number): readonly string[] {
  const folder = dirname(file).replace('src', 'test')
  const own = join(folder, `${basename(file, '.ts')}.test.ts`)
  const distance = (test: string): number => {
    if (test === own) return 0
    return dirname(test) === folder ? 1 : 2
  }
  const ofFile = Object.keys(tests).filter((test) => (tests[test]!.lines[file] ?? []).length > 0)
  const ofLine = ofFile.filter((test) => tests[test]!.lines[file]!.includes(line))
  return (ofLine.length > 0 ? ofLine : ofFile).toSorted(
    (a, b) => distance(a) - distance(b) || tests[a]!.seconds - tests[b]!.seconds,
  )
}
