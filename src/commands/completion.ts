import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { packageFile } from '../runtime/package.ts'
import { type Args, positionals, UsageError } from './args.ts'
import type { Io } from './io.ts'

/** Prints the completion script of a shell, by default of the one that the variable SHELL names. */
export async function run(args: Args, { env, stdout }: Io): Promise<void> {
  const [shell = basename(env['SHELL'] ?? '')] = positionals(args)
  if (!/^(bash|zsh|fish)$/.test(shell)) throw new UsageError('Which shell? One of bash, zsh, fish.')
  stdout.write(readFileSync(packageFile(`config/completion/sluice.${shell}`), 'utf8'))
}
