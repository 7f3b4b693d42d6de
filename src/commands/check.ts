import { stringify } from 'yaml'
import { shownUrl } from '../authenticate/token/fetch-json.ts'
import type { Config } from '../config/schema.ts'
import { countedBy, kindOf } from '../limit/parameters.ts'
import { type Given, type Io, load, print } from './io.ts'
import { instant } from '../limit/instant.ts'

const SECRETS = /^(?:clientSecret|key|token|username|password|sentinelUsername|sentinelPassword)$/

/** Prints the effective configuration and the warnings, without secrets, as YAML or JSON; with `--connect`, what became of trying it. */
export async function run(given: Given, io: Io): Promise<number> {
  const { config } = await load(given, io)
  if (given['connect'] === true) return (await import('./connect/connect.ts')).run(config, given, io)
  print(io, given, effectiveConfig(config), (shown) => stringify(shown, { lineWidth: 0 }).trimEnd())
  return 0
}

/** A configuration as JSON values, with `***` in place of secrets. */
export function effectiveConfig(config: Config): Record<string, unknown> {
  const { clientLimits, ...rest } = config
  const { listen, store, upstreams, limits, clients, parameters, routes, tracing } = config
  const shown = {
    ...rest,
    listen: { ...listen, servesOtherHosts: routes.some(({ host, hosts }) => (host ?? hosts) === undefined) },
    store:
      store === 'memory'
        ? store
        : { ...store, redis: { ...store.redis.topology, ...store.redis, topology: undefined } },
    tracing: tracing && {
      ...tracing,
      endpoint: shownUrl(tracing.endpoint),
      headers: Object.fromEntries(Object.keys(tracing.headers).map((name) => [name, '***'])),
    },
    clients: clients.map(({ caller, ...client }) => ({
      ...client,
      folded: undefined,
      limits: Object.fromEntries(
        [...(clientLimits.get(caller) ?? [])].map(([name, { limit, windowMs, untilAt }]) => [
          name,
          { limit, windowMs, until: untilAt && instant(untilAt) },
        ]),
      ),
    })),
    limits: limits.map((limit) => ({
      ...limit,
      changes: limit.changes.map(({ announcedAt, fromAt, limit }) => ({
        announced: instant(announcedAt),
        from: instant(fromAt),
        limit,
      })),
    })),
    parameters: Object.fromEntries(routes.flatMap(countedBy).map((name) => [name, kindOf(name, parameters)])),
    routes: routes.map(({ match, upstream, respond, authenticate, scope, limits, maxBody, timeoutMs }) => ({
      match,
      upstream,
      respond,
      authenticate,
      scope,
      limits: limits.map(({ name }) => name),
      maxBody,
      timeoutMs: timeoutMs ?? upstreams.find(({ name }) => name === upstream)?.timeoutMs,
    })),
  }
  return JSON.parse(JSON.stringify(shown, masked)) as Record<string, unknown>
}

/** Hides secrets by name, the user of a Redis URL, and the query of a URL of keys, which may hold one. */
function masked(name: string, value: unknown): unknown {
  if (typeof value !== 'string') return value
  if (SECRETS.test(name)) return '***'
  const shown = value.replace(/^(rediss?:\/\/).*@/s, '$1')
  return name === 'url' ? shownUrl(shown) : shown
}
