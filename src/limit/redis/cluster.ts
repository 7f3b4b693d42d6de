import { Cluster, type Redis } from 'ioredis'
import { clusterOptions, type RedisAddress } from './options.ts'
import { mendSlots } from './slots.ts'

/** A cluster, and what is known of why one of its nodes cannot be asked. */
export interface RedisCluster {
  readonly client: Cluster
  /** Why the node at `host:port` is not connected; undefined where it is. */
  why(node: string): Error | undefined
}

export interface ClusterOptions {
  /** Some of its nodes, by which it is found. */
  readonly nodes: readonly RedisAddress[]
  /** Told of every error, with the node's address in it. */
  readonly onError: (error: Error) => void
  /** Told of how many slots have no master, whenever the number changes. */
  readonly onUnserved: (slots: number) => void
}

/** Connects to a cluster. */
export function openCluster({ nodes, onError, onUnserved }: ClusterOptions): RedisCluster {
  const client = new Cluster([...nodes], clusterOptions(nodes))
  const configured = new Set(nodes.map(({ host, port }) => `${host}:${port}`))
  const reached = new Set<string>()
  const reasons = new Map<string, Error>()
  mendSlots(client, nodes[0]!.host!, onUnserved)

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
    onError(reason)
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
