import { spawn, type ChildProcess } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { BIN, withTests } from '../helpers/process.ts'

const ROOT = join(import.meta.dirname, '../..')

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Starts `sluice` as a process of its own. */
export function spawnSluice(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): ChildProcess {
  const { SLUICE_CONFIG: _, ...outer } = process.env
  return withTests(
    spawn(process.execPath, [BIN, ...args], {
      cwd: ROOT,
      env: { ...outer, ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    }),
  )
}

/** Runs `sluice` to its end. */
export async function sluice(
  args: readonly string[],
  {
    stdin = '',
    env = {},
  }: { readonly stdin?: string | Buffer; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<Ended> {
  const child = spawnSluice(args, env)
  child.stdin!.end(stdin)
  const [stdout, stderr, code] = await Promise.all([
    text(child.stdout!),
    text(child.stderr!),
    new Promise<number | null>((resolve) => child.once('close', resolve)),
  ])
  return { code, stdout, stderr }
}

/** The test that each of these command lines ends with 64, these words and nothing else. */
export function itEndsWrongUsage(
  cases: readonly (readonly [args: readonly string[], message: string])[],
): void {
  it.for(cases)('ends wrong usage with 64: %j', async ([args, message]) => {
    expect(await sluice(args)).toEqual({
      code: 64,
      stdout: '',
      stderr: `sluice: ${message}\nSee "sluice --help".\n`,
    })
  })
}
