import { InvalidQuestion } from '../errors.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'
import { counterOf, type SharedFields, VERSION_FIELD } from '../limit/versioned-fields.ts'
import { fieldOf, formatOverride, isActive, overrideKey } from '../policy/overrides.ts'
import { MAX_OVERRIDES, type Override } from '../policy/overrides.ts'
import type { CountedCaller } from '../policy/counted-caller.ts'
import { createOverridesParser, type ParsedOverride, type ReadOverrides } from './overrides-parser.ts'

const TOO_MANY = `There are ${MAX_OVERRIDES} overrides at most; remove some with LIMIT=default.`

export interface LiveOverridesOptions {
  /** Called after each change, and when an override ends, with the number in force and those added and removed. */
  readonly onChange: (count: number, added: readonly Override[], gone: readonly Override[]) => void
  /** Called after the overrides that the source had lost were written back. */
  readonly onRestored?: (count: number) => void
  /** Called with the number of unreadable fields of a changed source; they are ignored. */
  readonly onUnreadable: (fields: number) => void
  /** Called with the fields of the source at the first read and after each change of the source. */
  readonly onRead?: ((fields: Readonly<Record<string, string>>) => void) | undefined
  /** The parts of callers that limits count by their digests. */
  readonly secrets?: ReadonlySet<string>
  /** Poll interval; default 500 ms, so that a change takes effect at every gateway within a second. */
  readonly everyMs?: number
}

export type LiveOverrides = ReturnType<typeof createLiveOverrides>

/** Follows the overrides of a source; those last read stay in force while the source does not answer. */
export function createLiveOverrides(source: SharedFields, prefix: string, options: LiveOverridesOptions) {
  const { onChange, onRestored, onUnreadable, onRead, everyMs = 500 } = options
  const limits = new Map<string, Override>()
  const parser = createOverridesParser(prefix, options.secrets)
  let current: readonly ParsedOverride[] = []
  /** The version last read; undefined until the source was read. */
  let version: string | undefined
  let stopPolling: (() => void) | undefined
  let reading: Promise<void> | undefined
  let onApplied: ((callers: readonly CountedCaller[]) => void) | undefined

  function active(overrides = current): readonly ParsedOverride[] {
    const now = SYSTEM_CLOCK.date()
    return overrides.filter(({ override }) => isActive(override, now))
  }

  /** Reads the overrides if their version has changed; writes them back if the source has an older version. */
  async function readChanged(): Promise<readonly ParsedOverride[] | undefined> {
    const latest = await source.version()
    if (latest === version) return undefined
    if (version !== undefined && counterOf(latest) < counterOf(version)) {
      const kept = active()
      const fields = new Map(kept.map(({ field, override }) => [field, formatOverride(override)]))
      // Does nothing if another gateway was faster; the next poll then reads that gateway's version.
      if (await source.restore(fields, version)) onRestored?.(kept.length)
      return undefined
    }
    const fields = await source.read()
    const overrides = await parse(fields)
    version = fields[VERSION_FIELD] ?? ''
    onRead?.(fields)
    return overrides
  }

  async function parse(fields: Readonly<Record<string, string>>): Promise<readonly ParsedOverride[]> {
    const bad = await parser.keep(fields)
    if (bad > 0) onUnreadable(bad)
    return parser.kept()
  }

  /** Puts the overrides read, if any, into force, and drops those that have ended. */
  function apply(changed: readonly ParsedOverride[] | undefined): void {
    const before = current
    current = active(changed)
    if (changed === undefined && current.length === before.length) return
    const [added, removed] = [difference(current, before), difference(before, current)]
    if (added.length + removed.length === 0) return
    putIntoForce()
    onChange(current.length, added, removed)
    onApplied?.([...added, ...removed].map(({ caller }) => caller))
  }

  function putIntoForce(): void {
    limits.clear()
    for (const { key, override } of current) limits.set(key, override)
  }

  function isInForce(override: Override): boolean {
    const inForce = limits.get(overrideKey(prefix, override))
    return inForce !== undefined && formatOverride(inForce) === formatOverride(override)
  }

  /** Reads and applies a change of the source, one reading at a time. Rejects if the source does not answer. */
  const load = (): Promise<void> =>
    (reading ??= readChanged()
      .then(apply)
      .finally(() => (reading = undefined)))

  return {
    /** The overrides in force; always the same map. */
    limits,
    /** Returns the overrides that have not ended. */
    values: (): readonly Override[] => active().map(({ override }) => override),
    load,
    /** Returns true after the source was read once. */
    wasRead: () => version !== undefined,
    /** Puts overrides of another origin into force, until the source is read: it replaces them all. */
    assume: async (fields: Readonly<Record<string, string>>): Promise<void> => apply(await parse(fields)),
    /** Polls the source, and calls `applied` after each change, with the callers whose overrides have changed. */
    watch(applied: (callers: readonly CountedCaller[]) => void): void {
      onApplied = applied
      stopPolling = SYSTEM_CLOCK.every(everyMs, () => void load().catch(() => apply(undefined)))
    },
    /**
     * Sets and removes overrides, for this gateway at once. Rejects with an InvalidQuestion if
     * there would be too many, and if the change has no effect.
     */
    async change(set: readonly Override[], removed: readonly Pick<Override, 'caller' | 'name'>[]) {
      await load()
      const read = await parser.parse(await source.read())
      const changed = new Set([...set, ...removed].map(fieldOf))
      const others = active([...read.parsed.values()]).filter(({ field }) => !changed.has(field))
      const kept = new Set(others.map(({ field }) => field))
      if (set.length === 0 && kept.size === read.parsed.size) return
      if (kept.size + set.length > MAX_OVERRIDES) throw new InvalidQuestion(TOO_MANY)
      await source.change(changedFields(read, others, set), version ?? '')
      // A reading in progress may have begun before the change.
      await reading?.catch(() => {})
      await load()
      const isStillSet = removed.some((override) => limits.has(overrideKey(prefix, override)))
      const isMissing = set.some(
        (override) => isActive(override, SYSTEM_CLOCK.date()) && !isInForce(override),
      )
      if (isStillSet || isMissing)
        throw new Error('the change has no effect: the overrides in Redis are damaged')
    },
    /**
     * Counts callers by the digests of other parts from now on. All at once, as a blocked caller must
     * not pass meanwhile: 10,000 overrides take about 50 ms.
     */
    setSecrets(parts: ReadonlySet<string>): void {
      if (!parser.setSecrets(parts)) return
      current = active(parser.kept())
      putIntoForce()
    },
    close: (): void => stopPolling?.(),
  }
}

/**
 * Returns the fields of a source after a change: `set` added, and those of `read` removed that are
 * not among the `others`, which stay.
 */
function changedFields(
  { parsed, bad }: ReadOverrides,
  others: readonly ParsedOverride[],
  set: readonly Override[],
): Map<string, string | undefined> {
  const kept = new Set(others.map(({ field }) => field))
  const obsolete = [...bad, ...parsed.keys()].filter((field) => !kept.has(field))
  const fields = new Map<string, string | undefined>(obsolete.map((field) => [field, undefined]))
  // Those whose fields have the whole values of what became a secret.
  for (const { field, override } of others)
    if (!parsed.has(field)) fields.set(field, formatOverride(override))
  for (const override of set) fields.set(fieldOf(override), formatOverride(override))
  return fields
}

/** Returns the overrides of `some` that are not in `others`; the parser keeps unchanged ones. */
function difference(some: readonly ParsedOverride[], others: readonly ParsedOverride[]): readonly Override[] {
  const known = new Set(others.map(({ override }) => override))
  return some.flatMap(({ override }) => (known.has(override) ? [] : [override]))
}
