/** The right of an operator: to read, to change all limits too, or to change only the named limits. */
export type Right = 'read' | 'set' | readonly string[]

/** An operator whom the gateway has recognised. */
export interface Operator {
  readonly name: string
  readonly may: Right
}

/** Makes the requests that need no right. */
export const NOBODY: Operator = { name: '', may: [] }

/**
 * Right that an operation needs: none, `read`, `change` (`set`, or each limit that the request
 * names), or `set` itself.
 */
type Need = 'nothing' | 'read' | 'change' | 'set'

interface Operation {
  readonly operation: string
  readonly method: 'GET' | 'DELETE' | 'PATCH'
  /** `:name` is one segment. */
  readonly path: string
  readonly needs: Need
}

/**
 * Every operation of the admin listener with the right that it needs. The listener serves nothing
 * that has no row here. GET includes HEAD.
 */
export const OPERATIONS = [
  { operation: 'health', method: 'GET', path: '/healthz', needs: 'nothing' },
  { operation: 'readiness', method: 'GET', path: '/readyz', needs: 'nothing' },
  { operation: 'metrics', method: 'GET', path: '/metrics', needs: 'nothing' },
  { operation: 'console', method: 'GET', path: '/', needs: 'nothing' },
  { operation: 'console', method: 'GET', path: '/console/:file', needs: 'nothing' },
  { operation: 'overview', method: 'GET', path: '/overview', needs: 'read' },
  { operation: 'show', method: 'GET', path: '/limits/:caller', needs: 'read' },
  // A reset deletes the counters of all limits, so the right to change some of them is not enough.
  { operation: 'reset', method: 'DELETE', path: '/limits/:caller', needs: 'set' },
  { operation: 'set', method: 'PATCH', path: '/limits/:caller', needs: 'change' },
  { operation: 'overrides', method: 'GET', path: '/overrides', needs: 'read' },
  { operation: 'explain', method: 'GET', path: '/explain', needs: 'read' },
] as const satisfies readonly Operation[]

export type OperationName = (typeof OPERATIONS)[number]['operation']

/** Returns the operations of a path, of all methods; none for an unknown path. */
export const operationsOf = (path: string) => OPERATIONS.filter((row) => isPath(row.path, path))

function isPath(pattern: string, path: string): boolean {
  const [segments, given] = [pattern.split('/'), path.split('/')]
  const fits = (segment: string, i: number) =>
    segment.startsWith(':') ? given[i] !== '' : segment === given[i]
  return segments.length === given.length && segments.every(fits)
}

/** True if an operator may change a limit. */
export const mayChange = ({ may }: Operator, limit: string): boolean =>
  may === 'set' || (may !== 'read' && may.includes(limit))

/** Returns the sentence that names the right which an operator lacks for an operation; undefined if none. */
export function lackedRight({ name, may }: Operator, needs: Need): string | undefined {
  if (needs === 'nothing' || needs === 'read' || may === 'set') return undefined
  if (may === 'read') return `"${name}" may only read; changes need the right "set" in admin.tokens.`
  if (needs === 'change') return undefined
  return `"${name}" may change only ${may.join(', ')}; a reset frees all limits, and needs the right "set" in admin.tokens.`
}

/** Returns the sentence that names the limits which an operator may not change. */
export function lackedLimits({ name }: Operator, limits: readonly string[]): string {
  const shown = limits.map((limit) => `"${limit}"`).join(', ')
  return `"${name}" may not change ${shown}; that needs the right "set" in admin.tokens, or the limit in the list of "may".`
}
