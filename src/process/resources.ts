interface Resource {
  readonly kind: string
  readonly settings: unknown
  readonly value: unknown
}
type ResourceMap = Map<string, Resource>

export type Resources = ReturnType<typeof createResources>

/** Keeps the resources that outlive a reload, expensive or with a life of their own, by kind and settings (as JSON). */
export function createResources() {
  let resources: ResourceMap = new Map()
  /** Those of the configuration in force, while the next one is built. */
  let before: ResourceMap = new Map()
  const find = (key: string): Resource | undefined => resources.get(key) ?? before.get(key)

  return {
    /** Returns the resource for these settings, built unless there is one. Its method `close`, if any, is called when it is dropped. */
    get<Value>(kind: string, settings: unknown, build: () => Value): Value {
      const key = keyOf(kind, settings)
      const resource = find(key) ?? { kind, settings, value: build() }
      resources.set(key, resource)
      return resource.value as Value
    },
    /** True if `get` would build nothing. */
    has: (kind: string, settings: unknown): boolean => find(keyOf(kind, settings)) !== undefined,
    /** Returns, within `replace`, the settings of the resources of one kind that are in force. */
    before: (kind: string): readonly unknown[] =>
      [...before.values()].filter((resource) => resource.kind === kind).map(({ settings }) => settings),
    /** Builds a configuration, and closes the resources that it does not use; if `build` throws, those that are new. */
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
  for (const [key, { value }] of resources) {
    if (except?.has(key) !== true) (value as { close?: () => void } | undefined)?.close?.()
  }
}

const keyOf = (kind: string, settings: unknown): string => `${kind} ${JSON.stringify(settings)}`
