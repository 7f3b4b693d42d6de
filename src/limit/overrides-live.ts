import { InvalidQuestion } from '../errors.ts'
import {
  byClient,
  counterOf,
  formatOverride,
  isActive,
  MAX_OVERRIDES,
  type Override,
  overrideField,
  type Overrides,
  type OverrideSource,
  parseOverrides,
  VERSION_FIELD,
} from './overrides.ts'

/** So that a change is in force everywhere within a second. */
const POLL_MS = 500

export interface LiveOverridesOptions {
  /** Called with how many there are, after each change and when one has ended, and with those that are new and that are gone. */
  readonly onChange: (count: number, added: readonly Override[], gone: readonly Override[]) => void
  /** Called when the source has lost them, and they were written back. */
  readonly onRestored?: (count: number) => void
  /** Called with how many fields of a changed source hold no override; they are ignored. */
  readonly onUnreadable: (fields: number) => void
  readonly everyMs?: number
}

export type LiveOverrides = ReturnType<typeof createLiveOverrides>

/** Keeps the overrides of a source, and the last known ones while it does not answer. */
export function createLiveOverrides(
  source: OverrideSource,
  { onChange, onRestored, onUnreadable, everyMs = POLL_MS }: LiveOverridesOptions,
) {
  const limits = new Map<string, ReadonlyMap<string, Override>>()
  let known: readonly Override[] = []
  let version = ''
  let firstEndAt = Infinity
  let timer: NodeJS.Timeout | undefined
  let reading: Promise<void> | undefined
  let onApplied: ((clients: ReadonlySet<string>) => void) | undefined

  async function readChanged(): Promise<readonly Override[] | undefined> {
    const now = await source.version()
    if (now === version) return undefined
    if (counterOf(now) < counterOf(version)) {
      await restore()
      return undefined
    }
    const fields = await source.read()
    const { overrides, bad } = parseOverrides(fields)
    version = fields[VERSION_FIELD] ?? ''
    if (bad.length > 0) onUnreadable(bad.length)
    return overrides
  }

  /** Writes back what the source has lost, and nothing that was removed since its data were saved. */
  async function restore(): Promise<void> {
    const lasting = known.filter((override) => isActive(override, Date.now()))
    const fields = new Map(lasting.map((override) => [fieldOf(override), formatOverride(override)]))
    // If another gateway was faster, this does nothing, and the next reading gets its version.
    if (await source.restore(fields, version)) onRestored?.(lasting.length)
  }

  /** Puts what was read into force, and drops what has ended. */
  function apply(changed: readonly Override[] | undefined): void {
    const nowMs = Date.now()
    if (changed === undefined && nowMs < firstEndAt) return
    const before = known
    known = (changed ?? known).filter((override) => isActive(override, nowMs))
    if (known.length + before.length === 0) return
    firstEndAt = known.reduce((first, { untilAt = Infinity }) => Math.min(first, untilAt), Infinity)
    limits.clear()
    for (const [client, own] of byClient(known)) limits.set(client, own)
    const [added, gone] = [difference(known, before), difference(before, known)]
    onChange(known.length, added, gone)
    if (added.length + gone.length > 0) onApplied?.(new Set([...added, ...gone].map(({ client }) => client)))
  }

  /** Reads what has changed, one reading at a time. */
  function refresh(): Promise<void> {
    reading ??= readChanged()
      .then(apply)
      .finally(() => (reading = undefined))
    return reading
  }

  return {
    /** Those that have not ended; always the same map. */
    limits: limits as Overrides,
    /** Returns those that have not ended. */
    values: (): readonly Override[] => known.filter((override) => isActive(override, Date.now())),
    /** Reads them once; rejects if the source does not answer. */
    load: refresh,
    /** Reads them again and again, and calls `applied` after each change, with the clients whose overrides have changed. */
    watch(applied: (clients: ReadonlySet<string>) => void): void {
      onApplied = applied
      timer = setInterval(() => void refresh().catch(() => apply(undefined)), everyMs).unref()
    },
    /**
     * Sets overrides and removes those of `removed`, for all gateways and at once for this one; rejects with an InvalidQuestion
     * where there would be too many, and if the source does not answer.
     */
    async change(
      set: readonly Override[],
      removed: readonly Pick<Override, 'client' | 'name'>[],
    ): Promise<void> {
      const nowMs = Date.now()
      await refresh()
      const { overrides, bad } = parseOverrides(await source.read())
      const isEnded = (override: Override): boolean => !isActive(override, nowMs)
      const isRemoved = (override: Override): boolean =>
        removed.some((one) => fieldOf(one) === fieldOf(override))
      const gone = overrides.filter((override) => isEnded(override) || isRemoved(override))
      if (gone.length + set.length === 0) return
      const fields = new Map<string, string | undefined>(
        [...bad, ...gone.map(fieldOf)].map((field) => [field, undefined]),
      )
      for (const override of set) fields.set(fieldOf(override), formatOverride(override))
      const kept = overrides.filter((override) => !fields.has(fieldOf(override)))
      if (kept.length + set.length > MAX_OVERRIDES) {
        throw new InvalidQuestion(
          `There are ${MAX_OVERRIDES} overrides at most; remove some with LIMIT=default, or write lasting ones to the file.`,
        )
      }
      await source.change(fields, version)
      // A reading that is under way may have begun before.
      await reading?.catch(() => {})
      await refresh()
    },
    close: (): void => clearInterval(timer),
  }
}

const fieldOf = ({ client, name }: Pick<Override, 'client' | 'name'>): string => overrideField(client, name)

/** Returns those that are not, the same, among others. */
function difference(some: readonly Override[], others: readonly Override[]): readonly Override[] {
  const known = new Set(others.map((override) => JSON.stringify(override)))
  return some.filter((override) => !known.has(JSON.stringify(override)))
}
