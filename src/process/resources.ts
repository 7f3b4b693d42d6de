export type Resources = ReturnType<typeof createResources>

/** Creates the pools of resources, of which a reload keeps those that the new configuration uses. */
export function createResources() {
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
    /** Creates a pool of resources of one kind, such as sockets and caches, by their settings. */
    createPool<Settings, Value extends object>() {
      const pool = new Map<string, { readonly settings: Settings; readonly value: Value }>()
      pools.push(pool)
      return {
        /**
         * Returns or builds the resource for these settings. Its method `close`, if any, is called
         * when it is dropped.
         */
        get(settings: Settings, build: () => Value): Value {
          const key = JSON.stringify(settings)
          const resource = pool.get(key) ?? { settings, value: build() }
          pool.set(key, resource)
          used.add(resource)
          return resource.value
        },
        has: (settings: Settings): boolean => pool.has(JSON.stringify(settings)),
        /** Returns the settings of all open resources. */
        settings: () => [...pool.values()].map(({ settings }) => settings),
      }
    },
    /**
     * Builds a configuration, and closes the resources that it does not use; if `build` throws,
     * closes the new ones.
     */
    replace<Value>(build: () => Value): Value {
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
    close: (): void => closeExcept(new Set()),
  }
}
