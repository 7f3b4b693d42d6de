import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, test } from 'vitest'
import type { RedisStoreOptions } from '../../../src/limit/redis/store.ts'
import type { SharedCluster, SharedRedis } from '../../helpers/redis.ts'
import { sharedCluster, sharedRedis } from '../../helpers/shared-redis.ts'
import type { Admitted, Burst } from './burst-worker.ts'

const WORKER = fileURLToPath(new URL('burst-worker.ts', import.meta.url))
const PROCESSES = 3

let server: SharedRedis
let cluster: SharedCluster
beforeAll(async () => {
  ;[server, cluster] = await Promise.all([sharedRedis(), sharedCluster()])
})

const topologies: readonly [string, () => RedisStoreOptions['topology']][] = [
  ['one Redis', () => ({ url: server.url })],
  ['a cluster', () => ({ cluster: cluster.urls })],
]

/** Has several processes hammer the same quotas, all from the same moment on; the admitted calls of all of them. */
async function hammer(burst: Burst): Promise<Admitted[]> {
  const workers = Array.from({ length: PROCESSES }, () => fork(WORKER, { execArgv: ['--import', 'tsx'] }))
  for (const worker of workers) worker.send(burst)
  await Promise.all(workers.map(said))
  for (const worker of workers) worker.send('go')
  const admitted = await Promise.all(workers.map(said))
  return admitted.flat() as Admitted[]
}

/** The next message of a worker. */
async function said(worker: ChildProcess): Promise<unknown> {
  return await new Promise((resolve, reject) => {
    worker.once('message', resolve)
    worker.once('exit', (code) => reject(new Error(`a worker ended with ${code}`)))
  })
}

describe.each(topologies)('several processes that share %s', (name, topology) => {
  test('admit exactly the limit', async () => {
    const requests = {
      name: 'requests',
      key: `b:{${name}}:requests`,
      limit: 250,
      windowMs: 60_000,
      shadow: false,
    }
    const sync = { name: 'sync', key: `b:{${name}}:sync`, limit: 300, windowMs: 60_000, shadow: false }
    const admitted = await hammer({
      topology: topology(),
      quotas: [requests, sync],
      concurrency: 20,
      calls: 200,
    })
    expect(admitted).toHaveLength(250)
  })

  test('admit no more than the limit in any window, wherever it starts', async () => {
    const windowMs = 300
    const limit = 40
    const quota = { name: 'rolling', key: `b:{${name}}:rolling`, limit, windowMs, shadow: false }
    const admitted = await hammer({ topology: topology(), quotas: [quota], concurrency: 5, forMs: 2000 })
    expect(admitted.length).toBeGreaterThan(2 * limit)
    const inOrder = admitted.toSorted(([, a], [, b]) => a - b)
    for (let i = limit; i < inOrder.length; i++) {
      // All of these were decided after the earliest was asked for and before the latest was answered.
      const some = inOrder.slice(i - limit, i + 1)
      const span = some.at(-1)![1] - Math.min(...some.map(([askedAtMs]) => askedAtMs))
      expect(span).toBeGreaterThanOrEqual(windowMs - 1)
    }
  })
})
