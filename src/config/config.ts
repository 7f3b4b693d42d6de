import type { ApiKey } from '../authenticate/key/api-keys.ts'
import type { RedisConfig } from '../limit/redis/options.ts'
import type { ClientLimit, Limit } from '../policy/limit.ts'
import type { Plans } from '../policy/plans.ts'
import type { ServedRoute } from './resource-route.ts'
import type { Settings } from './schema.ts'
import type { Team } from './teams/team.ts'
import type { LocatedIssue } from './yaml/issue.ts'

/** The settings of the file that `compile` replaces. */
type Replaced =
  | 'configuration'
  | 'listen'
  | 'admin'
  | 'store'
  | 'upstreams'
  | 'tokens'
  | 'keys'
  | 'plans'
  | 'clients'
  | 'limits'
  | 'routes'

/**
 * The settings with their files read and their names resolved. Durations are in milliseconds, sizes
 * in bytes.
 */
export interface Compiled extends Omit<Settings, Replaced> {
  /** `keep` is an absolute path. */
  readonly configuration: { readonly keep: string | undefined }
  /** The owners of requests that only their own routes serve. */
  readonly teams: readonly Team[]
  readonly listen: Listen
  readonly admin: WithTls<Settings['admin']>
  readonly store: StoreConfig
  /** The prefix of all keys, also of those in memory. */
  readonly prefix: string
  readonly upstreams: readonly Upstream[]
  /** One for each issuer; empty if no route needs tokens. */
  readonly tokens: readonly Tokens[]
  /** The field of API keys; undefined if there are none. `file` is an absolute path. */
  readonly keys: KeysSection | undefined
  /** The API keys of the file that `keys` names. */
  readonly apiKeys: readonly ApiKey[]
  readonly plans: Plans
  readonly clients: readonly Client[]
  /** The own limits of clients by their names: `Client.caller` → the name of the limit. */
  readonly clientLimits: ReadonlyMap<string, ReadonlyMap<string, ClientLimit>>
  /** The URL of the API, whose metadata the last route serves; undefined without `tokens.resource`. */
  readonly resource: string | undefined
  /** Routes of the file and of teams, then those that the gateway adds. */
  readonly routes: readonly RouteConfig[]
  readonly limits: readonly Limit[]
}

export interface Config extends Compiled {
  readonly warnings: readonly LocatedIssue[]
}

/** A section of a listener, with the texts of its PEM files. */
type WithTls<Section extends { readonly tls?: object | undefined }> = Omit<Section, 'tls'> & {
  readonly tls: Required<NonNullable<Section['tls']>> | undefined
}

type Listen = WithTls<Settings['listen']> & {
  /** Served hosts; by default those of the routes. */
  readonly hosts: readonly string[]
}

/** The counters in Redis. The settings may contain credentials. */
export interface SharedStore extends Omit<
  Exclude<Settings['store'], 'memory'>,
  'redis' | 'overrides' | 'overridesFile'
> {
  readonly redis: RedisConfig
  /** An absolute path. */
  readonly overridesFile?: string | undefined
  /** `required`: not ready until the overrides were read from Redis once; default `optional`. */
  readonly overrides?: 'optional' | 'required'
  /** Number of processes of this gateway that share it; default 1. */
  readonly processes?: number
}
/** The section `keys`. */
type KeysSection = NonNullable<Settings['keys']> & {
  /** The mode of the file, if others may read the hashes or change it. */
  readonly openMode?: number | undefined
}

export type StoreConfig = SharedStore | 'memory'

type WrittenUpstream = Settings['upstreams'][number]

interface Upstream extends Omit<WrittenUpstream, 'errors' | 'tls'> {
  /** With the texts of its PEM files. */
  readonly tls: WrittenUpstream['tls']
  /** The format of error bodies; by default `oauth` for an upstream that gets pushed requests. */
  readonly errors: 'problem' | 'oauth'
}

type WrittenTokens = Exclude<NonNullable<Settings['tokens']>, readonly unknown[]>

/** Settings for the verification of one issuer's tokens. `introspection` contains a secret. */
export interface Tokens extends WrittenTokens {
  readonly realm: string
  /** A `file` is an absolute path. */
  readonly jwks: WrittenTokens['jwks']
}

type WrittenClient = Settings['clients'][number]

/**
 * A client with its own settings; undefined ones are not checked. `issuer` defaults to the first
 * one and that of the PAR endpoint.
 */
export interface Client extends Omit<WrittenClient, 'limits' | 'jwks' | 'jwksUri'> {
  /** The client’s name: in keys, limits, logs and commands. */
  readonly caller: string
  /** The id as a lenient database might compare it. */
  readonly folded: string
  readonly jwks: NonNullable<WrittenClient['jwks']> | { readonly url: string } | undefined
}

interface RouteConfig extends Omit<ServedRoute, 'cors' | 'limits'> {
  readonly hosts: readonly string[] | undefined
  /** Its own settings, or those of the file; undefined if other origins may not call it. */
  readonly cors: Settings['cors']
  /** Limits that a call takes points from, each with the points, or the length of the leases, of this route. */
  readonly limits: readonly Limit[]
}
