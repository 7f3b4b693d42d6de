import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Tests that wait for long. They begin first, so that no worker is left with one at the end. */
const SLOW =
  /(?:workers\/workers|admin\/console|commands\/(?:start|sandbox)|redis\/(?:outage|store)|process\/reload|docs\/tasks|deploy\/forward-auth|simulation|gateway\/(?:outage-load|failover|exactness))[^/]*\.test\.ts$/

const isSlow = ({ moduleId }: TestSpecification): boolean => SLOW.test(moduleId)

class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- not of an array
    const sorted = await super.sort(files)
    return [...sorted.filter(isSlow), ...sorted.filter((file) => !isSlow(file))]
  }
}

export default defineConfig({
  test: {
    // What takes minutes: `npm run test:long`.
    include: ['test/**/*.test.ts', ...(process.env['SLUICE_LONG'] === '1' ? ['test/**/*.long.ts'] : [])],
    setupFiles: ['test/helpers/close-all.ts'],
    globalSetup: ['test/helpers/build.ts', 'test/helpers/shared-servers.ts'],
    // Generous: on a busy machine a process takes many seconds to start.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // For two cores, as tests wait for servers half of their time: four take 10 % longer, six too.
    maxWorkers: 5,
    // Files of a worker share what they import: loading it anew for each took a fifth of the time.
    isolate: false,
    sequence: { sequencer: SlowFirst },
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      reporter: ['text-summary'],
      // Just under what is measured.
      thresholds: { lines: 92, branches: 91 },
    },
  },
})
