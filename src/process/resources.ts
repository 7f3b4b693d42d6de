interface Part {
  readonly kind: string
  readonly settings: unknown
  readonly value: unknown
  end(): void
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
    /** Returns the part for these settings, built unless there is one. */
    get<Settings, Value>(
      kind: string,
      settings: Settings,
      build: (settings: Settings) => Value,
      end: (value: Value) => void = () => {},
    ): Value {
      const key = keyOf(kind, settings)
      let part = find(key)
      if (part === undefined) {
        const value = build(settings)
        part = { kind, settings, value, end: () => end(value) }
      }
      parts.set(key, part)
      return part.value as Value
    },
    /** True if `get` would build nothing. */
    has: (kind: string, settings: unknown): boolean => find(keyOf(kind, settings)) !== undefined,
    /** Returns, within `replace`, the settings of the parts of one kind that are in force. */
    before: (kind: string): readonly unknown[] =>
      [...before.values()].filter((part) => part.kind === kind).map(({ settings }) => settings),
    /** Builds a configuration, and ends the parts that it does not use; if `build` throws, those that are new. */
    replace<Value>(build: () => Value): Value {
      before = parts
      parts = new Map()
      try {
        const value = build()
        endAll(before, parts)
        return value
      } catch (error) {
        endAll(parts, before)
        parts = before
        throw error
      } finally {
        before = new Map()
      }
    },
    end: (): void => endAll(parts),
  }
}

function endAll(parts: Parts, except?: Parts): void {
  for (const [key, part] of parts) if (except?.has(key) !== true) part.end()
}

const keyOf = (kind: string, settings: unknown): string => `${kind} ${JSON.stringify(settings)}`
