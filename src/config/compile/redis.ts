import type { RedisTls, RedisTopology } from '../../limit/redis/options.ts'
import { readPem } from '../files.ts'
import type { StoreConfig } from '../schema.ts'
import type { Mistake } from '../yaml/source.ts'
import type { SharedStoreSettings } from '../sections/store.ts'

type Redis = SharedStoreSettings['redis']

/** The store as its makers take it, with the files of TLS read; what is wrong with them is added to `mistakes`. */
export async function compileStore(
  store: 'memory' | SharedStoreSettings,
  directory: string,
  mistakes: Mistake[],
): Promise<StoreConfig> {
  if (store === 'memory') return store
  const { redis, ...rest } = store
  const { username, password } = redis
  const tls = await readTls(redis.tls, directory, mistakes)
  return { ...rest, redis: { topology: topologyOf(redis), username, password, tls } }
}

/** That one of the three is there was checked before. */
function topologyOf({ url, cluster, sentinels, name, ...access }: Redis): RedisTopology {
  if (cluster !== undefined) return { cluster }
  if (sentinels !== undefined) {
    const { sentinelUsername, sentinelPassword } = access
    return { sentinels, name: name!, sentinelUsername, sentinelPassword }
  }
  return { url: url! }
}

async function readTls(
  tls: Redis['tls'],
  directory: string,
  mistakes: Mistake[],
): Promise<RedisTls | undefined> {
  if (tls === undefined || tls === true) return tls && {}
  const { ca, cert, key, servername, rejectUnauthorized } = tls
  const read: Record<string, string> = {}
  for (const [name, path] of Object.entries({ ca, cert, key })) {
    if (path === undefined) continue
    const pem = await readPem(path, directory)
    if ('text' in pem) read[name] = pem.text
    else mistakes.push({ path: ['store', 'redis', 'tls', name], message: pem.problem })
  }
  return { ...read, servername, rejectUnauthorized }
}
