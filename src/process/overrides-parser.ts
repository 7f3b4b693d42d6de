import { setImmediate as nextIteration } from 'node:timers/promises'
import { VERSION_FIELD } from '../limit/versioned-fields.ts'
import { withDigests } from '../policy/counted-caller.ts'
import { fieldOf, formatOverride, overrideKey } from '../policy/overrides.ts'
import { MAX_OVERRIDES, type Override, parseOverride } from '../policy/overrides.ts'
import { SYSTEM_CLOCK } from '../runtime/clock.ts'

/** Maximum time without a pause for other work, in milliseconds; one override takes 0.1 ms at most. */
const SLICE_MS = 5

/** An override, with what is derived from it: 10,000 of them would take half a second at each change. */
export interface ParsedOverride {
  readonly override: Override
  /** The value that it was parsed from. */
  readonly value: string
  /** Its field, as the gateway writes it: other than the one that it was parsed from if its caller became a secret. */
  readonly field: string
  /** Its key in `Overrides`. */
  readonly key: string
}

/** Overrides by the field that they were parsed from. */
type ParsedOverrides = ReadonlyMap<string, ParsedOverride>

/** The overrides in the fields of a source, and the fields that are unreadable. */
export interface ReadOverrides {
  readonly parsed: ParsedOverrides
  readonly bad: readonly string[]
}

/**
 * Creates the parser of the overrides of one source. It keeps those last read, which are parsed
 * again only if they have changed. Callers are counted by the digests of their `secrets`.
 */
export function createOverridesParser(prefix: string, secrets: ReadonlySet<string> = new Set()) {
  /** The overrides that were read last, also those that have ended. */
  let known: ParsedOverrides = new Map()

  const recounted = (overrides: ParsedOverrides): ParsedOverrides =>
    new Map(
      [...overrides].map(([field, { override, value }]) => [
        field,
        countedAs(override, value, prefix, secrets),
      ]),
    )

  return {
    parse: (fields: Readonly<Record<string, string>>): Promise<ReadOverrides> =>
      parseInSlices(fields, prefix, known, secrets),
    kept: (): readonly ParsedOverride[] => [...known.values()],
    /** Parses and keeps the fields of the source; returns how many are unreadable. */
    async keep(fields: Readonly<Record<string, string>>): Promise<number> {
      const used = secrets
      const { parsed, bad } = await parseInSlices(fields, prefix, known, used)
      // The secrets may have changed meanwhile.
      known = used === secrets ? parsed : recounted(parsed)
      return bad.length
    },
    /** Counts callers by the digests of other parts from now on; returns false if they are the same. */
    setSecrets(parts: ReadonlySet<string>): boolean {
      if (secrets.size === parts.size && [...parts].every((part) => secrets.has(part))) return false
      secrets = parts
      known = recounted(known)
      return true
    },
  }
}

/**
 * Parses the fields of a source like `parseOverrides`, in slices, between which other work is done.
 * An override that is the same in `known` is the same object.
 */
async function parseInSlices(
  fields: Readonly<Record<string, string>>,
  prefix: string,
  known: ParsedOverrides,
  secrets: ReadonlySet<string>,
): Promise<ReadOverrides> {
  const parsed = new Map<string, ParsedOverride>()
  const bad: string[] = []
  function parseField(field: string, value: string, earlier: ParsedOverride | undefined) {
    if (earlier?.value === value) return earlier
    const override = parseOverride(field, value)
    if (override === undefined) return undefined
    if (earlier !== undefined && formatOverride(earlier.override) === formatOverride(override))
      return { ...earlier, value }
    return countedAs(override, value, prefix, secrets)
  }
  let endsAt = SYSTEM_CLOCK.now() + SLICE_MS
  for (const [field, value] of Object.entries(fields)) {
    if (field === VERSION_FIELD) continue
    const one = parsed.size < MAX_OVERRIDES ? parseField(field, value, known.get(field)) : undefined
    if (one === undefined) bad.push(field)
    else parsed.set(field, one)
    if (SYSTEM_CLOCK.now() < endsAt) continue
    await nextIteration()
    endsAt = SYSTEM_CLOCK.now() + SLICE_MS
  }
  return { parsed, bad }
}

/** Derives what depends on how limits count the caller of an override, whose secret parts become digests. */
function countedAs(
  override: Override,
  value: string,
  prefix: string,
  secrets: ReadonlySet<string>,
): ParsedOverride {
  const counted = { ...override, caller: withDigests(override.caller, secrets) }
  return { override: counted, value, field: fieldOf(counted), key: overrideKey(prefix, counted) }
}
