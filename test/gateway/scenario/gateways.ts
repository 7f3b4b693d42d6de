import { dirname, join } from 'node:path'
import { stringify } from 'yaml'
import {
  configOf,
  type LoggingGateway,
  startLogging,
  textOf,
  TOKENS,
  written,
} from '../../helpers/gateway.ts'
import { sharedRedis } from '../../helpers/shared-redis.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import type { Scenario, SentCall, Values, Where } from './file.ts'

/** The gateways of the scenarios, and their upstream. */

/** The upstream's next responses: their fields, `status` and `body`. */
let answers: NonNullable<SentCall['answers']> = {}

/** Sets the upstream's next responses. */
export function setAnswers(given: typeof answers = {}): void {
  answers = given
}

export const upstream = await startUpstream((_, response) => {
  const { status = 200, body = '{"data":[]}', ...fields } = answers
  response.writeHead(Number(status), fields).end(String(body))
})
const gateways = new Map<string, Promise<LoggingGateway>>()

/** Returns the gateway of a scenario, which it starts if no scenario before had the same configuration. */
export function gatewayOf({ configuration, where }: Scenario): Promise<LoggingGateway> {
  const key = JSON.stringify([configuration, where])
  const gateway = gateways.get(key) ?? started(configuration, where, `scenarios-${gateways.size}`)
  gateways.set(key, gateway)
  return gateway
}

/** Returns the settings of an issuer, by default those of the tokens of the scenarios. */
const issuer = (given: object | undefined): object => ({ ...TOKENS, ...given })

async function started(given: Values, where: Where, prefix: string): Promise<LoggingGateway> {
  const {
    files = {},
    listen,
    upstreams,
    tokens,
    ...others
  } = given as Partial<Record<'files' | 'listen' | 'tokens', object>> & { upstreams?: { data?: object } }
  const base = configOf({
    data: upstream.url,
    ...(listen && { listen }),
    tokens: Array.isArray(tokens) ? tokens.map(issuer) : issuer(tokens),
    ...(upstreams?.data && { upstream: upstreams.data }),
  }) as { upstreams: { data: object } }
  const all = { ...base.upstreams, ...upstreams, data: base.upstreams.data }
  const redis = where === 'Redis' ? (await sharedRedis()).url : undefined
  const store = redis === undefined ? {} : { store: { redis: { url: redis }, prefix, timeout: '10s' } }
  const main = written(textOf({ ...base, upstreams: all, ...store, ...others }))
  for (const [name, content] of Object.entries(files))
    written(stringify(content), join(dirname(main.file), name))
  return await startLogging(main)
}
