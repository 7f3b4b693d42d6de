import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { jsonSchema } from '../config/schema.ts'
import { type Args, type Io, textOf } from './io.ts'

/** Writes the JSON Schema of the configuration to a file, or prints it. */
export async function run(args: Args, { stdout }: Io): Promise<void> {
  const file = textOf(args, 'output')!
  if (file === '-') stdout.write(schemaText())
  else await writeOutput(file, schemaText())
}

export const schemaText = (): string => `${JSON.stringify(jsonSchema(), undefined, 2)}\n`

const UNWRITABLE: Readonly<Record<string, string>> = {
  EEXIST: 'exists already. Give --force to overwrite it, or another --output.',
  ENOENT: 'cannot be written: its folder does not exist. Create it, or give another --output.',
}

/** Writes the file that `--output` names; the flag `wx` does not overwrite a file. */
export async function writeOutput(file: string, text: string, flag: 'w' | 'wx' = 'w'): Promise<void> {
  await writeFile(file, text, { flag }).catch((error: NodeJS.ErrnoException) => {
    const reason = UNWRITABLE[error.code ?? ''] ?? `cannot be written: ${error.message}`
    throw new Error(`${file} ${reason}`, { cause: error })
  })
}

/** Throws early if `writeOutput` would fail. `overwrite` allows an existing file. */
export function assertWritable(file: string, overwrite: boolean): void {
  if (!existsSync(dirname(file))) throw new Error(`${file} ${UNWRITABLE['ENOENT']}`)
  if (!overwrite && existsSync(file)) throw new Error(`${file} ${UNWRITABLE['EEXIST']}`)
}
