import { Cluster, type Redis } from 'ioredis'
import { clusterOptions, type RedisAddress } from './redis-options.ts'

/** A cluster, and what is known of why one of its nodes cannot be asked. */
export interface RedisCluster {
  readonly client: Cluster
  /** Why the node at `host:port` is not connected; undefined where it is. */
  why(node: string): Error | undefined
}

/** Connects to a cluster that is found by some of its nodes; `hear` is told of every error, with the node's address in it. */
export function openCluster(nodes: readonly RedisAddress[], hear: (error: Error) => void): RedisCluster {
  const client = new Cluster([...nodes], clusterOptions(nodes))
  const configured = new Set(nodes.map(({ host, port }) => `${host}:${port}`))
  const reached = new Set<string>()
  const reasons = new Map<string, Error>()
  fillHosts(client, nodes[0]!.host!)

  function reasonOf(node: string, error: Error): Error {
    const isElsewhere =
      UNREACHABLE.test(error.message) &&
      !configured.has(node) &&
      !reached.has(node) &&
      client.slots.some((nodes) => nodes?.includes(node))
    const words = isElsewhere
      ? `the cluster announces ${node}, which this gateway has never reached (${error.message}); if it has another address from here, set cluster-announce-ip and cluster-announce-port on the node`
      : `${node}: ${error.message}`
    return new Error(words, { cause: error })
  }

  client.on('node error', (error: Error, node: string) => {
    const reason = reasonOf(node, error)
    // That a connection is closed says less than why, which was said before.
    if (!reasons.has(node) || !isVague(error)) reasons.set(node, reason)
    hear(reason)
  })
  client.on('+node', (node: Redis) => {
    const name = nameOf(node)
    node.on('ready', () => {
      reached.add(name)
      reasons.delete(name)
    })
  })
  client.on('refresh', () => {
    const known = new Set(client.slots.flat())
    for (const name of [...reached, ...reasons.keys()]) {
      if (known.has(name)) continue
      reached.delete(name)
      reasons.delete(name)
    }
  })
  keepMastersConnected(client)
  return {
    client,
    why(node) {
      const isReady = client.nodes('master').some((one) => nameOf(one) === node && one.status === 'ready')
      return isReady ? undefined : reasons.get(node)
    },
  }
}

const UNREACHABLE = /\b(?:ECONNREFUSED|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN)\b/

/** Does an error say no more than that a connection is closed? */
export function isVague({ message }: Error): boolean {
  return /Connection is closed\.?$/.test(message)
}

/** `host:port` of a node, as the slots name it. */
export function nameOf({ options }: Redis): string {
  return `${options.host}:${options.port}`
}

/** Left to itself, a node connects with its first command, which fails those that come beside it. */
function keepMastersConnected(cluster: Cluster): void {
  const connect = () => {
    for (const node of cluster.nodes('master')) if (node.status === 'wait') node.connect().catch(() => {})
  }
  cluster.on('+node', connect).on('refresh', connect)
}

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
 * A node that does not know its own address, or may not tell it, has none in CLUSTER SLOTS, or "?" in place of a name: it is
 * where the one that was asked is (redis.io, CLUSTER SLOTS). ioredis leaves such a node out, and asks any for it.
 */
function fillHosts(cluster: Cluster, first: string): void {
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
          cluster(what, (error, slots) => done(error, slots && withHosts(slots, host)))
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
