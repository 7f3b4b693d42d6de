/** Resources of one kind, such as sockets or caches: one for each settings. A reload keeps those whose settings it has again. */
export interface Pool<Settings, Value> {
  /** Returns or builds the resource for these settings. Its method `close`, if any, is called when it is dropped. */
  get(settings: Settings, build: () => Value): Value
  /** True if the resource for these settings is open. */
  has(settings: Settings): boolean
  /** Returns the settings of all open resources. */
  settings(): readonly Settings[]
}

/** The pools of a process. */
export interface Resources {
  createPool<Settings, Value extends object>(): Pool<Settings, Value>
  /**
   * Builds a configuration, and closes the resources that it does not use; if `build` throws,
   * closes the new ones.
   */
  replace<Value>(build: () => Value): Value
  close(): void
}

export function createResources(): Resources {
  /** The resources of each pool, by their settings as JSON. */
  const pools: Map<string, { readonly value: { close?(): void } }>[] = []
  /** The resources that the latest configuration uses. */
  let used = new Set<object>()

  function closeExcept(kept: ReadonlySet<object>): void {
    for (const pool of pools) {
      for (const [key, resource] of pool) {
        if (kept.has(resource)) continue
        pool.delete(key)
        resource.value.close?.()
      }
    }
  }

  return {
    createPool<Settings, Value extends object>(): Pool<Settings, Value> {
      const pool = new Map<string, { readonly settings: Settings; readonly value: Value }>()
      pools.push(pool)
      return {
        get(settings, build) {
          const key = JSON.stringify(settings)
          const resource = pool.get(key) ?? { settings, value: build() }
          pool.set(key, resource)
          used.add(resource)
          return resource.value
        },
        has: (settings) => pool.has(JSON.stringify(settings)),
        settings: () => [...pool.values()].map(({ settings }) => settings),
      }
    },
    replace(build) {
      const before = new Set(pools.flatMap((pool) => [...pool.values()]))
      used = new Set()
      try {
        const value = build()
        closeExcept(used)
        return value
      } catch (error) {
        closeExcept(before)
        throw error
      }
    },
    close: () => closeExcept(new Set()),
  }
}
