import { VERSION_FIELD } from '../limit/shared-fields.ts'
import { instant } from '../runtime/instant.ts'
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

/** Maximum number of overrides; bounds the memory of each gateway, and what it reads from Redis. */
export const MAX_OVERRIDES = 10_000
/** Maximum length of a field with its value, in characters; a client id, a limit's name and a note are shorter. */
const MAX_LENGTH = 4096

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
