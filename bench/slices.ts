/** Figures of calls of many clients, each with a counter in Redis. */
import { CHARGE_SCRIPT } from '../src/limit/redis/scripts.ts'
import { gateway } from './contenders.ts'
import { stop } from './environment.ts'
import { apiKey } from './load.ts'
import { type Bench, measure, type Round, run, type Running, spread } from './measure.ts'
import { decide, redisUs } from './redis.ts'
import { markdown, showSpread } from './report.ts'

const SLICES = [10_000, 100_000, 1_000_000, 10_000_000]
const WARM_UP_S = 8
/** An hour, so that no counter expires while the calls are measured. */
const WINDOW_S = 3600
const FILLING = { together: 16, rule: `1 1000 ${WINDOW_S * 1e6} 0` }
/** Maximum keys of a gateway in addition to its counters. */
const OWN_KEYS = 10

/**
 * Measures the calls of random clients of each slice. Before, the script of the gateway makes a
 * counter of each client, with one call, but without the gateway, which would take an hour.
 */
export async function slices(bench: Bench): Promise<string> {
  const lines: (readonly string[])[] = []
  for (const clients of SLICES) {
    console.error(`  ${clients} clients`)
    await bench.store.flushall()
    const start = gateway(bench, { apiKeys: true, windowS: WINDOW_S })
    const running = await run({ name: 'Sluice', work: { clients }, keepsCounters: true, start })
    await decide(bench, CHARGE_SCRIPT, { ...FILLING, count: clients }, (client) => [
      `sluice-${running.port}:{${apiKey(client)}}:limit-0`,
    ])
    lines.push([clients.toLocaleString('en'), ...(await measureSlice(bench, running))])
    await stop(running.child)
    const excess = (await bench.store.dbsize()) - clients
    if (excess < 0 || excess > OWN_KEYS) throw new Error(`${clients} clients and ${excess} further keys`)
  }
  const ofRedis = ['MB of Redis', 'us in the script', "us of Redis's processor"]
  return markdown(['clients', ...ofRedis, 'MB', 'requests/s', 'us a request', 'p99 in ms'], lines)
}

async function measureSlice(bench: Bench, running: Running): Promise<readonly string[]> {
  await measure(bench, running, WARM_UP_S)
  const before = await redisUs(bench)
  const rounds: Round[] = []
  while (rounds.length < bench.rounds) rounds.push(await measure(bench, running, bench.seconds))
  const after = await redisUs(bench)
  const info = await bench.store.info('memory')
  if (rounds.some(({ wrong }) => wrong > 0)) throw new Error('wrong answers')
  const calls = rounds.reduce((sum, { requests }) => sum + requests, 0)
  const of = (figure: (round: Round) => number) => spread(rounds.map(figure))
  return [
    (Number(/^used_memory:(\d+)/m.exec(info)![1]) / 1e6).toFixed(0),
    ((after.scripts - before.scripts) / calls).toFixed(1),
    ((after.processor - before.processor) / calls).toFixed(1),
    of(({ rssMb }) => rssMb).max.toFixed(0),
    of(({ rps }) => rps).median.toFixed(0),
    of(({ cpuUs }) => cpuUs).median.toFixed(1),
    showSpread(of(({ p99Us }) => p99Us / 1000)),
  ]
}
