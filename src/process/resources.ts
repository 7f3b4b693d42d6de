export type Resources = ReturnType<typeof createResources>

type ResourceMap = Map<string, { close?(): void }>

/** Keeps the resources that outlive a reload, such as sockets and caches, by kind and settings (as JSON). */
export function createResources() {
  let resources: ResourceMap = new Map()
  /** The resources of the current configuration, while `replace` builds the next one. */
  let before: ResourceMap = new Map()

  return {
    /** Returns or builds the resource for these settings. Its method `close`, if any, is called when it is dropped. */
    get<Value extends object>(kind: string, settings: unknown, build: () => Value): Value {
      const key = keyOf(kind, settings)
      const resource = resources.get(key) ?? before.get(key) ?? build()
      resources.set(key, resource)
      return resource as Value
    },
    has(kind: string, settings: unknown): boolean {
      const key = keyOf(kind, settings)
      return resources.has(key) || before.has(key)
    },
    /** Returns, within `replace`, the settings of the current resources of one kind. */
    before: (kind: string): readonly unknown[] =>
      [...before.keys()]
        .filter((key) => key.startsWith(`${kind} {`))
        .map((key) => JSON.parse(key.slice(kind.length))),
    /** Builds a configuration, and closes the resources that it does not use; if `build` throws, closes the new ones. */
    replace<Value>(build: () => Value): Value {
      before = resources
      resources = new Map()
      try {
        const value = build()
        closeAll(before, resources)
        return value
      } catch (error) {
        closeAll(resources, before)
        resources = before
        throw error
      } finally {
        before = new Map()
      }
    },
    close: (): void => closeAll(resources),
  }
}

function closeAll(resources: ResourceMap, except?: ResourceMap): void {
  for (const [key, resource] of resources) if (except?.has(key) !== true) resource.close?.()
}

const keyOf = (kind: string, settings: unknown): string => `${kind} ${JSON.stringify(settings)}`
