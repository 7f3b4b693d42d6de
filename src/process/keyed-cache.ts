/** Parts that are expensive or have a life of their own, built once for each setting and kept while it is in use. */
export interface Reused<Setting, Part> {
  /** The part for a setting: the one in use where an equal setting has one, else a new one. */
  get(setting: Setting): Part
  /** Is there a part for this setting? */
  has(setting: Setting): boolean
  /** Ends the parts that no `get` asked for since the last call. */
  endUnused(): void
  /** Ends all. */
  end(): void
}

/** Keeps the parts that `build` makes, told apart by the JSON of their settings. */
export function reused<Setting, Part>(
  build: (setting: Setting) => Part,
  endPart: (part: Part) => void,
): Reused<Setting, Part> {
  const parts = new Map<string, Part>()
  const asked = new Set<string>()
  const keep = (wanted: ReadonlySet<string>): void => {
    for (const [key, part] of parts) {
      if (wanted.has(key)) continue
      parts.delete(key)
      endPart(part)
    }
  }
  return {
    get(setting) {
      const key = JSON.stringify(setting)
      asked.add(key)
      const known = parts.get(key)
      if (known !== undefined) return known
      const part = build(setting)
      parts.set(key, part)
      return part
    },
    has: (setting) => parts.has(JSON.stringify(setting)),
    endUnused() {
      keep(asked)
      asked.clear()
    },
    end: () => keep(new Set()),
  }
}
