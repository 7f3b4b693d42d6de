/**
 * Fields that all gateways share, as those of overrides: a value for each, and a version,
 * `<counter> <random>`. Each change adds 1 to the greater counter of the source and the writer, so
 * that older data, such as a restored backup, are detected.
 */
export interface SharedFields {
  /** Returns the version; an empty text if there is none. */
  version(): Promise<string>
  /** Returns every field with its value, and the version as the field `version`. */
  read(): Promise<Readonly<Record<string, string>>>
  /** Writes fields, and removes those without a value, all at once; `writer` is the writer's version. */
  change(fields: ReadonlyMap<string, string | undefined>, writer: string): Promise<void>
  /** Replaces everything by these fields and this version if the stored version is older; returns true if it did. */
  restore(fields: ReadonlyMap<string, string>, version: string): Promise<boolean>
}

/** The field of the version. */
export const VERSION_FIELD = 'version'
/** Maximum digits of a version's counter, which stays at its maximum; a longer counter is damaged, and counts as 0. */
export const MAX_COUNTER_DIGITS = 12

/** Returns the counter of a version; 0 for other texts. */
export function counterOf(version: string): number {
  const [digits = ''] = /^\d+(?= |$)/.exec(version) ?? []
  return digits.length <= MAX_COUNTER_DIGITS ? Number(digits) : 0
}

/** Creates the fields of a gateway without Redis, in this process. */
export function createMemoryFields(): SharedFields {
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
