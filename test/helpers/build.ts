import { execFileSync } from 'node:child_process'
import { copyFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { TestProject } from 'vitest/node'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Builds what the tests start as processes of their own: as built, it starts in half the time that its sources take. */
export function setup(project: TestProject): void {
  build()
  project.onTestsRerun(build)
}

/** As `npm run build`, without looking at types. */
function build(): void {
  execFileSync(
    process.execPath,
    ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json', '--noCheck'],
    {
      cwd: ROOT,
      stdio: 'inherit',
    },
  )
  copyFileSync(`${ROOT}/src/limit/charge.lua`, `${ROOT}/dist/src/limit/charge.lua`)
}
