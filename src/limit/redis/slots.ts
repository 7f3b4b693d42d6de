import type { Cluster, Redis } from 'ioredis'
import { SLOTS } from './hash-slot.ts'

/** A node within the answer to CLUSTER SLOTS: host, port, id, and further names of it as keys and values. */
type SlotNode = [host: string | null, port: number, id: string, names?: readonly string[]]
type Slots = readonly (readonly [from: number, to: number, ...nodes: SlotNode[]])[]
type Answered = (error: Error | null, slots?: Slots) => void

interface Asked {
  duplicate(options: object): { cluster: (what: 'SLOTS', answered: Answered) => unknown }
}

interface Inner {
  getInfoFromNode(node: Asked & Redis, answered: (error?: Error) => void): void
  handleError(error: Error, ttl: object, handlers: object): void
}

/**
 * Mends what ioredis makes of CLUSTER SLOTS. A node that does not know its own address, or may not tell it, has none there, or
 * "?" in place of a name: it is where the one that was asked is (redis.io, CLUSTER SLOTS); ioredis leaves such a node out, and
 * asks any for it. Slots that no master serves any more are forgotten, and `onUnserved` is told when their number changes;
 * ioredis goes on asking who served them before.
 */
export function mendSlots(cluster: Cluster, first: string, onUnserved: (slots: number) => void): void {
  let unserved = 0
  const look = (slots: Slots) => {
    const before = unserved
    unserved = forgetUnserved(cluster, slots)
    if (unserved !== before) onUnserved(unserved)
  }
  const inner = cluster as unknown as Inner
  const ask = inner.getInfoFromNode.bind(cluster)
  inner.getInfoFromNode = (node, answered) => {
    if (!node) return ask(node, answered)
    const host = node.options.host!
    const asked: Asked = {
      duplicate(options) {
        const copy = (node as Asked).duplicate(options)
        const cluster = copy.cluster.bind(copy)
        copy.cluster = (what, done) =>
          cluster(what, (error, slots) => {
            if (slots !== undefined) look(slots)
            done(error, slots && withHosts(slots, host))
          })
        return copy
      },
    }
    ask(asked as Asked & Redis, answered)
  }
  const redirect = inner.handleError.bind(cluster)
  inner.handleError = (error, ttl, handlers) => {
    const [, words, port] = /^((?:MOVED|ASK) \d+) \??:(\d+)$/.exec(error.message) ?? []
    if (port === undefined) return redirect(error, ttl, handlers)
    // Who was asked is not known here; a wrong guess lasts until the slots are asked for, which is now.
    const known = cluster.nodes().find(({ options }) => options.port === Number(port))
    const host = known?.options.host ?? first
    redirect(new Error(`${words} ${host}:${port}`, { cause: error }), ttl, handlers)
  }
}

function forgetUnserved(cluster: Cluster, slots: Slots): number {
  const served = new Uint8Array(SLOTS)
  for (const [from, to] of slots) served.fill(1, from, to + 1)
  let unserved = 0
  for (const [slot, isServed] of served.entries()) {
    if (isServed === 1) continue
    unserved++
    cluster.slots[slot] = []
  }
  return unserved
}

function withHosts(slots: Slots, asked: string): Slots {
  return slots.map(([from, to, ...nodes]) => [
    from,
    to,
    ...nodes.map(([host, port, id, names = []]): SlotNode => {
      const isKnown = host !== null && host !== '' && host !== '?'
      const ip = names.includes('ip') ? names[names.indexOf('ip') + 1] : undefined
      return [isKnown ? host : (host === '?' && ip) || asked, port, id, names]
    }),
  ])
}
