import { readFileSync } from 'node:fs'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type Reporter, type TestModule, type TestSpecification } from 'vitest/node'

const isSet = (variable: string): boolean => process.env[variable] === '1'

/** Tests that start other programs, or simulate outages, take longest: begun first, none is left at the end. */
const SLOW = /helpers\/(?:asking-proxies|browser|console|process)\.ts'|\bstart(?:Redis|Cluster|Sentinels)\(/
const isSlow = ({ moduleId }: TestSpecification): boolean =>
  moduleId.includes('/test/simulation/') || SLOW.test(readFileSync(moduleId, 'utf8'))

/** The files in the order in which they are to run, which `npm run mutate` knows. */
const ORDER = process.env['SLUICE_TEST_ORDER']?.split(',')
const placeOf = ({ moduleId }: TestSpecification): number =>
  ORDER!.findIndex((file) => moduleId.endsWith(`/${file}`))

class Sequencer extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- not of an array
    const sorted = await super.sort(files)
    if (ORDER !== undefined) return sorted.toSorted((a, b) => placeOf(a) - placeOf(b))
    return [...sorted.filter(isSlow), ...sorted.filter((file) => !isSlow(file))]
  }
}

const secondsOf = (module: TestModule): number => {
  const { collectDuration, duration } = module.diagnostic()
  return (collectDuration + duration) / 1000
}
/** Prints the ten files that took longest. */
const slowest: Reporter = {
  onTestRunEnd(modules) {
    const ten = modules.toSorted((a, b) => secondsOf(b) - secondsOf(a)).slice(0, 10)
    const rows = ten.map((one) => `${secondsOf(one).toFixed(1).padStart(6)} s  ${one.relativeModuleId}\n`)
    process.stdout.write(`\nSlowest files\n${rows.join('')}`)
  },
}

export default defineConfig({
  test: {
    include: [
      'test/**/*.test.ts',
      // Many processes, or a load, for what smaller tests cover in part: `npm run test:slow`.
      ...(isSet('SLUICE_SLOW') || isSet('SLUICE_LONG') ? ['test/**/*.slow.ts'] : []),
      // What takes minutes: `npm run test:long`.
      ...(isSet('SLUICE_LONG') ? ['test/**/*.long.ts'] : []),
    ],
    setupFiles: ['test/helpers/close-all.ts', 'test/helpers/one-monitor.ts'],
    globalSetup: ['test/helpers/build.ts', 'test/helpers/shared-servers.ts'],
    // Generous: on a busy machine a process takes many seconds to start.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // For two cores, as tests wait for servers half of their time. Each worker imports the code anew: 2 s of a core.
    maxWorkers: 5,
    // Files of a worker share what they import: loading it anew for each took a fifth of the time.
    isolate: false,
    // A larger young generation: collecting garbage took a seventh of the time.
    execArgv: ['--max-semi-space-size=64', '--min-semi-space-size=16'],
    sequence: { sequencer: Sequencer },
    reporters: ['default', slowest],
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      reporter: ['text-summary'],
      // Just under what is measured.
      thresholds: { lines: 92, branches: 91 },
    },
  },
})
