import { jsonSchema } from '../config/schema.ts'
import { type Args, type Io, textOf, writeOutput } from './io.ts'

/** Writes the JSON Schema of the configuration to a file, or prints it. */
export async function run(args: Args, { stdout }: Io): Promise<void> {
  const file = textOf(args, 'output')!
  const schema = schemaText()
  if (file === '-') stdout.write(schema)
  else await writeOutput(file, schema)
}

export function schemaText(): string {
  return `${JSON.stringify(jsonSchema(), undefined, 2)}\n`
}
