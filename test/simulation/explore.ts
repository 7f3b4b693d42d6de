/** Something that may happen next, named alike in every order. */
export interface Step {
  readonly name: string
  /** The parts that it reads or changes; `all` if these may be any. Steps that touch different parts may change places. */
  readonly touches: readonly string[]
}

/** Chooses the next step, of several in an order that is always the same; undefined if an equivalent order has been run. */
export type Choose = (enabled: readonly Step[]) => string | undefined

interface Node {
  /** Steps whose orders from here have been run elsewhere. */
  readonly asleep: readonly Step[]
  readonly open: readonly Step[]
  /** The step of `open` that is taken. */
  at: number
}

const areIndependent = (one: Step, other: Step): boolean =>
  !one.touches.includes('all') &&
  !other.touches.includes('all') &&
  !one.touches.some((touched) => other.touches.includes(touched))

/**
 * Runs every order of the steps, depth first, each from the beginning. With `isReduced`, of the orders that differ only in where
 * independent steps are, one is run (sleep sets). `run` returns false to end the search. Returns the number of orders.
 */
export async function explore(run: (choose: Choose) => Promise<boolean>, isReduced = true): Promise<number> {
  const path: Node[] = []
  let orders = 0
  do {
    let depth = 0
    let isKnown = false
    const goesOn = await run((enabled) => {
      if (depth === path.length) {
        const asleep = isReduced ? asleepAfter(path.at(-1)) : []
        const names = new Set(asleep.map(({ name }) => name))
        const open = enabled.filter(({ name }) => !names.has(name))
        isKnown = open.length === 0
        if (isKnown) return undefined
        path.push({ asleep, open, at: 0 })
      }
      const { open, at } = path[depth++]!
      return open[at]!.name
    })
    if (!isKnown) orders++
    if (!goesOn) return orders
    while (path.length > 0 && path.at(-1)!.at === path.at(-1)!.open.length - 1) path.pop()
    if (path.length > 0) path.at(-1)!.at++
  } while (path.length > 0)
  return orders
}

/** Returns the steps that need not be taken after the step of a node. */
function asleepAfter(node: Node | undefined): readonly Step[] {
  if (node === undefined) return []
  const { asleep, open, at } = node
  return [...asleep, ...open.slice(0, at)].filter((step) => areIndependent(step, open[at]!))
}
