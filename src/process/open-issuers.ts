import { createVerifyProof } from '../authenticate/proof/dpop.ts'
import { type Authenticate, createBearer } from '../authenticate/token/bearer.ts'
import { createIntrospection } from '../authenticate/token/introspection.ts'
import { createKeySource, type KeySource } from '../authenticate/token/jwks.ts'
import { type KeyLocation, type KeySet, loadKeys } from '../authenticate/jose/key-set.ts'
import type { Config, Tokens } from '../config/config.ts'
import { serviceUnavailable } from '../errors.ts'
import { claimsOf } from '../policy/conditions.ts'
import type { Log } from '../observe/log.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { IssuerStatus } from '../observe/status.ts'
import type { Resources } from './resources.ts'
import { serverEvents } from './server-events.ts'

/** Milliseconds after which a gateway is ready without the keys of an issuer. */
const FIRST_KEYS_MS = 10_000
const RESULTS = ['active', 'inactive', 'failed'] as const

/** Keys by the index of their issuer; undefined if the issuer is open already. */
export type LoadedKeys = readonly (KeySet | undefined)[]

/** Counts by labels. */
interface Counts {
  inc(labels: Record<string, string>, by?: number): void
}

/** Creates what opens the issuers of tokens, for one configuration after another. */
export function createIssuers(
  { createPool }: Resources,
  log: Pick<Log, 'info' | 'warn'>,
  metrics: Readonly<Record<keyof Pick<Metrics, 'keyFailures' | 'introspections'>, Counts>>,
) {
  const issuerKeys = createPool<KeyLocation, KeySource>()
  const introspections = createPool<Tokens, ReturnType<typeof createIntrospection>>()
  const bearers = createPool<{ tokens: readonly Tokens[]; hosts: readonly string[] }, Authenticate>()

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

  /** Opens an issuer; keys that were not loaded are read in the background. */
  function openIssuer<Settings extends Tokens>(settings: Settings, loaded: KeySet | undefined) {
    const { issuer, introspection } = settings
    const location = keysFrom(settings)
    metrics.keyFailures.inc({ issuer }, 0)
    const keys = issuerKeys.get(location, () => {
      const onFailed = (): void => metrics.keyFailures.inc({ issuer })
      const events = { ...serverEvents(log, 'JWKS fetch', { issuer }), onFailed }
      return createKeySource({ ...location, keys: loaded, events })
    })
    if (introspection === undefined) return { ...settings, keys, introspect: undefined }
    const introspect = introspections.get(settings, () => {
      for (const result of RESULTS) metrics.introspections.inc({ issuer, result }, 0)
      const onResult = (result: string) => metrics.introspections.inc({ issuer, result })
      const events = { ...serverEvents(log, 'token introspection', { issuer }), onResult }
      return createIntrospection({ ...settings, ...introspection, events })
    })
    return { ...settings, keys, introspect }
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
    const issuers = tokens.map((settings, i) => openIssuer(settings, loaded[i]))
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
      /** Returns the name of an issuer without keys, unless they were tried for `FIRST_KEYS_MS`. */
      withoutKeys() {
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

  return { loadIssuerKeys, openIssuers }
}

export function keysFrom({ issuer, jwks }: Tokens): KeyLocation {
  return { issuer, jwks: jwks && ('url' in jwks ? jwks.url : jwks.file) }
}
