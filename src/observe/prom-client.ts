import { createRequire } from 'node:module'
import type * as whole from 'prom-client'

const require = createRequire(import.meta.url)

/**
 * Loads a module of prom-client. Its index would load all of them, and OpenTelemetry's API with
 * them: 57 modules more, a tenth of the processor time of a start. The version of prom-client is
 * exact in package.json, since another one may have other modules.
 */
export const loadPart = (name: string): unknown => require(`prom-client/lib/${name}.js`)

export const AggregatorRegistry = loadPart('cluster') as typeof whole.AggregatorRegistry
export const Counter = loadPart('counter') as typeof whole.Counter
export const Gauge = loadPart('gauge') as typeof whole.Gauge
export const Registry = loadPart('registry') as typeof whole.Registry
