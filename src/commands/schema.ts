import { writeFile } from 'node:fs/promises'
import { jsonSchema, teamJsonSchema } from '../config/schema.ts'
import { type Args, textOf } from './args.ts'
import type { Io } from './io.ts'

/** Prints the JSON Schema of the configuration, or of a team's file, or writes it to the file of `--output`. */
export async function run(args: Args, { stdout }: Io): Promise<void> {
  const file = textOf(args, 'output')!
  const text = formatSchema(args['team'] === true ? teamJsonSchema() : jsonSchema())
  if (file === '-') stdout.write(text)
  else await writeFile(file, text)
}

export const formatSchema = (schema: object): string => `${JSON.stringify(schema, undefined, 2)}\n`
