import { setImmediate as nextIteration } from 'node:timers/promises'
import { VERSION_FIELD } from '../limit/shared-fields.ts'
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
export type ParsedOverrides = ReadonlyMap<string, ParsedOverride>

/**
 * Parses the fields of a source like `parseOverrides`, in slices, between which other work is done.
 * An override that is the same in `known` is the same object.
 */
export async function parseInSlices(
  fields: Readonly<Record<string, string>>,
  prefix: string,
  known: ParsedOverrides,
  secrets: ReadonlySet<string>,
) {
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
export function countedAs(
  override: Override,
  value: string,
  prefix: string,
  secrets: ReadonlySet<string>,
): ParsedOverride {
  const counted = { ...override, caller: withDigests(override.caller, secrets) }
  return { override: counted, value, field: fieldOf(counted), key: overrideKey(prefix, counted) }
}
