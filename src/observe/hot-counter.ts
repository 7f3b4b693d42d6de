import type { Metric, Registry } from 'prom-client'

type Labels<Label extends string = string> = Readonly<Record<Label, string>>
/** The values of the labels that differ within a tree, in their order; the last may be left out. */
type Values = readonly string[]

interface Description<Label extends string> {
  readonly name: string
  readonly help: string
  readonly labelNames: readonly Label[]
}

/** The series of a counter with some fixed labels. */
export interface HotCounts {
  /** Adds 1 to the series with these values of the further labels. */
  inc(...values: Values): void
  /** Shows these series with 0 before their first event: Prometheus sees no increase in a series that begins with it. */
  declare(series: readonly Values[]): void
}

/** A series that has counted. */
interface CountedSeries<Label extends string> {
  readonly labels: Labels<Label>
  readonly count: number
}

/** A node of the tree of label values; `count` is of the series of the values on the way to it. */
interface Node {
  count: number
  readonly next: Map<string, Node>
}

const createNode = (): Node => ({ count: 0, next: new Map() })

/**
 * The series of a counter that have the labels `before` first, and `after` last. One that is only
 * declared has no node: a file of 10,000 routes declares 110,000.
 */
class Tree<Label extends string> implements HotCounts {
  readonly #before: Labels
  readonly #after: Labels
  readonly #names: readonly Label[]
  readonly #root = createNode()
  /** Lists of declared series, which trees share. */
  readonly #declared = new Set<readonly Values[]>()
  readonly #shared: (series: readonly Values[]) => readonly Values[]

  /** `names` are those of the values; `shared` returns the same list for the same series. */
  constructor(
    before: Labels,
    names: readonly Label[],
    after: Labels,
    shared: (series: readonly Values[]) => readonly Values[],
  ) {
    this.#before = before
    this.#names = names
    this.#after = after
    this.#shared = shared
  }

  inc(...values: Values): void {
    this.#nodeOf(values).count++
  }

  declare(series: readonly Values[]): void {
    this.#declared.add(this.#shared(series))
  }

  /** Returns the series that have counted. */
  counted(): readonly CountedSeries<Label>[] {
    return this.#countedBelow(this.#root, [])
  }

  /** Returns the labels of the declared series that have not counted. */
  declared(): readonly Labels<Label>[] {
    const all = [...this.#declared].flat()
    const series = this.#declared.size > 1 ? withoutRepetition(all) : all
    return series.filter((values) => !this.#hasCounted(values)).map((values) => this.#labelsOf(values))
  }

  #nodeOf(values: Values): Node {
    let node = this.#root
    for (const value of values) {
      let next = node.next.get(value)
      if (next === undefined) node.next.set(value, (next = createNode()))
      node = next
    }
    return node
  }

  #hasCounted(values: Values): boolean {
    let node: Node | undefined = this.#root
    for (const value of values) node = node?.next.get(value)
    return node !== undefined && node.count > 0
  }

  #countedBelow({ count, next }: Node, values: Values): readonly CountedSeries<Label>[] {
    const own = count > 0 ? [{ labels: this.#labelsOf(values), count }] : []
    return [...own, ...[...next].flatMap(([value, node]) => this.#countedBelow(node, [...values, value]))]
  }

  #labelsOf(values: Values): Labels<Label> {
    const own = Object.fromEntries(values.map((value, i) => [this.#names[i]!, value]))
    return { ...this.#before, ...own, ...this.#after } as Labels<Label>
  }
}

const withoutRepetition = (series: readonly Values[]): readonly Values[] => [
  ...new Map(series.map((values) => [JSON.stringify(values), values])).values(),
]

/** Creates a function that returns, for equal lists, the one that it got first. */
function createSharing() {
  const lists = new Map<string, readonly Values[]>()
  return (series: readonly Values[]): readonly Values[] => {
    const id = JSON.stringify(series)
    const known = lists.get(id) ?? series
    lists.set(id, known)
    return known
  }
}

/**
 * Registers a counter for the hot path. `inc` takes the values of the labels, in their order, and
 * adds 1 to an integer: prom-client's hash of the labels: +1.2 us a request;
 * `npm run bench:micro -- metrics`. Counters that count fewer events than requests use prom-client's own.
 */
export function createHotCounter<Label extends string>(registry: Registry, about: Description<Label>) {
  const { name, help, labelNames } = about
  const trees: Tree<Label>[] = []
  const shared = createSharing()

  /** Returns the series that have the labels `before` first, and `after` last. */
  function under(before: Labels, after: Labels): HotCounts {
    const tree = new Tree(before, labelNames, after, shared)
    trees.push(tree)
    return tree
  }
  /** Returns the series that have counted. */
  const series = (): readonly CountedSeries<Label>[] => trees.flatMap((tree) => tree.counted())
  async function get() {
    const values = trees.flatMap((tree) => [
      ...tree.counted().map(({ labels, count }) => ({ labels, value: count })),
      ...tree.declared().map((labels) => ({ labels, value: 0 })),
    ])
    return { name, help, type: 'counter', aggregator: 'sum', values }
  }
  registry.registerMetric({ name, get } as unknown as Metric)

  const all = under({}, {})
  return {
    inc: (...values: Values) => all.inc(...values),
    declare: (declared: readonly Values[]) => all.declare(declared),
    under,
    series,
  }
}
