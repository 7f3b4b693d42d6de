import { instant } from './instant.ts'
import type { Limit } from './limit.ts'

/** A limit that an operator set for a client while gateways run; it beats every other rule until `untilAt`. */
export interface Override {
  readonly client: string
  /** The name of the limit. */
  readonly name: string
  readonly limit: number
  /** Epoch milliseconds; undefined if it does not end. */
  readonly untilAt?: number
  /** When it was set; epoch milliseconds. */
  readonly setAt: number
  /** The operator who set it, by their own account. */
  readonly by?: string
  readonly note?: string
}

/** The overrides of every client that has some: client id → limit name → its override. */
export type Overrides = ReadonlyMap<string, ReadonlyMap<string, Override>>

/** An override as operators read it. Instants are ISO 8601 in UTC, with milliseconds. */
export interface ListedOverride {
  readonly client: string
  readonly name: string
  readonly limit: number
  /** Null if it does not end. */
  readonly until: string | null
  readonly set: string
  readonly by: string | null
  readonly note: string | null
  /** False if the configuration has no such limit that begins with the client, so that it has no effect. */
  readonly applies: boolean
}

/**
 * Where all gateways keep their overrides: a value for each, by its field, and a version, `<counter> <random>`. Each change counts
 * up from the greatest counter that the source or the writer knows, so that older data are known as such when they come back.
 */
export interface OverrideSource {
  /** Returns the version; the empty text if there is none. */
  version(): Promise<string>
  /** Returns every field with its value, and the version as the field `version`. */
  read(): Promise<Readonly<Record<string, string>>>
  /** Writes fields, and removes those without a value, all at once; `known` is the writer's version. */
  change(fields: ReadonlyMap<string, string | undefined>, known: string): Promise<void>
  /** Replaces everything by these fields and this version, if what is kept is older; returns true if it did. */
  restore(fields: ReadonlyMap<string, string>, version: string): Promise<boolean>
}

/** The field of the version: no field of an override, which is JSON. */
export const VERSION_FIELD = 'version'

/** Overrides that there may be at once: they bound what each gateway keeps, and what is read from Redis. */
export const MAX_OVERRIDES = 10_000
/** The longest field and value, in characters: beyond what a client's id, a limit's name and a note take. */
const MAX_LENGTH = 4096

/** Returns the counter of a version; 0 of anything else. */
export const counterOf = (version: string): number => Number(/^\d{1,15}(?= |$)/.exec(version)?.[0] ?? 0)

/** True if a client's limit has not ended at an instant (epoch milliseconds). */
export const isActive = ({ untilAt }: { readonly untilAt?: number }, nowMs: number): boolean =>
  untilAt === undefined || nowMs < untilAt

/** True if clients may have an override of a limit: what it counts by begins with the client. */
export const isOverridable = ({ per }: Limit): boolean => per[0] === 'client'

/** Returns the field of a client's override of a limit. */
export const overrideField = (client: string, name: string): string => JSON.stringify([client, name])

/** Formats what is kept of an override beside its field. */
export const formatOverride = ({ limit, untilAt, setAt, by, note }: Override): string =>
  JSON.stringify({ limit, untilAt, setAt, by, note })

/** Parses overrides; `bad` are the fields that hold none, or are beyond the most that there may be. */
export function parseOverrides(fields: Readonly<Record<string, string>>): {
  readonly overrides: readonly Override[]
  readonly bad: readonly string[]
} {
  const overrides: Override[] = []
  const bad: string[] = []
  for (const [field, value] of Object.entries(fields)) {
    if (field === VERSION_FIELD) continue
    const override = overrides.length < MAX_OVERRIDES ? parseOverride(field, value) : undefined
    if (override === undefined) bad.push(field)
    else overrides.push(override)
  }
  return { overrides, bad }
}

function parseOverride(field: string, value: string): Override | undefined {
  if (field.length + value.length > MAX_LENGTH) return undefined
  let key: readonly unknown[]
  let rest: Partial<Record<keyof Override, unknown>>
  try {
    key = JSON.parse(field) as typeof key
    rest = JSON.parse(value) as typeof rest
    const [client, name] = key
    if (typeof client !== 'string' || client === '' || typeof name !== 'string') return undefined
    const { limit, untilAt, setAt, by, note } = rest
    if (!isWhole(limit) || !isInstant(setAt) || !(untilAt === undefined || isInstant(untilAt)))
      return undefined
    return {
      ...{ client, name, limit, setAt },
      ...(untilAt !== undefined && { untilAt }),
      ...(typeof by === 'string' && { by }),
      ...(typeof note === 'string' && { note }),
    }
  } catch {
    return undefined
  }
}

const isWhole = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0
/** The latest instant of a Date. */
const MAX_AT = 8.64e15
const isInstant = (value: unknown): value is number => isWhole(value) && value <= MAX_AT

/** Groups overrides by client and limit; of two for the same, the later one of the list counts. */
export function byClient(overrides: readonly Override[]): Map<string, ReadonlyMap<string, Override>> {
  const clients = new Map<string, Map<string, Override>>()
  for (const override of overrides) {
    const own = clients.get(override.client)
    if (own === undefined) clients.set(override.client, new Map([[override.name, override]]))
    else own.set(override.name, override)
  }
  return clients
}

/** Lists overrides for operators, by client and limit, beside the limits of the configuration. */
export function listOverrides(
  overrides: readonly Override[],
  limits: readonly Limit[],
  nowMs: number,
): readonly ListedOverride[] {
  const overridable = new Set(limits.filter(isOverridable).map(({ name }) => name))
  return overrides
    .filter((override) => isActive(override, nowMs))
    .map((override) => ({ ...listed(override), applies: overridable.has(override.name) }))
    .toSorted((a, b) => compare(a.client, b.client) || compare(a.name, b.name))
}

/** Returns an override as operators read it. */
export const listed = ({ client, name, limit, untilAt, setAt, by, note }: Override) => ({
  client,
  name,
  limit,
  until: untilAt === undefined ? null : instant(untilAt),
  set: instant(setAt),
  by: by ?? null,
  note: note ?? null,
})

const compare = (a: string, b: string): number => Number(a > b) - Number(a < b)
