import { type OverrideSource, VERSION_FIELD } from '../overrides.ts'

/** Creates the source of overrides that this process alone keeps, as long as it lives. */
export function createMemoryOverrides(): OverrideSource {
  const kept = new Map<string, string>()
  return {
    version: async () => kept.get(VERSION_FIELD) ?? '',
    read: async () => Object.fromEntries(kept),
    async change(fields) {
      for (const [field, value] of fields) {
        if (value === undefined) kept.delete(field)
        else kept.set(field, value)
      }
      kept.set(VERSION_FIELD, String(Number(kept.get(VERSION_FIELD) ?? 0) + 1))
    },
    restore: async () => false,
  }
}
