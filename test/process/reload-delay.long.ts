import { writeFileSync } from 'node:fs'
import { Agent } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, token, yaml } from '../helpers/gateway.ts'
import { serving, type ServingProcess } from '../helpers/process.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'

const CLIENTS = 4000
const EVERY_MS = 5
/** Allows for a busy machine; a quiet one takes 50 ms. Reading the file in the serving thread takes 500 to 1000. */
const MAX_MS = 250

const data = await startUpstream()
const redis = await sharedRedis()
const folder = createFolder()

/** Writes a file with many clients; the last one is `acme`. */
function fileOf(store: object | 'memory'): string {
  const clients = Array.from({ length: CLIENTS }, (_, i) => ({
    id: `client-${i}`,
    name: `Client ${i}`,
    limits: { requests: { limit: i + 2 } },
  }))
  const acme = { id: 'acme', limits: { requests: { limit: 77 } } }
  const file = join(folder, 'sluice.yaml')
  writeFileSync(file, yaml({ data: data.url, store, more: { clients: [...clients, acme] } }))
  return file
}

/** Returns the slowest response on a kept socket, with a request every few milliseconds while `on` returns true. */
async function slowest(
  gateway: ServingProcess,
  agent: Agent,
  on: (calls: number) => boolean,
): Promise<number> {
  let worst = 0
  for (let calls = 0; on(calls); calls++) {
    const at = performance.now()
    await call(gateway.port, { path: '/nowhere', agent })
    worst = Math.max(worst, performance.now() - at)
    await sleep(EVERY_MS)
  }
  return worst
}

describe('with thousands of clients, no caller waits', () => {
  it.each([
    ['', 'memory', []],
    [', also with several workers', 'redis', ['--workers', '2']],
  ])(
    'with thousands of clients, no caller waits for the file to be read after a start, or on SIGHUP%s',
    { retry: 2 },
    async (_, store, args) => {
      const file = fileOf(
        store === 'redis' ? { redis: { url: redis.url }, prefix: 'reload-delay' } : 'memory',
      )
      const gateway = await serving({ file }, args)
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      const read = (words: string) => gateway.lines().filter(({ msg }) => msg === words)
      try {
        const started = await slowest(gateway, agent, (calls) => calls < 150)
        const quiet = await slowest(gateway, agent, (calls) => calls < 150)
        gateway.kill('SIGHUP')
        let since = 0
        const reloaded = await slowest(
          gateway,
          agent,
          () => read('configuration reloaded').length === 0 || since++ < 20,
        )
        expect(started - quiet).toBeLessThan(MAX_MS)
        expect(reloaded - quiet).toBeLessThan(MAX_MS)
        for (const words of ['gateway started', 'configuration reloaded']) {
          expect(read(words)).toMatchObject([{ loadMs: expect.any(Number) }])
        }
        const { headers } = await call(gateway.port, { token: await token('acme'), agent })
        expect(headers).toMatchObject({ 'x-ratelimit-limit': '77', 'x-ratelimit-remaining': '76' })
      } finally {
        agent.destroy()
      }
    },
  )
})
