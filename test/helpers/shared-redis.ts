import { inject } from 'vitest'
import {
  clusterOf,
  commander,
  type SharedCluster,
  type SharedRedis,
  type SharedSentinels,
  urlOf,
} from './redis.ts'
import type { SharedKind } from './shared-servers.ts'

const connected = new Map<number, SharedRedis>()

/** Servers of this run at these ports. Tests must not change their settings, and must use their own key prefixes. */
async function shared(kind: SharedKind): Promise<readonly SharedRedis[]> {
  const response = await fetch(`http://127.0.0.1:${inject('sharedServersPort')}/${kind}`)
  return ((await response.json()) as number[]).map((port) => {
    const { command } = commander({ host: '127.0.0.1', port })
    const server = connected.get(port) ?? { url: urlOf(port, false), port, command }
    connected.set(port, server)
    return server
  })
}

/** Returns the redis-server that all tests of a run share. A test must use its own prefix, and must not change settings. */
export async function sharedRedis(): Promise<SharedRedis> {
  return (await shared('redis'))[0]!
}

/** Returns the cluster of three masters that all tests of a run share. */
export async function sharedCluster(): Promise<SharedCluster> {
  return clusterOf(await shared('cluster'))
}

/** Returns the sentinels that all tests of a run share. */
export async function sharedSentinels(): Promise<SharedSentinels> {
  const [master, replica, ...sentinels] = await shared('sentinels')
  return { urls: sentinels.map(({ url }) => url), name: 'main', master: master!, replica: replica! }
}
