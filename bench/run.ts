/**
 * Sluice with reused tokens and Redis, side by side with bare http-proxy: `npm run bench [-- --rounds N --seconds S --soak S]`.
 * Proxy on one CPU; nginx, Redis and wrk on another. Both run all the time and are asked in turn, in many short rounds: what else the
 * machine does falls on both alike, and the ratio is taken within each round.
 */
import { type ChildProcess, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import {
  AUDIENCE,
  cleanUp,
  folder,
  freePort,
  ISSUER,
  type Load,
  mintTokens,
  need,
  run,
  sleep,
  startNginx,
  startRedis,
  stop,
  usage,
  wrk,
} from './ground.ts'

const PROXY_CPU = 0
const LOAD_CPU = 1
const CONNECTIONS = 50
/** In which the functions that every request runs are compiled. */
const WARM_UP_S = 4

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '15' },
    seconds: { type: 'string', default: '2' },
    soak: { type: 'string', default: '60' },
    algorithm: { type: 'string', default: 'RS256' },
  },
})
const rounds = Number(values.rounds)
const seconds = Number(values.seconds)

interface Contender {
  readonly child: ChildProcess
  readonly port: number
}

interface Round extends Load {
  readonly cpuUs: number
  readonly rssMb: number
}

try {
  need('taskset', 'wrk', 'nginx', 'redis-server')
  const upstream = await startNginx(LOAD_CPU)
  const redis = await startRedis(LOAD_CPU)
  const { jwks, tokens } = await mintTokens(values.algorithm, 1000)
  const config = join(folder, 'sluice.yaml')
  writeFileSync(
    config,
    `admin: { port: ${await freePort()} }
store: { redis: { url: "redis://127.0.0.1:${redis}" } }
upstreams: { data: { url: "http://127.0.0.1:${upstream}" } }
tokens: { issuer: "${ISSUER}", audience: "${AUDIENCE}", jwks: "${jwks}" }
limits: { requests: { per: [client], limit: 1000, window: 1m } }
routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [requests] }]
`,
  )

  const contenders: Record<string, (port: number) => string[]> = {
    'http-proxy': (port) => [
      '--import',
      'tsx',
      new URL('http-proxy.ts', import.meta.url).pathname,
      String(port),
      `http://127.0.0.1:${upstream}`,
    ],
    // As the container image starts it.
    sluice: (port) => [
      '--max-semi-space-size=8',
      'dist/bin/sluice.js',
      'start',
      '--config',
      config,
      '--host',
      '127.0.0.1',
      '--port',
      String(port),
    ],
  }

  const start = async (name: string): Promise<Contender> => {
    const port = await freePort()
    const child = await run(PROXY_CPU, port, process.execPath, contenders[name]!(port))
    await sleep(500)
    wrk(LOAD_CPU, port, WARM_UP_S, CONNECTIONS, tokens)
    return { child, port }
  }
  const round = ({ child, port }: Contender, forSeconds: number): Round => {
    // Nobody is refused: each client begins anew.
    spawnSync('redis-cli', ['-p', String(redis), 'flushall'])
    const before = usage(child.pid!)
    const load = wrk(LOAD_CPU, port, forSeconds, CONNECTIONS, tokens)
    const after = usage(child.pid!)
    const cpuUs = ((after.cpuS - before.cpuS) / (load.rps * forSeconds)) * 1e6
    return { ...load, cpuUs, rssMb: after.rssMb }
  }

  const proxy = await start('http-proxy')
  const gateway = await start('sluice')
  const results: { bare: Round; sluice: Round }[] = []
  for (let i = 1; i <= rounds; i++) {
    // Neither is always the first.
    const first = i % 2 === 0 ? round(gateway, seconds) : undefined
    const bare = round(proxy, seconds)
    const sluice = first ?? round(gateway, seconds)
    results.push({ bare, sluice })
    console.log(
      `round ${i}: http-proxy ${show(bare)} | sluice ${show(sluice)} | ratio ${(sluice.rps / bare.rps).toFixed(2)}`,
    )
  }
  await stop(proxy.child)
  await stop(gateway.child)
  const middle = (of: (one: (typeof results)[number]) => number): string => {
    const sorted = results.map(of).toSorted((a, b) => a - b)
    return `${sorted[Math.floor(sorted.length / 2)]!.toFixed(2)} (${sorted[0]!.toFixed(2)}..${sorted.at(-1)!.toFixed(2)})`
  }
  console.log(
    `\nsluice / http-proxy, median (min..max) of ${rounds} rounds of ${seconds} s at ${CONNECTIONS} connections:`,
  )
  console.log(`  requests per second  ${middle(({ bare, sluice }) => sluice.rps / bare.rps)}`)
  console.log(`  cpu per request      ${middle(({ bare, sluice }) => sluice.cpuUs / bare.cpuUs)}`)
  console.log(`  p50                  ${middle(({ bare, sluice }) => sluice.p50Us / bare.p50Us)}`)
  console.log(`  p99                  ${middle(({ bare, sluice }) => sluice.p99Us / bare.p99Us)}`)

  const soak = Number(values.soak)
  if (soak > 0) {
    // More calls than the limits allow: 429s are part of a minute's work.
    for (const name of ['http-proxy', 'sluice']) {
      const { rssMb } = round(await start(name), soak)
      console.log(`  resident memory of ${name} after ${soak} s: ${rssMb.toFixed(0)} MB`)
    }
  }
} catch (error) {
  console.error(`bench: ${(error as Error).message}`)
  process.exitCode = 1
} finally {
  cleanUp()
}

function show({ rps, p99Us, rssMb, failed }: Round): string {
  return `${rps.toFixed(0)}/s p99 ${(p99Us / 1000).toFixed(1)} ms ${rssMb.toFixed(0)} MB${failed > 0 ? ` ${failed} FAILED` : ''}`
}
