import type { ClientLimits, Limit } from './limit.ts'

/** A limit that an operator set for a client while gateways run; it beats the named limit and its changes until `untilAt`. */
export interface Override {
  readonly client: string
  /** The name of the limit. */
  readonly name: string
  readonly limit: number
  /** Epoch milliseconds; undefined if it does not end. */
  readonly untilAt?: number
  /** When it was set; epoch milliseconds. */
  readonly setAt: number
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
  /** True while the client's own limit in the file is in force, which beats it. */
  readonly beatenByFile: boolean
  /** False if the configuration has no such limit that begins with the client, so that it has no effect. */
  readonly applies: boolean
}

/** Overrides that there may be at once: they bound what each gateway keeps, and what is read from Redis. */
export const MAX_OVERRIDES = 10_000
/** The longest text of all overrides, in bytes. */
export const MAX_BYTES = 8 * 1024 ** 2

/** True if a client's limit has not ended at an instant (epoch milliseconds). */
export const lasts = ({ untilAt }: { readonly untilAt?: number }, nowMs: number): boolean =>
  untilAt === undefined || nowMs < untilAt

/** True if clients may have an override of a limit: what it counts by begins with the client. */
export const isOverridable = ({ per }: Limit): boolean => per[0] === 'client'

/** The longest line, in characters: beyond what a client's id and a limit's name take. */
const MAX_LINE = 4096

/** The first characters of the text: a UUID that is new with each change. */
export const VERSION_LENGTH = 36

/** Returns the version that a text begins with; the empty text if it has none. */
export function versionOf(text: string): string {
  const version = text.slice(0, VERSION_LENGTH)
  return version.length === VERSION_LENGTH && /^[\da-f-]+$/i.test(version) ? version : ''
}

/** Formats overrides as Redis keeps them: the version, and a line of JSON for each. */
export function formatOverrides(version: string, overrides: readonly Override[]): string {
  return [version, ...overrides.map((one) => JSON.stringify(one))].join('\n')
}

/**
 * Parses that text; undefined if it has no version, and so is something else. `bad` is how many lines were no override or beyond
 * the most that there may be; they are left out.
 */
export function parseOverrides(
  text: string,
): { readonly overrides: readonly Override[]; readonly bad: number } | undefined {
  if (text === '') return { overrides: [], bad: 0 }
  // One line more than there may be, so that the rest is not read, and counts as bad.
  const [version, ...lines] = text.split('\n', MAX_OVERRIDES + 2)
  if (version !== versionOf(text) || version === '') return undefined
  const overrides = lines.slice(0, MAX_OVERRIDES).flatMap((line) => parseLine(line) ?? [])
  return { overrides, bad: lines.length - overrides.length }
}

function parseLine(line: string): Override | undefined {
  let one: Partial<Record<keyof Override, unknown>> | null
  if (line.length > MAX_LINE) return undefined
  try {
    one = JSON.parse(line) as typeof one
  } catch {
    return undefined
  }
  const { client, name, limit, untilAt, setAt } = one ?? {}
  if (typeof client !== 'string' || client === '' || typeof name !== 'string') return undefined
  if (!isWhole(limit) || !isInstant(setAt)) return undefined
  if (untilAt === undefined) return { client, name, limit, setAt }
  return isInstant(untilAt) ? { client, name, limit, untilAt, setAt } : undefined
}

const isWhole = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0
/** The latest instant of a Date. */
const MAX_AT = 8.64e15
const isInstant = (value: unknown): value is number => isWhole(value) && value <= MAX_AT

/** Puts overrides in order of client and limit; of two for the same, the later. */
export function byClient(overrides: readonly Override[]): Map<string, ReadonlyMap<string, Override>> {
  const clients = new Map<string, Map<string, Override>>()
  for (const one of overrides) {
    const own = clients.get(one.client)
    if (own === undefined) clients.set(one.client, new Map([[one.name, one]]))
    else own.set(one.name, one)
  }
  return clients
}

/** Lists overrides for operators, by client and limit, beside the configuration that they are in force under. */
export function listOverrides(
  overrides: Overrides,
  limits: readonly Limit[],
  clientLimits: ClientLimits,
  nowMs: number,
): readonly ListedOverride[] {
  const overridable = new Set(limits.filter(isOverridable).map(({ name }) => name))
  return [...overrides.values()]
    .flatMap((own) => [...own.values()])
    .filter((one) => lasts(one, nowMs))
    .map(({ client, name, limit, untilAt, setAt }) => {
      const file = clientLimits.get(client)?.get(name)
      return {
        client,
        name,
        limit,
        until: untilAt === undefined ? null : instant(untilAt),
        set: instant(setAt),
        beatenByFile: file !== undefined && lasts(file, nowMs),
        applies: overridable.has(name),
      }
    })
    .toSorted((a, b) => compare(a.client, b.client) || compare(a.name, b.name))
}

const compare = (a: string, b: string): number => Number(a > b) - Number(a < b)
/** Returns epoch milliseconds as ISO 8601 in UTC, with milliseconds. */
export const instant = (ms: number): string => new Date(ms).toISOString()
