import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    // What takes minutes: `npm run test:long`.
    include: ['test/**/*.test.ts', ...(process.env['SLUICE_LONG'] === '1' ? ['test/**/*.long.ts'] : [])],
    globalSetup: ['test/helpers/build.ts', 'test/helpers/shared-servers.ts'],
    // Generous: on a busy machine a process takes many seconds to start.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Twice as many as there are cores on a small machine: tests wait for servers half of their time.
    maxWorkers: 4,
    // Files of a worker share what they import: loading it anew for each took a fifth of the time.
    isolate: false,
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      reporter: ['text-summary'],
      // Just under what is measured.
      thresholds: { lines: 92, branches: 91 },
    },
  },
})
