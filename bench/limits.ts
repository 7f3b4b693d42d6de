/**
 * What a decision costs Redis, how many it takes in a second, and what a client's counter weighs: `npm run bench:limits`.
 * One redis-server, no gateway.
 */
import { spawnSync } from 'node:child_process'
import { Redis } from 'ioredis'
import { CHARGE_SCRIPT } from '../src/limit/redis/scripts.ts'
import { cleanUp, need, startRedis } from './ground.ts'

const WINDOW_US = 60_000_000
const CALLS = 100_000
const PIPELINE = 100
const NO_DEADLINE = Number.MAX_SAFE_INTEGER

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
      pipeline.evalsha(
        sha,
        keys.length,
        ...keys,
        NO_DEADLINE,
        ...keys.flatMap(() => [1, limit, WINDOW_US, 0]),
      )
    }
    await pipeline.exec()
  }
  const stats = await redis.info('commandstats')
  const [, calls, us] = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(stats)!
  console.log(`${name.padEnd(40)} ${(Number(us) / (Number(calls) * decisions)).toFixed(1)} us per decision`)
}

/** Processor microseconds of Redis so far, its sockets included. */
async function processorUs(redis: Redis): Promise<number> {
  const said = await redis.info('cpu')
  const seconds = (name: string) => Number(new RegExp(`^used_cpu_${name}:([\\d.]+)`, 'm').exec(said)![1])
  return (seconds('sys') + seconds('user')) * 1e6
}

/** Script calls per second over 50 connections, each waiting for its answer, of 1000 clients within their limit. */
async function rate(redis: Redis, port: number): Promise<void> {
  const sha = (await redis.script('LOAD', CHARGE_SCRIPT)) as string
  const before = await processorUs(redis)
  const load = `-p ${port} -c 50 -n ${CALLS} -r 1000 --csv`.split(' ')
  const call = [
    'EVALSHA',
    sha,
    '1',
    '{rate-__rand_int__}',
    String(NO_DEADLINE),
    '1',
    '1000',
    String(WINDOW_US),
    '0',
  ]
  const args = ['-c', '0', 'redis-benchmark', ...load, ...call]
  const { stdout } = spawnSync('taskset', args, { encoding: 'utf8' })
  const perSecond = /","([\d.]+)"/.exec(stdout)?.[1]
  if (perSecond === undefined) throw new Error(`redis-benchmark said: ${stdout}`)
  const us = (await processorUs(redis)) - before
  console.log(`${'calls per second'.padEnd(40)} ${Math.round(Number(perSecond))}`)
  console.log(`${'processor time, sockets included'.padEnd(40)} ${(us / CALLS).toFixed(1)} us per call`)
}

try {
  need('redis-server', 'redis-benchmark', 'taskset')
  const port = await startRedis(1)
  const redis = new Redis({ port, host: '127.0.0.1', protocol: 2 })
  await cost(redis, 'admitted, 1000 per minute', 1000, 1000)
  await cost(redis, 'admitted, sixteen in one call', 1000, 1000, 16)
  await cost(redis, 'admitted, 5000 per minute', 5000, 1000)
  await cost(redis, 'refused', 1, 1000)
  await rate(redis, port)
  const sha = (await redis.script('LOAD', CHARGE_SCRIPT)) as string
  for (const calls of [1, 16, 20, 100, 500, 1000]) {
    const key = `sluice:{00000000-0000-4000-8000-${String(calls).padStart(12, '0')}}:requests`
    for (let i = 0; i < calls; i++) await redis.evalsha(sha, 1, key, NO_DEADLINE, 1, 1000, WINDOW_US, 0)
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
