import { readdirSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { DOCS, fileText } from '../helpers/repository.ts'

/** The documents, the workflow and the script of CI agree on versions: of Node.js, and of Sluice. */
const { scripts, repository } = JSON.parse(fileText('package.json')) as {
  scripts: Record<string, string>
  repository: { url: string }
}

/** The versions of Node.js that run all tests, the smoke test, and a half of the slow tests each. */
interface Runs {
  readonly all: readonly string[]
  readonly smoke: readonly string[]
  readonly slow: readonly string[]
}

/** Returns what `.ci/run` runs, without its first run, which is on the machine's own Node.js, the oldest version. */
function runsOfScript(): Omit<Runs, 'all'> & { readonly platform: readonly string[] } {
  const text = fileText('.ci/run')
  const matchOf = (pattern: RegExp): string => pattern.exec(text)?.[1] ?? `no ${pattern}`
  const others = matchOf(/^versions=\(([\d ]+)\)$/m).split(' ')
  const smoke = scripts['test:smoke']!.replace('vitest run ', '')
  expect(text).toContain(`for version in "\${versions[@]}"; do on "$version" ${smoke}; done`)
  expect(text).toContain('turn=$(($(git rev-list --count HEAD) % 8))')
  expect(text).toContain('on "${versions[turn % 2]}" --shard "$((turn + 1))/8" "${slow[@]}"')
  return {
    platform: [matchOf(/^ {2}on (\d+) test\/commands\//m), matchOf(/^ {2}on (\d+) test\/\{/m)],
    smoke: others,
    slow: others,
  }
}

/** Returns what the job `test` of ci.yml runs. */
function runsOfWorkflow(): Runs {
  const { jobs } = parse(fileText('.github/workflows/ci.yml')) as {
    jobs: { test: { strategy: { matrix: { node: number[] } }; steps: { run?: string; if?: string }[] } }
  }
  const { strategy, steps } = jobs.test
  const versionsOf = (command: string): readonly string[] =>
    steps
      .filter(({ run }) => run === command)
      .flatMap((step) => step.if?.match(/\d+/g) ?? strategy.matrix.node.map(String))
  return {
    all: [...versionsOf('npm test'), ...versionsOf('npm run test:coverage')],
    smoke: versionsOf('npm run test:smoke'),
    slow: [...versionsOf('npm run test:slow:first'), ...versionsOf('npm run test:slow:second')],
  }
}

describe('the versions of Node.js', () => {
  const runs = runsOfWorkflow()

  it('the script and the workflow of CI run the same tests on the same versions, except that the script runs fewer on 24', () => {
    const { all, ...others } = runs
    expect(runs).toEqual({ all: ['20', '24'], smoke: ['22', '26'], slow: ['22', '26'] })
    expect(runsOfScript()).toEqual({ platform: [all[1], all[1]], ...others })
    expect(fileText('.ci/run')).toMatch(/^readme\(\) \{ npm ci && npm run setup && npm test; \}$/m)
  })

  it('the script runs the tests of folders that exist, in two halves by turn', () => {
    const text = fileText('.ci/run')
    expect(text).toContain(`if [ $((turn % 2)) = 0 ]; then
  on 24 test/commands/start.test.ts test/downstream/
else
  on 24 test/{edge,runtime,upstream}/
fi`)
    const folders = readdirSync(new URL('..', import.meta.url))
    expect(folders).toEqual(expect.arrayContaining(['downstream', 'edge', 'runtime', 'upstream']))
  })

  it.each(['CONTRIBUTING.md', 'docs/versioning.md'])('%s says which version runs which tests', (name) => {
    const text = fileText(name).replaceAll(/\s+/g, ' ')
    expect(text).toContain(
      `CI runs all tests except the slow ones on Node ${runs.all.join(' and ')}, and a smoke test`,
    )
    expect(text).toContain(`half of the slow tests each on Node ${runs.slow.join(' and ')}.`)
  })

  it('README names the versions of CI that npm run check represents', () => {
    expect(fileText('README.md')).toContain(`what CI runs on each of Node ${runs.all.join(' and ')}`)
  })
})

describe('a version that was not released', () => {
  /** set-repository.sh, the first step of a release, replaces it. */
  const isReleased = !repository.url.includes('repository.invalid')
  const stating = ['README.md', 'SECURITY.md', 'docs/upgrading.md', 'docs/versioning.md']

  it.each(stating)('%s says whether there is a release', (name) => {
    expect(/there is no release yet/i.test(fileText(name))).toBe(!isReleased)
  })

  it('the changelog names no version as released', () => {
    const headings = fileText('CHANGELOG.md').match(/^## .*$/gm)!
    expect(headings[0]).toBe('## [Unreleased]')
    for (const heading of headings.slice(1))
      expect(heading.endsWith(' - not released'), heading).toBe(!isReleased)
  })

  it.each(['README.md', 'SECURITY.md', 'CONTRIBUTING.md', ...DOCS])(
    '%s names no released version',
    (name) => {
      if (isReleased) return
      // Except as the example of a tag, and in what --version prints.
      expect(fileText(name)).not.toMatch(/(?<!`v)\b0\.1\.0\b(?! \(commit)/)
    },
  )
})
