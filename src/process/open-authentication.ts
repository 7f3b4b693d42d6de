import { createProofs } from '../authenticate/proof/dpop.ts'
import { type Authenticate, createBearer } from '../authenticate/token/bearer.ts'
import { createIntrospection, type IntrospectionResult } from '../authenticate/token/introspection.ts'
import { createClientKeys, createKeySource, type Keys } from '../authenticate/token/jwks.ts'
import { type KeyLocation, type KeySet, loadKeys } from '../authenticate/token/key-set.ts'
import type { Client, Config, Tokens } from '../config/schema.ts'
import { serviceUnavailable } from '../errors.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import { createAuthorizationGuard } from '../par/authorization.ts'
import { foldClientId, type ParClient } from '../par/clients.ts'
import { createParGuard } from '../par/guard.ts'
import type { Resources } from './resources.ts'

export type Issuers = ReturnType<typeof openIssuers>

const FIRST_KEYS_MS = 10_000
const RESULTS: readonly IntrospectionResult[] = ['active', 'inactive', 'failed']

/** By the index of their issuer; undefined for those that are known. */
export type LoadedKeys = readonly (KeySet | undefined)[]

/** Reads the keys of the issuers that are new, or have moved, for `openIssuers`; rejects if one gives none. */
export function loadIssuerKeys(resources: Resources, { tokens }: Config): Promise<LoadedKeys> {
  const loads = tokens.map(keysFrom).map(async (from) => {
    if (resources.has('issuer keys', from)) return undefined
    return await loadKeys(from).catch((cause: Error) => {
      throw new Error(`the keys of the issuer ${from.issuer} cannot be read: ${cause.message}`, { cause })
    })
  })
  return Promise.all(loads)
}

/** Opens the issuers; keys that were not loaded are read in the background. DPoP proofs may be made for `listen.hosts`. */
export function openIssuers(
  resources: Resources,
  config: Config,
  log: Log,
  metrics: Pick<Metrics, 'keyFailures' | 'introspections'>,
  loaded: LoadedKeys = [],
) {
  const { tokens } = config
  const { hosts } = config.listen
  const issuers = tokens.map((one, i) => {
    const { issuer, introspection } = one
    const from = keysFrom(one)
    metrics.keyFailures.inc({ issuer }, 0)
    return {
      ...one,
      keys: resources.get('issuer keys', from, () =>
        createKeySource({
          ...from,
          keys: loaded[i],
          events: {
            ...outageLog('JWKS fetch', { issuer }, log),
            onFailed: () => metrics.keyFailures.inc({ issuer }),
          },
        }),
      ),
      introspect: resources.get('introspection', one, () => {
        if (introspection === undefined) return undefined
        for (const result of RESULTS) metrics.introspections.inc({ issuer, result }, 0)
        const onResult = (result: IntrospectionResult): void => metrics.introspections.inc({ issuer, result })
        const events = { ...outageLog('token introspection', { issuer }, log), onResult }
        return createIntrospection({ ...one, ...introspection, events })
      }),
    }
  })
  const createAuthenticate = (): Authenticate => {
    if (tokens.length === 0) return () => serviceUnavailable('Nobody can be authenticated here.')
    // Without a known host, no proof can be checked to be for this gateway.
    const serves = (host: string): boolean => hosts.includes(host)
    return createBearer(issuers, hosts.length > 0 ? createProofs(serves) : undefined)
  }
  const authenticate = resources.get('bearer', { tokens, hosts }, createAuthenticate)
  return {
    authenticate,
    /** Returns an issuer whose first keys are not here yet, unless they were tried for `FIRST_KEYS_MS`. */
    awaited() {
      const since = performance.now() - FIRST_KEYS_MS
      return issuers.find(({ keys }) => keys.current() === undefined && keys.readAt() > since)?.issuer
    },
    /** Returns, for each issuer, how many seconds ago its keys were read. */
    keyAges() {
      const now = performance.now()
      return issuers.map(({ issuer, keys }) => [{ issuer }, (now - keys.readAt()) / 1000] as const)
    },
    /** Returns, for each issuer with introspection, 1 if that is up, else 0. */
    introspections: () =>
      issuers.flatMap(({ issuer, introspect }) =>
        introspect === undefined ? [] : [[{ issuer }, introspect.isUp() ? 1 : 0] as const],
      ),
  }
}

/** Opens the guards of the PAR and the authorisation endpoint, for the clients of their issuer and those that name none; undefined without `par`. */
export function openGuards(resources: Resources, config: Config, log: Log) {
  const { par, clients } = config
  if (par === undefined) return undefined
  // Of two with one id, the one that names the issuer comes last and counts.
  const unnamed = clients.filter(({ issuer }) => issuer === undefined)
  const named = clients.filter(({ issuer }) => issuer === par.issuer)
  const listed = new Map([...unnamed, ...named].map((client) => [client.id, client]))
  // An id that is folded already is found among the listed ones; there may be 100,000.
  const spellings = new Set<string>()
  for (const { id, folded } of listed.values()) if (folded !== id) spellings.add(folded)

  const opened = new Map<string, ParClient>()
  /** Opens a client's keys when they are first needed. */
  function clientOf(id: string): ParClient | undefined {
    const client = listed.get(id)
    if (client !== undefined && !opened.has(id)) opened.set(id, { ...client, keys: keysOf(client) })
    return opened.get(id)
  }
  const keysOf = ({ id, jwks }: Client): Keys | undefined =>
    jwks &&
    resources.get('client keys', { id, jwks }, () => {
      const events = outageLog('client JWKS fetch', { client: id }, log)
      return createClientKeys({ issuer: id, jwks: 'url' in jwks ? jwks.url : jwks, events })
    })
  // What is open stays open over a reload.
  for (const { id } of resources.before('client keys') as Client[]) clientOf(id)
  const options = {
    ...par,
    clientOf,
    isLookAlike(id: string): boolean {
      const folded = foldClientId(id)
      return spellings.has(folded) || (folded !== id && listed.has(folded))
    },
  }
  return { par: createParGuard(options), authorization: createAuthorizationGuard(options) }
}

/** Logs an outage once, and its end. */
function outageLog(what: string, fields: object, log: Log) {
  return {
    onDown: ({ message: reason }: Error) => log.warn({ ...fields, reason }, `${what} failed; retrying`),
    onUp: () => log.info(fields, `${what} works again`),
  }
}

/** Where the keys of an issuer are. */
export function keysFrom({ issuer, jwks }: Tokens): KeyLocation {
  return { issuer, jwks: jwks && ('url' in jwks ? jwks.url : jwks.file) }
}
