/** What a decision costs Redis, and what a client's counter weighs: `npm run bench:limits`. One redis-server, no gateway. */
import { Redis } from 'ioredis'
import { CHARGE_SCRIPT } from '../src/limit/redis-store.ts'
import { cleanUp, need, startRedis } from './ground.ts'

const WINDOW_US = 60_000_000
const CALLS = 100_000
const PIPELINE = 100

/** Microseconds of Redis's own time per script call, over `CALLS` calls of `clients` clients. */
async function cost(
  redis: Redis,
  name: string,
  limit: number,
  clients: number,
  decisions = 1,
): Promise<void> {
  const sha = (await redis.script('LOAD', CHARGE_SCRIPT)) as string
  await redis.config('RESETSTAT')
  for (let done = 0; done < CALLS; done += PIPELINE * decisions) {
    const pipeline = redis.pipeline()
    for (let i = 0; i < PIPELINE; i++) {
      const keys = Array.from(
        { length: decisions },
        (_, j) => `{${name}-${(done + i * decisions + j) % clients}}`,
      )
      pipeline.evalsha(sha, keys.length, ...keys, 0, ...keys.flatMap(() => [1, limit, WINDOW_US, 0]))
    }
    await pipeline.exec()
  }
  const stats = await redis.info('commandstats')
  const [, calls, us] = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(stats)!
  console.log(`${name.padEnd(40)} ${(Number(us) / (Number(calls) * decisions)).toFixed(1)} us per decision`)
}

try {
  need('redis-server', 'taskset')
  const redis = new Redis({ port: await startRedis(1), host: '127.0.0.1', protocol: 2 })
  await cost(redis, 'admitted, 1000 per minute', 1000, 1000)
  await cost(redis, 'admitted, sixteen in one call', 1000, 1000, 16)
  await cost(redis, 'admitted, 5000 per minute', 5000, 1000)
  await cost(redis, 'refused', 1, 1000)
  const sha = (await redis.script('LOAD', CHARGE_SCRIPT)) as string
  for (const calls of [1, 8, 16, 100, 500, 1000]) {
    const key = `{memory-${calls}}`
    for (let i = 0; i < calls; i++) await redis.evalsha(sha, 1, key, 0, 1, 1000, WINDOW_US, 0)
    console.log(
      `${`${calls} calls in the window`.padEnd(40)} ${String(await redis.memory('USAGE', key))} bytes`,
    )
  }
  redis.disconnect()
} catch (error) {
  console.error(`bench: ${(error as Error).message}`)
  process.exitCode = 1
} finally {
  cleanUp()
}
