import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
import { z } from 'zod'
import { FORWARD_AUTH_PROXIES, type ForwardAuthProxy } from '../../../src/downstream/forward-auth.ts'

/** Reads the files of `../scenarios/`: the README.md there says what they mean. */

const values = z.record(z.string(), z.unknown())
const callSchema = z.strictObject({
  send: z
    .string()
    .regex(/^[A-Z]+ /)
    .optional(),
  bytes: z.string().optional(),
  token: z.union([values, z.string()]).optional(),
  headers: z.record(z.string(), z.union([z.string(), z.array(z.string())])).optional(),
  body: z.string().optional(),
  asks: z.union([z.literal(true), z.string().regex(/^[A-Z]+ /)]).optional(),
  to: z.literal('admin').optional(),
  answers: z.record(z.string(), z.union([z.string(), z.number(), z.array(z.string())])).optional(),
  times: z.number().optional(),
  eventually: z.literal(true).optional(),
  gets: z.union([z.number(), values]).optional(),
  forwarded: z.union([z.literal('nothing'), values]).optional(),
  logged: values.optional(),
})
const stepSchema = z.union([
  z.strictObject({ metrics: z.array(z.string()) }),
  z.strictObject({ 'log lacks': z.string() }),
  z.strictObject({ counters: values }),
  z.strictObject({ runs: z.string(), prints: z.array(z.string()).default([]) }),
  callSchema.extend({ each: z.array(callSchema).optional() }),
])
const steps = z.array(stepSchema)
const scenarioSchema = z.union([steps, z.strictObject({ configuration: values, steps })])
const fileSchema = z.strictObject({
  configuration: values,
  in: z.array(z.enum(['memory', 'Redis'])).default(['memory']),
  scenarios: z.record(z.string(), scenarioSchema),
})

export type Values = z.infer<typeof values>
export type SentCall = z.infer<typeof callSchema>
export type Where = 'memory' | 'Redis'

export interface Scenario {
  readonly title: string
  readonly where: Where
  /** Scenarios with the same one share a gateway. */
  readonly configuration: Values
  /** The proxy that asks, if `forwardAuth` is configured. */
  readonly asking: ForwardAuthProxy | undefined
  readonly steps: z.infer<typeof steps>
}

/** Reads the scenarios of a file. Throws an error if it has an unknown key. */
export function scenariosOf(file: string): Scenario[] {
  const { configuration: shared, in: places, scenarios } = fileSchema.parse(parse(readFileSync(file, 'utf8')))
  return places.flatMap((where) =>
    Object.entries(scenarios).flatMap(([title, own]) => {
      const steps = 'steps' in own ? own.steps : own
      const configuration = 'steps' in own ? { ...shared, ...own.configuration } : shared
      const { from } = (configuration['forwardAuth'] ?? {}) as { from?: ForwardAuthProxy | 'each' }
      if (from !== 'each') return [{ title, where, configuration, asking: from, steps }]
      return FORWARD_AUTH_PROXIES.map((asking) => {
        const forwardAuth = { port: 0, from: asking }
        return {
          ...{ title: `${title}, asked by ${asking}`, where, asking, steps },
          configuration: { ...configuration, forwardAuth },
        }
      })
    }),
  )
}
