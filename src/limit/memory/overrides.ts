import { type OverrideSource, VERSION_FIELD } from '../overrides.ts'

/** Creates the source of overrides that this process alone keeps, as long as it lives. */
export function createMemoryOverrides(): OverrideSource {
  const kept = new Map<string, string>()
  return {
    version: async () => kept.get(VERSION_FIELD) ?? '',
    read: async () => Object.fromEntries(kept),
    async write(fields, ifLost = false) {
      const version = kept.get(VERSION_FIELD)
      if (ifLost && version !== undefined) return false
      for (const [field, value] of fields) {
        if (value === undefined) kept.delete(field)
        else kept.set(field, value)
      }
      kept.set(VERSION_FIELD, String(Number(version ?? 0) + 1))
      return true
    },
  }
}
