import { createProofs } from '../authenticate/proof/dpop.ts'
import { type Authenticate, createBearer } from '../authenticate/token/bearer.ts'
import { createIntrospection } from '../authenticate/token/introspection.ts'
import { createKeySource, type KeyPlace, type KeySource, loadKeys } from '../authenticate/token/jwks.ts'
import type { KeySet } from '../authenticate/token/key-set.ts'
import type { Client, Par, Tokens } from '../config/schema.ts'
import { serviceUnavailable } from '../errors.ts'
import type { Log } from '../observe/log.ts'
import { createParGuard, type ParGuard } from '../par/guard.ts'
import { plainId } from '../par/client-authentication.ts'
import type { ParClient } from '../par/request-object.ts'
import type { Resources } from './resources.ts'

/** Checks the tokens of one configuration. */
export type Issuers = ReturnType<typeof openIssuers>

const FIRST_KEYS_MS = 10_000

/** By the JSON of where they are from. */
export type LoadedKeys = ReadonlyMap<string, KeySet>

/** Reads the keys of the issuers that are new, or have moved, for `openIssuers`; rejects if one gives none. */
export async function loadIssuerKeys(resources: Resources, tokens: readonly Tokens[]): Promise<LoadedKeys> {
  const missing = tokens.map(keysFrom).filter((from) => !resources.has('issuer keys', from))
  const loads = missing.map(async (from) => {
    const keys = await loadKeys(from).catch((error: Error) => {
      throw new Error(`the keys of the issuer ${from.issuer} cannot be read: ${error.message}`, {
        cause: error,
      })
    })
    return [JSON.stringify(from), keys] as const
  })
  return new Map(await Promise.all(loads))
}

/** Opens the issuers; keys that were not loaded are read in the background. DPoP proofs may be made for `hosts`. */
export function openIssuers(
  resources: Resources,
  tokens: readonly Tokens[],
  hosts: readonly string[],
  log: Log,
  loaded?: LoadedKeys,
) {
  const issuers = tokens.map((one) => ({
    ...one,
    keys: resources.get(
      'issuer keys',
      keysFrom(one),
      (from) => openKeys(from, log, loaded?.get(JSON.stringify(from))),
      (source) => source.close(),
    ),
    introspect: resources.get('introspection', one, () => openIntrospection(one, log)),
  }))
  // Without a known host, no proof can be checked to be for this gateway.
  const proofs = () =>
    hosts.length > 0 ? { proofs: createProofs({ serves: (host) => hosts.includes(host) }) } : {}
  const authenticate: Authenticate =
    tokens.length === 0
      ? () => serviceUnavailable('Nobody can be authenticated here.')
      : resources.get('bearer', { tokens, hosts }, () => createBearer(issuers, proofs()))
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
  }
}

/** Opens the guard of the PAR endpoint, for the clients of its issuer and those that name none; undefined without `par`. */
export function openGuard(
  resources: Resources,
  par: Par | undefined,
  clients: readonly Client[],
  log: Log,
): ParGuard | undefined {
  if (par === undefined) return undefined
  // Of two with one id, the one that names the issuer comes last and counts.
  const unnamed = clients.filter(({ issuer }) => issuer === undefined)
  const named = clients.filter(({ issuer }) => issuer === par.issuer)
  const listed = new Map([...unnamed, ...named].map((client) => [client.id, client]))
  // An id that is plain already is found among the listed ones; there may be 100,000.
  const spellings = new Set<string>()
  for (const { id, plain } of listed.values()) if (plain !== id) spellings.add(plain)

  const ready = new Map<string, ParClient>()
  /** Opens a client's keys when they are first needed. */
  function clientOf(id: string): ParClient | undefined {
    const client = listed.get(id)
    if (client !== undefined && !ready.has(id)) {
      ready.set(id, { ...client, keys: openClientKeys(resources, client, log) })
    }
    return ready.get(id)
  }
  // What is open stays open over a reload.
  for (const { id } of resources.before('client keys') as Client[]) clientOf(id)
  return createParGuard({
    ...par,
    clientOf,
    isMisspelt(id) {
      const plain = plainId(id)
      return spellings.has(plain) || (plain !== id && listed.has(plain))
    },
  })
}

function openClientKeys(resources: Resources, { id, jwks }: Client, log: Log): KeySource | undefined {
  if (jwks === undefined) return undefined
  const events = eventsOf('client JWKS fetch', { client: id }, log)
  return resources.get(
    'client keys',
    { id, jwks },
    () => createKeySource({ issuer: id, jwks: 'url' in jwks ? jwks.url : jwks, events }),
    (keys) => keys.close(),
  )
}

function openKeys(from: KeyPlace, log: Log, keys: KeySet | undefined): KeySource {
  const events = eventsOf('JWKS fetch', { issuer: from.issuer }, log)
  return createKeySource({ ...from, keys, events })
}

function openIntrospection(tokens: Tokens, log: Log) {
  const { issuer, introspection } = tokens
  const events = eventsOf('token introspection', { issuer }, log)
  return introspection && createIntrospection({ ...tokens, ...introspection, events })
}

/** Logs an outage once, and its end. */
function eventsOf(what: string, fields: object, log: Log) {
  return {
    onDown: ({ message: reason }: Error) => log.warn({ ...fields, reason }, `${what} failed; retrying`),
    onUp: () => log.info(fields, `${what} works again`),
  }
}

function keysFrom({ issuer, jwks }: Tokens): KeyPlace {
  return { issuer, jwks: jwks && ('url' in jwks ? jwks.url : jwks.file) }
}
