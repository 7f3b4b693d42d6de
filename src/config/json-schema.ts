import { z } from 'zod'
import { settings } from './schema.ts'

type Json = z.core.JSONSchema.BaseSchema

/** The JSON Schema of the file, for editors: what `settings` takes, and `${NAME}` in place of any value. */
export function jsonSchema(): Json {
  const { $schema = 'https://json-schema.org/draft/2020-12/schema', ...schema } = z.toJSONSchema(settings, {
    io: 'input',
  })
  return {
    $schema,
    title: 'Sluice configuration',
    ...withVariables(schema),
    $defs: {
      variable: {
        type: 'string',
        pattern: '\\$\\{',
        description: 'A value of the environment: ${NAME} or ${NAME:-default}.',
      },
    },
  }
}

function withVariables(schema: Json): Json {
  const { properties, items, additionalProperties, anyOf } = schema
  const inner: Json = {
    ...schema,
    ...(properties && { properties: mapValues(properties as Record<string, Json>, withVariables) }),
    ...(typeof items === 'object' && { items: withVariables(items as Json) }),
    ...(typeof additionalProperties === 'object' && {
      additionalProperties: withVariables(additionalProperties),
    }),
    ...(anyOf && { anyOf: anyOf.map(withVariables) }),
  }
  const bounded = inner.type === 'integer' || inner.enum || inner.const !== undefined || inner.pattern
  if (!bounded) return inner
  const { description, default: otherwise, ...value } = inner
  return {
    ...(description !== undefined && { description }),
    ...(otherwise !== undefined && { default: otherwise }),
    anyOf: [value, { $ref: '#/$defs/variable' }],
  }
}

function mapValues<V, W>(record: Record<string, V>, change: (value: V) => W): Record<string, W> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value)]))
}
