import { Redis } from 'ioredis'
import { configError } from './diagnose.ts'
import { type RedisCredentials, type RedisTopology, sentinelOptions, serverOptions } from './options.ts'

/** A server that the configuration names: what it says of itself, or why it cannot be used. */
export type InspectedNode =
  | { readonly url: string; readonly found: string }
  | { readonly url: string; readonly error: Error }

/** The oldest version that has every command of the store. */
const OLDEST = [6, 2] as const

/** Connects to each server that a configuration names, within `timeoutMs` each. Never rejects; writes nothing. */
export function inspectNodes(
  topology: RedisTopology,
  credentials: RedisCredentials,
  timeoutMs: number,
): Promise<readonly InspectedNode[]> {
  const bounds = { connectTimeout: timeoutMs, commandTimeout: timeoutMs, retryStrategy: () => null }
  if ('name' in topology) {
    const { subscriptions } = sentinelOptions(topology, credentials)
    return Promise.all(
      topology.sentinels.map((url, i) =>
        ask(url, new Redis({ ...subscriptions[i], ...bounds }), async (sentinel) => {
          const master = await sentinel.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', topology.name)
          // Words that `configError` knows.
          if (!Array.isArray(master)) throw new Error('No such master with that name')
          return `knows the master "${topology.name}" at ${master.join(':')}`
        }),
      ),
    )
  }
  const urls = 'cluster' in topology ? topology.cluster : [topology.url]
  return Promise.all(
    urls.map((url) => ask(url, new Redis({ ...serverOptions(url, credentials), ...bounds }), readVersion)),
  )
}

async function ask(
  url: string,
  node: Redis,
  question: (node: Redis) => Promise<string>,
): Promise<InspectedNode> {
  let reason: Error | undefined
  node.on('error', (error: Error) => (reason = error))
  try {
    await node.connect()
    return { url, found: await question(node) }
  } catch (thrown) {
    // That the connection is closed says less than the error before.
    const error = reason ?? (thrown as Error)
    return { url, error: configError(error) ?? error }
  } finally {
    node.stream?.on('error', () => {})
    node.disconnect()
  }
}

async function readVersion(node: Redis): Promise<string> {
  const version = /^redis_version:(\S+)/m.exec(await node.info('server'))?.[1] ?? 'unknown'
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const isOld = major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])
  if (isOld) throw new Error(`is Redis ${version}, and the store needs ${OLDEST.join('.')} or newer`)
  return `is Redis ${version}`
}
