import type { Pattern } from './router.ts'

/** What the patterns share that begin with the same segments; routes by their position. */
interface Branch {
  readonly literals: Map<string, Branch>
  /** Behind a parameter. */
  any: Branch | undefined
  /** The patterns that end here, with or without a last `*`. */
  readonly ends: number[]
}

const newBranch = (): Branch => ({ literals: new Map(), any: undefined, ends: [] })

/**
 * Returns a function that narrows routes down to those whose segments begin like a path, in their order: a thousand routes cost
 * no more than ten if their segments differ; methods and hosts are compared one by one. `folded` are the segments that
 * literals are compared with.
 */
export function indexRoutes<R extends Pattern>(
  routes: readonly R[],
): (folded: readonly string[]) => readonly R[] {
  const root = newBranch()
  for (const [i, { segments }] of routes.entries()) {
    let branch = root
    for (const segment of segments) branch = grow(branch, 'literal' in segment ? segment.literal : undefined)
    branch.ends.push(i)
  }

  return (folded) => {
    const found: number[] = []
    collect(root, folded, 0, found)
    if (found.length > 1) found.sort((a, b) => a - b)
    return found.map((i) => routes[i]!)
  }
}

function grow(branch: Branch, literal: string | undefined): Branch {
  if (literal === undefined) return (branch.any ??= newBranch())
  let next = branch.literals.get(literal)
  if (next === undefined) branch.literals.set(literal, (next = newBranch()))
  return next
}

function collect(branch: Branch, folded: readonly string[], depth: number, found: number[]): void {
  for (const end of branch.ends) found.push(end)
  if (depth === folded.length) return
  const literal = branch.literals.get(folded[depth]!)
  if (literal !== undefined) collect(literal, folded, depth + 1, found)
  if (branch.any !== undefined) collect(branch.any, folded, depth + 1, found)
}
