import { createVerifyProof } from '../authenticate/proof/dpop.ts'
import { type Authenticate, createBearer } from '../authenticate/token/bearer.ts'
import { createIntrospection } from '../authenticate/token/introspection.ts'
import { createClientKeys, createKeySource, type KeySource } from '../authenticate/token/jwks.ts'
import { type KeyLocation, type KeySet, loadKeys } from '../authenticate/jose/key-set.ts'
import type { Client, Config, Tokens } from '../config/config.ts'
import { serviceUnavailable } from '../errors.ts'
import { claimsOf } from '../policy/conditions.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { IssuerStatus } from '../observe/status.ts'
import { createAuthorizationGuard } from '../par/authorization.ts'
import { foldClientId, type ParClient } from '../par/clients.ts'
import { createParGuard } from '../par/guard.ts'
import type { Resources } from './resources.ts'

/** Milliseconds after which a gateway is ready without the keys of an issuer. */
const FIRST_KEYS_MS = 10_000
const RESULTS = ['active', 'inactive', 'failed'] as const

/** Keys by the index of their issuer; undefined if the issuer is open already. */
export type LoadedKeys = readonly (KeySet | undefined)[]

/** Counts by labels. */
interface Counts {
  inc(labels: Record<string, string>, by?: number): void
}

/** Creates what opens the parts that authenticate callers, for one configuration after another. */
export function createAuthentication(
  { createPool }: Resources,
  log: Pick<Log, 'info' | 'warn'>,
  metrics: Readonly<Record<keyof Pick<Metrics, 'keyFailures' | 'introspections'>, Counts>>,
) {
  const issuerKeys = createPool<KeyLocation, KeySource>()
  const introspections = createPool<Tokens, ReturnType<typeof createIntrospection>>()
  const bearers = createPool<{ tokens: readonly Tokens[]; hosts: readonly string[] }, Authenticate>()
  const clientKeys = createPool<Pick<Client, 'id' | 'jwks'>, ReturnType<typeof createClientKeys>>()

  /** Loads the keys of new and moved issuers, for `openIssuers`; rejects if an issuer has none. */
  function loadIssuerKeys({ tokens }: Config): Promise<LoadedKeys> {
    const loads = tokens.map(keysFrom).map(async (location) => {
      if (issuerKeys.has(location)) return undefined
      return await loadKeys(location).catch((cause: Error) => {
        throw new Error(`cannot read the keys of ${location.issuer}: ${cause.message}`, { cause })
      })
    })
    return Promise.all(loads)
  }

  /**
   * Opens the issuers; keys that were not loaded are read in the background. DPoP proofs may be
   * made for `listen.hosts`.
   */
  function openIssuers(config: Config, loaded: LoadedKeys = []) {
    const { publicUrl } = config.listen
    const hosts = publicUrl === undefined ? config.listen.hosts : [publicUrl.hostname]
    const keeps = claimsOf(config.limits)
    const tokens = config.tokens.map((settings) => ({ ...settings, keeps }))
    const issuers = tokens.map((settings, i) => {
      const { issuer, introspection } = settings
      const location = keysFrom(settings)
      metrics.keyFailures.inc({ issuer }, 0)
      return {
        ...settings,
        keys: issuerKeys.get(location, () => {
          const onFailed = (): void => metrics.keyFailures.inc({ issuer })
          const events = { ...outageLog('JWKS fetch', { issuer }), onFailed }
          return createKeySource({ ...location, keys: loaded[i], events })
        }),
        introspect:
          introspection &&
          introspections.get(settings, () => {
            for (const result of RESULTS) metrics.introspections.inc({ issuer, result }, 0)
            const onResult = (result: string) => metrics.introspections.inc({ issuer, result })
            const events = { ...outageLog('token introspection', { issuer }), onResult }
            return createIntrospection({ ...settings, ...introspection, events })
          }),
      }
    })
    return {
      authenticate: bearers.get({ tokens, hosts }, () => {
        if (tokens.length === 0) return () => serviceUnavailable('No token can be verified here.')
        // Without a known host, no proof can be checked to be for this gateway.
        const proofs =
          hosts.length > 0
            ? createVerifyProof(hosts, Math.max(...tokens.map(({ leewayMs }) => leewayMs)))
            : undefined
        return createBearer(issuers, proofs)
      }),
      /** Returns an issuer without keys, unless they were tried for `FIRST_KEYS_MS`. */
      awaited() {
        const since = performance.now() - FIRST_KEYS_MS
        return issuers.find(({ keys }) => !keys.current() && keys.readAt() > since)?.issuer
      },
      status: (): IssuerStatus[] =>
        issuers.map(({ issuer, keys, introspect }) => ({
          issuer,
          ageSeconds: (performance.now() - keys.readAt()) / 1000,
          failures: keys.failures(),
          introspectionUp: introspect?.isUp() ?? null,
        })),
    }
  }

  const keysOf = ({ id, jwks }: Client) =>
    jwks &&
    clientKeys.get({ id, jwks }, () => {
      const events = outageLog('client JWKS fetch', { client: id })
      return createClientKeys({ issuer: id, jwks: 'url' in jwks ? jwks.url : jwks, events })
    })

  /**
   * Opens the guards of the PAR and the authorisation endpoint for the clients of their issuer;
   * undefined without `par`.
   */
  function openGuards({ par, clients, tokens }: Config) {
    if (par === undefined) return undefined
    // If two clients have the same id, the second one counts: the client that names the issuer.
    const unnamed = clients.filter(({ issuer }) => issuer === undefined)
    const issuerNames = tokens.find(({ names }) => names.includes(par.issuer))?.names ?? [par.issuer]
    const named = clients.filter(({ issuer }) => issuer !== undefined && issuerNames.includes(issuer))
    const listed = new Map([...unnamed, ...named].map((client) => [client.id, client]))
    // Only the folded ids that differ: `listed` has the others, and there may be 100,000.
    const spellings = new Set([...listed.values()].flatMap(({ id, folded }) => (folded === id ? [] : folded)))

    const opened = new Map<string, ParClient>()
    /** Opens a client's keys when they are first needed. */
    function clientOf(id: string): ParClient | undefined {
      const client = listed.get(id)
      if (client && !opened.has(id)) opened.set(id, { ...client, keys: keysOf(client) })
      return opened.get(id)
    }
    // Keys that are open stay open over a reload.
    for (const { id } of clientKeys.settings()) clientOf(id)
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

  function outageLog(what: string, fields: object) {
    return {
      onDown: ({ message: reason }: Error) => log.warn({ ...fields, reason }, `${what} failed; retrying`),
      onUp: () => log.info(fields, `${what} works again`),
    }
  }

  return { loadIssuerKeys, openIssuers, openGuards }
}

export function keysFrom({ issuer, jwks }: Tokens): KeyLocation {
  return { issuer, jwks: jwks && ('url' in jwks ? jwks.url : jwks.file) }
}
