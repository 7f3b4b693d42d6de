import { spawn } from 'node:child_process'
import { once } from 'node:events'

/** A run that takes longer is in an endless loop. */
const RUN_SECONDS = '900'

/** Runs vitest in a folder, with further variables of the environment. Resolves to true if the tests pass. */
export async function vitest(
  cwd: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<boolean> {
  // `timeout` also ends the workers: one may be in an endless loop.
  const child = spawn(
    'timeout',
    ['--kill-after=1', RUN_SECONDS, 'node_modules/.bin/vitest', 'run', ...args],
    {
      cwd,
      env: { ...process.env, ...env },
      stdio: 'ignore',
    },
  )
  const [code] = (await once(child, 'exit')) as [number | null]
  return code === 0
}
