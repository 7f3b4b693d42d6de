interface Part {
  readonly kind: string
  readonly settings: unknown
  readonly value: unknown
}
type Parts = Map<string, Part>

export type Resources = ReturnType<typeof createResources>

/** Keeps the parts that outlive a reload, expensive or with a life of their own, by kind and settings (as JSON). */
export function createResources() {
  let parts: Parts = new Map()
  /** Those of the configuration in force, while the next one is built. */
  let before: Parts = new Map()
  const find = (key: string): Part | undefined => parts.get(key) ?? before.get(key)

  return {
    /** Returns the part for these settings, built unless there is one. Its method `close`, if any, is called when it is dropped. */
    get<Value>(kind: string, settings: unknown, build: () => Value): Value {
      const key = keyOf(kind, settings)
      const part = find(key) ?? { kind, settings, value: build() }
      parts.set(key, part)
      return part.value as Value
    },
    /** True if `get` would build nothing. */
    has: (kind: string, settings: unknown): boolean => find(keyOf(kind, settings)) !== undefined,
    /** Returns, within `replace`, the settings of the parts of one kind that are in force. */
    before: (kind: string): readonly unknown[] =>
      [...before.values()].filter((part) => part.kind === kind).map(({ settings }) => settings),
    /** Builds a configuration, and closes the parts that it does not use; if `build` throws, those that are new. */
    replace<Value>(build: () => Value): Value {
      before = parts
      parts = new Map()
      try {
        const value = build()
        closeAll(before, parts)
        return value
      } catch (error) {
        closeAll(parts, before)
        parts = before
        throw error
      } finally {
        before = new Map()
      }
    },
    close: (): void => closeAll(parts),
  }
}

function closeAll(parts: Parts, except?: Parts): void {
  for (const [key, { value }] of parts) {
    if (except?.has(key) !== true) (value as { close?: () => void } | undefined)?.close?.()
  }
}

const keyOf = (kind: string, settings: unknown): string => `${kind} ${JSON.stringify(settings)}`
