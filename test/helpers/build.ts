import { execFileSync } from 'node:child_process'
import { chmodSync, copyFileSync, cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { TestProject } from 'vitest/node'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Builds the program for tests that start it as a process: the build starts twice as fast as the sources. */
export function setup(project: TestProject): void {
  // Inherited by the workers: their temporary folders are deleted with this folder.
  process.env['TMPDIR'] = mkdtempSync(join(tmpdir(), 'sluice-'))
  build()
  project.onTestsRerun(build)
}

export function teardown(): void {
  rmSync(process.env['TMPDIR']!, { recursive: true, force: true, maxRetries: 3 })
}

/** Returns the command that writes the commit of a build. */
export function buildRevision(): string {
  const { scripts } = JSON.parse(readFileSync(`${ROOT}/package.json`, 'utf8')) as {
    readonly scripts: Readonly<Record<string, string>>
  }
  return scripts['build:revision']!
}

/** Builds like `npm run build`, without type checks. */
function build(): void {
  execFileSync(
    process.execPath,
    ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json', '--noCheck'],
    {
      cwd: ROOT,
      stdio: 'inherit',
    },
  )
  execFileSync('sh', ['-c', buildRevision()], { cwd: ROOT })
  chmodSync(`${ROOT}/dist/bin/sluice.js`, 0o755)
  cpSync(`${ROOT}/src/admin/console`, `${ROOT}/dist/src/admin/console`, { recursive: true })
  for (const name of readdirSync(`${ROOT}/src/limit/redis`)) {
    if (name.endsWith('.lua'))
      copyFileSync(`${ROOT}/src/limit/redis/${name}`, `${ROOT}/dist/src/limit/redis/${name}`)
  }
}
