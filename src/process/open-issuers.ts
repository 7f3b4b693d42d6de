import { type Authenticate, createBearer } from '../authenticate/token/bearer.ts'
import { createProofs } from '../authenticate/proof/dpop.ts'
import { createIntrospection } from '../authenticate/token/introspection.ts'
import { createKeySource, type KeyPlace, type KeySource, loadKeys } from '../authenticate/token/jwks.ts'
import type { KeySet } from '../authenticate/token/key-set.ts'
import type { Tokens } from '../config/schema.ts'
import { type Refusal, serviceUnavailable } from '../errors.ts'
import type { Log } from '../observe/log.ts'
import { reused } from './keyed-cache.ts'

/** The issuers whose tokens are taken; their keys and what is known of tokens outlive a reload that leaves them alone. */
export interface Issuers {
  /** Reads the keys of the issuers that are new, or have new places, for the next `authenticate`; rejects where one gives none. */
  load(tokens: readonly Tokens[]): Promise<void>
  /** Authenticates by the tokens of these issuers; `hosts` are those for which DPoP proofs may be made. Keys that were not loaded are read in the background. */
  authenticate(tokens: readonly Tokens[], hosts: readonly string[]): Authenticate
  /** An issuer whose first keys are not here yet, unless that has been tried for long enough. */
  awaited(): string | undefined
  /** How long ago the keys of each issuer were read. */
  ages(): readonly { readonly issuer: string; readonly ageSeconds: number }[]
  /** Ends what no `authenticate` asked for since the last call. */
  endUnused(): void
  end(): void
}

/** How long the first keys of an issuer are awaited. */
const FIRST_KEYS_MS = 10_000

/** Opens issuers as they are asked for. */
export function createIssuers(log: Log): Issuers {
  let loaded = new Map<string, KeySet>()
  let current: readonly { readonly issuer: string; readonly keys: KeySource }[] = []
  const sources = reused(
    (place: KeyPlace) => openKeys(place, loaded.get(JSON.stringify(place)), log),
    (keys) => keys.close(),
  )
  const introspections = reused(
    (tokens: Tokens) => openIntrospection(tokens, log),
    () => {},
  )
  const bearers = reused(
    ({ tokens, hosts }: { readonly tokens: readonly Tokens[]; readonly hosts: readonly string[] }) =>
      createBearer(
        tokens.map((one) => ({
          ...one,
          keys: sources.get(placeOf(one)),
          introspect: introspections.get(one),
        })),
        // Whom a proof is for cannot be told where no host is known to be this gateway's.
        hosts.length > 0 ? { proofs: createProofs({ serves: (host) => hosts.includes(host) }) } : {},
      ),
    () => {},
  )
  return {
    async load(tokens) {
      const places = tokens.map(placeOf).filter((place) => !sources.has(place))
      const sets = places.map(async (place) => {
        const keys = await loadKeys(place).catch((error: Error) => {
          const message = `the keys of the issuer ${place.issuer} cannot be read: ${error.message}`
          throw new Error(message, { cause: error })
        })
        return [JSON.stringify(place), keys] as const
      })
      loaded = new Map(await Promise.all(sets))
    },
    authenticate(tokens, hosts) {
      current = tokens.map((one) => {
        introspections.get(one)
        return { issuer: one.issuer, keys: sources.get(placeOf(one)) }
      })
      loaded = new Map()
      return tokens.length === 0 ? nobody : bearers.get({ tokens, hosts })
    },
    awaited() {
      const since = performance.now() - FIRST_KEYS_MS
      return current.find(({ keys }) => keys.current() === undefined && keys.readAt() > since)?.issuer
    },
    ages() {
      const now = performance.now()
      return current.map(({ issuer, keys }) => ({ issuer, ageSeconds: (now - keys.readAt()) / 1000 }))
    },
    endUnused() {
      bearers.endUnused()
      introspections.endUnused()
      sources.endUnused()
    },
    end() {
      bearers.end()
      introspections.end()
      sources.end()
    },
  }
}

function placeOf({ issuer, jwks }: Tokens): KeyPlace {
  return { issuer, jwks: jwks && ('url' in jwks ? jwks.url : jwks.file) }
}

function openKeys(place: KeyPlace, keys: KeySet | undefined, log: Log): KeySource {
  const { issuer } = place
  return createKeySource({
    ...place,
    keys,
    events: {
      failed: (reason) => log.warn({ issuer, reason }, 'the keys of the issuer cannot be read; trying again'),
      recovered: () => log.info({ issuer }, 'the keys of the issuer are read again'),
    },
  })
}

function openIntrospection(tokens: Tokens, log: Log) {
  const { issuer, introspection } = tokens
  return (
    introspection &&
    createIntrospection({
      ...tokens,
      ...introspection,
      events: {
        failed: (reason) => log.warn({ issuer, reason }, 'opaque tokens cannot be looked up; trying again'),
        recovered: () => log.info({ issuer }, 'opaque tokens are looked up again'),
      },
    })
  )
}

/** Where no route asks for a token, no `tokens` need be configured. */
const nobody = (): Refusal => serviceUnavailable('Nobody can be authenticated here.')
