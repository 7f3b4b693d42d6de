import { z } from 'zod'
import { settings } from './schema.ts'

type Json = z.core.JSONSchema.BaseSchema

/** The JSON Schema of the file, for editors: what `settings` takes, and `${NAME}` in place of any value. */
export function jsonSchema(): Json {
  const { $schema, ...schema } = z.toJSONSchema(settings, {
    io: 'input',
    override: ({ jsonSchema, path }) => {
      if (path.at(-1) !== 'propertyNames') withVariable(jsonSchema)
    },
  })
  return {
    $schema: $schema!,
    title: 'Sluice configuration',
    ...schema,
    $defs: {
      variable: {
        type: 'string',
        pattern: '\\$\\{',
        description: 'A value of the environment: ${NAME} or ${NAME:-default}.',
      },
    },
  }
}

/** Lets a variable stand where a value is bounded. */
function withVariable(schema: Json): void {
  const { description: _, default: __, ...value } = schema
  if (value.type !== 'integer' && !value.enum && value.const === undefined && !value.pattern) return
  for (const key of Object.keys(value)) delete schema[key]
  schema.anyOf = [value, { $ref: '#/$defs/variable' }]
}
