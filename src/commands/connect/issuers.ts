import { randomUUID } from 'node:crypto'
import { redactUrl } from '../../authenticate/token/fetch-json.ts'
import { createIntrospection } from '../../authenticate/token/introspection.ts'
import { type KeySet, loadKeys } from '../../authenticate/token/key-set.ts'
import type { Client, Config, Tokens } from '../../config/schema.ts'
import { keysFrom } from '../../process/open-authentication.ts'
import { pluralize, formatList } from '../format.ts'
import { type Finding, type Probe, TIMEOUT_MS } from './probes.ts'

/** Reads the keys of each issuer, by discovery where the configuration does not say where they are, and asks its introspection. */
export function issuerProbes({ tokens }: Config): readonly Probe[] {
  return tokens.flatMap((one): readonly Probe[] => [
    async () => [await readKeys(one)],
    ...(one.introspection === undefined ? [] : [async () => [await introspect(one)]]),
  ])
}

/** Reads the keys of the clients that publish them. */
export function clientProbes({ clients }: Config): readonly Probe[] {
  return clients.flatMap((client): readonly Probe[] => {
    const { jwks } = client
    return jwks !== undefined && 'url' in jwks ? [async () => [await readClientKeys(client, jwks.url)]] : []
  })
}

async function readKeys(tokens: Tokens): Promise<Finding> {
  const { issuer, jwks, algorithms } = tokens
  const what = `keys of ${issuer}`
  const advice =
    jwks === undefined ? 'correct tokens.issuer, or write tokens.jwks' : 'correct the issuer, or tokens.jwks'
  try {
    return describeKeys(what, await loadKeys({ ...keysFrom(tokens), fetchTimeoutMs: TIMEOUT_MS }), algorithms)
  } catch (error) {
    return { state: 'failed', what, message: `${(error as Error).message}; ${advice}` }
  }
}

async function readClientKeys(client: Client, url: string): Promise<Finding> {
  const { id, requestObjectSigningAlg: alg } = client
  const what = `keys of the client ${id}`
  try {
    const keys = await loadKeys({ issuer: id, jwks: url, fetchTimeoutMs: TIMEOUT_MS })
    const isSigned = alg !== undefined && alg !== 'none' && !alg.startsWith('HS')
    return describeKeys(what, keys, isSigned ? [alg] : undefined)
  } catch (error) {
    return {
      state: 'failed',
      what,
      message: `${(error as Error).message}; correct the client, or its jwksUri`,
    }
  }
}

/** Fails where no key is for one of `algorithms`. */
function describeKeys(what: string, { keys }: KeySet, algorithms?: readonly string[]): Finding {
  const usable = algorithms?.filter((alg) => keys.some((key) => key.algorithms.has(alg)))
  const count = pluralize(keys.length, 'key')
  if (usable?.length === 0)
    return { state: 'failed', what, message: `${count}, none of them for ${formatList(algorithms!)}` }
  return { state: 'ok', what, message: usable === undefined ? count : `${count}, for ${formatList(usable)}` }
}

/** Introspects a random token. An endpoint that accepts the gateway's credentials answers that it is not active. */
async function introspect({ introspection, ...issuer }: Tokens): Promise<Finding> {
  const what = `introspection at ${redactUrl(introspection!.url)}`
  const ask = createIntrospection({
    ...issuer,
    ...introspection!,
    timeoutMs: TIMEOUT_MS,
    events: { onDown() {}, onUp() {} },
  })
  const answer = await ask(`sluice-check-${randomUUID()}`)
  if (!('error' in answer))
    return { state: 'failed', what, message: 'calls a token active that nobody was given' }
  if (answer.error !== 'temporarily_unavailable') return { state: 'ok', what, message: 'answers the gateway' }
  const { message } = answer.cause as Error
  const advice = 'correct the url, clientId and clientSecret of the introspection'
  return { state: 'failed', what, message: `${message}; ${advice}` }
}
