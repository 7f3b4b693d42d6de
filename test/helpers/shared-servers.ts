import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestProject } from 'vitest/node'
import {
  type RedisCluster,
  type RedisSentinels,
  type RedisServer,
  startCluster,
  startRedis,
  startSentinels,
} from './redis.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    sharedServersPort: number
  }
}

/** The Redis servers that all tests of a run share: one server, one cluster of three masters, one master with sentinels. */
const STARTERS = {
  redis: () => startRedis({ tcp: true }),
  cluster: () => startCluster(),
  sentinels: () => startSentinels(),
}
export type SharedKind = keyof typeof STARTERS

/** Starts the servers at the first request, until `close`. Resolves with the ports of the servers and of the sentinels. */
function createSharedServers() {
  const started = new Map<SharedKind, Promise<RedisServer | RedisCluster | RedisSentinels>>()
  return {
    async ports(kind: SharedKind): Promise<readonly number[]> {
      const known = started.get(kind) ?? STARTERS[kind]()
      started.set(kind, known)
      const one = await known
      if ('nodes' in one) return one.nodes.map(({ port }) => port)
      if ('master' in one) {
        return [one.master.port, one.replica.port, ...one.urls.map((url) => Number(new URL(url).port))]
      }
      return [one.port]
    },
    async close(): Promise<void> {
      await Promise.all([...started.values()].map(async (one) => await (await one).close()))
    },
  }
}

/** Starts the shared servers when a test needs them, and stops them after the run. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const servers = createSharedServers()
  const control = createServer((request, response) => {
    servers.ports(request.url!.slice(1) as SharedKind).then(
      (ports) => response.end(JSON.stringify(ports)),
      (error: Error) => response.writeHead(500).end(error.message),
    )
  })
  await new Promise<void>((resolve) => {
    control.listen(0, '127.0.0.1', resolve)
  })
  project.provide('sharedServersPort', (control.address() as AddressInfo).port)
  return async () => {
    control.close()
    control.closeAllConnections()
    await servers.close()
  }
}
