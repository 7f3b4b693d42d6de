/** A literal in folded case, or the name of a parameter, which matches one segment. */
export type Segment = { readonly literal: string } | { readonly param: string }

/** A tree of the routes by their segments. */
interface Branch {
  readonly literals: Map<string, Branch>
  param?: Branch
  /** Positions of the routes that end here, with or without a last `*`. */
  readonly ends: number[]
}

const newBranch = (): Branch => ({ literals: new Map(), ends: [] })

/** Returns a function that finds the routes whose segments match, in their order. A thousand routes cost no more than ten. */
export function indexRoutes<R extends { readonly segments: readonly Segment[] }>(
  routes: readonly R[],
): (folded: readonly string[]) => readonly R[] {
  const root = newBranch()
  for (const [i, { segments }] of routes.entries()) {
    let branch = root
    for (const segment of segments) {
      const next = 'param' in segment ? branch.param : branch.literals.get(segment.literal)
      const child = next ?? newBranch()
      if ('param' in segment) branch.param = child
      else branch.literals.set(segment.literal, child)
      branch = child
    }
    branch.ends.push(i)
  }
  return (folded) => {
    const found: number[] = []
    collect(root, folded, 0, found)
    if (found.length > 1) found.sort((a, b) => a - b)
    return found.map((i) => routes[i]!)
  }
}

function collect(branch: Branch, folded: readonly string[], depth: number, found: number[]): void {
  for (const end of branch.ends) found.push(end)
  if (depth === folded.length) return
  const literal = branch.literals.get(folded[depth]!)
  if (literal !== undefined) collect(literal, folded, depth + 1, found)
  if (branch.param !== undefined) collect(branch.param, folded, depth + 1, found)
}
