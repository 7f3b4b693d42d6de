import type { Path } from './locate.ts'

/** The value at a path; undefined where nothing stands there. */
export function get(value: unknown, path: Path): unknown {
  return path.reduce(
    (inner, step) =>
      typeof inner === 'object' && inner !== null && Object.hasOwn(inner, step)
        ? (inner as Record<string | number, unknown>)[step]
        : undefined,
    value,
  )
}

/** The paths of a pattern in which `*` stands for every place in a list. */
export function placesOf(value: unknown, pattern: Path): readonly Path[] {
  const star = pattern.indexOf('*')
  if (star === -1) return [pattern]
  const before = pattern.slice(0, star)
  const items = get(value, before)
  return Array.isArray(items) ? items.map((_, i) => [...before, i, ...pattern.slice(star + 1)]) : []
}

/** Sets the value at a path, making the mappings that lead there. */
export function put(value: Record<string, unknown>, path: Path, leaf: unknown): void {
  let inner = value
  for (const step of path.slice(0, -1)) {
    const next = inner[step]
    inner = (typeof next === 'object' && next !== null ? next : (inner[step] = {})) as Record<string, unknown>
  }
  inner[path.at(-1)!] = leaf
}

/** Is this a mapping of keys to values? */
export function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
