import { instant } from './instant.ts'
import type { KeyedLimit } from './key.ts'

/** A limit that an operator set for a client while gateways run; it replaces every other rule until `untilAt`. */
export interface Override {
  readonly client: string
  /** The name of the limit. */
  readonly name: string
  readonly limit: number
  /** Epoch milliseconds; undefined if it does not end. */
  readonly untilAt?: number | undefined
  /** Epoch milliseconds at which it was set. */
  readonly setAt: number
  /** The operator who set it, not verified. */
  readonly by?: string | undefined
  readonly note?: string | undefined
}

/** The overrides in force: client id → limit name → override. */
export type Overrides = ReadonlyMap<string, ReadonlyMap<string, Override>>

/**
 * The overrides that all gateways share: a value for each override, by its field, and a version, `<counter> <random>`. Each change
 * adds 1 to the greater counter of the source and the writer, so that older data, such as a restored backup, are detected.
 */
export interface OverrideSource {
  /** Returns the version; an empty text if there is none. */
  version(): Promise<string>
  /** Returns every field with its value, and the version as the field `version`. */
  read(): Promise<Readonly<Record<string, string>>>
  /** Writes fields, and removes those without a value, all at once; `writer` is the writer's version. */
  change(fields: ReadonlyMap<string, string | undefined>, writer: string): Promise<void>
  /** Replaces everything by these fields and this version if the stored version is older; returns true if it did. */
  restore(fields: ReadonlyMap<string, string>, version: string): Promise<boolean>
}

/** The field of the version. Fields of overrides are JSON. */
export const VERSION_FIELD = 'version'
/** Maximum number of overrides; bounds the memory of each gateway, and what it reads from Redis. */
export const MAX_OVERRIDES = 10_000
/** Maximum length of a field with its value, in characters; a client id, a limit's name and a note are shorter. */
const MAX_LENGTH = 4096

/** Maximum digits of a version's counter, which stays at its maximum; a longer counter is damaged, and counts as 0. */
export const MAX_COUNTER_DIGITS = 12

/** Returns the counter of a version; 0 for other texts. */
export function counterOf(version: string): number {
  const [digits = ''] = /^\d+(?= |$)/.exec(version) ?? []
  return digits.length <= MAX_COUNTER_DIGITS ? Number(digits) : 0
}

/** True if a client's limit has not ended at an instant (epoch milliseconds). */
export const isActive = ({ untilAt }: { readonly untilAt?: number | undefined }, nowMs: number): boolean =>
  untilAt === undefined || nowMs < untilAt

/** True if clients may have an override of a limit: its keys begin with the client. */
export const isOverridable = ({ per }: Pick<KeyedLimit, 'per'>): boolean => per[0] === 'client'

export const fieldOf = ({ client, name }: Pick<Override, 'client' | 'name'>): string =>
  JSON.stringify([client, name])

export const formatOverride = ({ limit, untilAt, setAt, by, note }: Override): string =>
  JSON.stringify({ limit, untilAt, setAt, by, note })

/** Parses overrides; `bad` are the fields that do not hold an override, or are beyond `MAX_OVERRIDES`. */
export function parseOverrides(fields: Readonly<Record<string, string>>) {
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
  try {
    const [client, name] = JSON.parse(field) as readonly unknown[]
    const { limit, untilAt, setAt, by, note } = JSON.parse(value) as Record<string, unknown>
    if (typeof client !== 'string' || client === '' || typeof name !== 'string') return undefined
    if (!isWhole(limit) || !isInstant(setAt)) return undefined
    if (untilAt !== undefined && !isInstant(untilAt)) return undefined
    return { client, name, limit, untilAt, setAt, by: textOf(by), note: textOf(note) }
  } catch {
    return undefined
  }
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)
const isWhole = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0
/** True for an instant that a Date can represent. */
const isInstant = (value: unknown): value is number => isWhole(value) && value <= 8.64e15

/** Groups overrides by client and limit; the last of several overrides for the same client and limit counts. */
export function byClient(overrides: readonly Override[]): Overrides {
  const clients = new Map<string, Map<string, Override>>()
  for (const override of overrides) {
    const own = clients.get(override.client) ?? new Map<string, Override>()
    clients.set(override.client, own.set(override.name, override))
  }
  return clients
}

/** An override as operators read it. Instants are ISO 8601 in UTC, with milliseconds; `until` is null if it does not end. */
export type ListedOverride = ReturnType<typeof listOverrides>[number]

/** Lists the overrides that have not ended for operators, by client and limit. */
export function listOverrides(overrides: readonly Override[], limits: readonly KeyedLimit[], nowMs: number) {
  const overridable = new Set(limits.filter(isOverridable).map(({ name }) => name))
  return overrides
    .filter((override) => isActive(override, nowMs))
    .toSorted((a, b) => compare(a.client, b.client) || compare(a.name, b.name))
    .map(({ client, name, limit, untilAt, setAt, by = null, note = null }) => {
      const until = untilAt === undefined ? null : instant(untilAt)
      /** False if the configuration has no such limit whose keys begin with the client: the override has no effect. */
      const applies = overridable.has(name)
      return { client, name, limit, until, set: instant(setAt), by, note, applies }
    })
}

const compare = (a: string, b: string): number => Number(a > b) - Number(a < b)

/** Creates a source of overrides in this process, for a gateway without Redis. */
export function createMemoryOverrides(): OverrideSource {
  const fields = new Map<string, string>()
  return {
    version: async () => fields.get(VERSION_FIELD) ?? '',
    read: async () => Object.fromEntries(fields),
    async change(changes) {
      for (const [field, value] of changes) {
        if (value === undefined) fields.delete(field)
        else fields.set(field, value)
      }
      fields.set(VERSION_FIELD, String(counterOf(fields.get(VERSION_FIELD) ?? '') + 1))
    },
    restore: async () => false,
  }
}
