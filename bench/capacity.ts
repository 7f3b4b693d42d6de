/** The capacity of a process: processor time of a call by kind, with Redis at a distance, and memory by callers. */
import { readdirSync, readFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { spawnSync } from 'node:child_process'
import { Redis } from 'ioredis'
import { freePort, LOAD_CPU, PROXY_CPU, serve, stop, usage } from './environment.ts'
import { openConnections, type Sender } from './exact-load.ts'
import { allKinds, callersKind, type Kind, kinds, limitedKinds } from './kinds.ts'
import { type Bench, spread } from './measure.ts'
import { redisUs } from './redis.ts'
import { markdown } from './report.ts'

const CALLS = 500
/** Calls of each kind before the first round: V8 compiles the hot path. */
const WARM_UP_CALLS = 3000
const ROUND_TRIPS_MS = [0, 0.5, 2]
const CALLERS = [1000, 10_000, 100_000]
const CALLS_OF_CALLERS = 100_000
/** Requests that are made at once: their texts take memory. */
const BATCH = 5000
/** The part of a core that a plan may use: the rest is for bursts, reloads and garbage collection. */
const PLANNED = 0.6

interface Gateway {
  readonly name: string
  readonly callers: Sender
  readonly pid: number
  end(): Promise<void>
}

/** Starts Sluice with a Redis that is `roundTripMs` away. */
async function start(bench: Bench, roundTripMs = 0): Promise<Gateway> {
  const distance = roundTripMs === 0 ? undefined : await startDistance(bench, roundTripMs)
  const port = await freePort()
  const child = await serve(PROXY_CPU, port, await allKinds(bench, distance?.port)(port))
  const callers = await openConnections(port)
  const end = async (): Promise<void> => {
    callers.close()
    await stop(child)
    if (distance !== undefined) await stop(distance.child)
  }
  return { name: distance?.name ?? 'on this machine', callers, pid: child.pid!, end }
}

/** Starts a proxy that delays what Redis and its clients send, and measures its round trip. */
async function startDistance({ redis }: Bench, roundTripMs: number) {
  const port = await freePort()
  const script = new URL('far-redis.mjs', import.meta.url).pathname
  const child = await serve(LOAD_CPU, port, {
    command: process.execPath,
    args: [script, String(redis), String(roundTripMs)],
    env: { PORT: String(port) },
  })
  const client = new Redis({ port, host: '127.0.0.1' })
  const pings: number[] = []
  while (pings.length < 200) {
    const sentAt = performance.now()
    await client.ping()
    pings.push(performance.now() - sentAt)
  }
  client.disconnect()
  const { median } = spread(pings)
  if (median < roundTripMs) throw new Error(`a PING takes only ${median} ms`)
  return { port, child, name: `${roundTripMs} ms away (a PING: ${median.toFixed(2)} ms)` }
}

/** Microseconds of processor time that all threads of a process have used, user and system. */
function processorUs(pid: number): number {
  const tasks = readdirSync(`/proc/${pid}/task`)
  const ns = tasks.map((task) =>
    Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]),
  )
  return ns.reduce((sum, each) => sum + each, 0) / 1000
}

/** Figures of one kind of call at one gateway, a value for each round. */
interface Measured {
  readonly kind: Kind
  readonly gateway: Gateway
  readonly gatewayUs: number[]
  readonly redisUs: number[]
}

/** Sends calls of a kind, and adds the processor time of each to the figures. */
async function round(bench: Bench, { kind, gateway, ...figures }: Measured): Promise<void> {
  const requests = await kind.requests(CALLS)
  const before = { own: processorUs(gateway.pid), redis: (await redisUs(bench)).processor }
  await gateway.callers.sendAll(requests, kind.status ?? 200, kind.connections)
  figures.gatewayUs.push((processorUs(gateway.pid) - before.own) / CALLS)
  figures.redisUs.push(((await redisUs(bench)).processor - before.redis) / CALLS)
}

async function warmUp({ kind, gateway }: Measured): Promise<void> {
  if (kind.admittedFirst !== undefined)
    await gateway.callers.sendAll(await kind.requests(kind.admittedFirst), 200)
  await gateway.callers.sendAll(await kind.requests(WARM_UP_CALLS), kind.status ?? 200)
}

/** Measures each kind at each gateway in interleaved rounds. */
async function interleaved(bench: Bench, measured: readonly Measured[]): Promise<void> {
  spawnSync('taskset', ['--all-tasks', '--cpu-list', '--pid', String(LOAD_CPU), String(process.pid)])
  for (const each of measured) await warmUp(each)
  for (let i = 0; i < bench.rounds; i++) {
    for (let j = 0; j < measured.length; j++) await round(bench, measured[(i + j) % measured.length]!)
    console.error(`  round ${i + 1} of ${bench.rounds}`)
  }
}

const pair = (kind: Kind, gateway: Gateway): Measured => ({ kind, gateway, gatewayUs: [], redisUs: [] })

function show(values: readonly number[]): string {
  const { median, min, max } = spread(values)
  return `${median.toFixed(0)} (${min.toFixed(0)}..${max.toFixed(0)})`
}

/** Calls a second in the planned part of a core, to the nearest hundred. */
const perSecond = (us: readonly number[]): string =>
  String(Math.round((PLANNED * 1e4) / Math.round(spread(us).median)) * 100)

const legend = (bench: Bench): string =>
  `Microseconds of processor time, user and system, of a call; median (min..max) of ${bench.rounds} interleaved rounds of ` +
  `${CALLS} calls over 50 connections; ${cpus().length} × ${cpus()[0]!.model}, Node ${process.versions.node}.`

/** Processor time of a call, by kind. */
export async function capacity(bench: Bench): Promise<string> {
  const gateway = await start(bench)
  const measured = (await kinds()).map((kind) => pair(kind, gateway))
  await interleaved(bench, measured)
  await gateway.end()
  const lines = measured.map(({ kind, ...us }) => [
    ...[kind.title, show(us.gatewayUs), show(us.redisUs)],
    perSecond(us.gatewayUs),
  ])
  const header = ['call', 'us of a process', 'us of Redis', `calls/s at ${PLANNED * 100} % of a core`]
  return `${markdown(header, lines)}\n\n${legend(bench)}`
}

/** Processor time of a call with Redis at several distances. */
export async function distance(bench: Bench): Promise<string> {
  const gateways: Gateway[] = []
  for (const roundTripMs of ROUND_TRIPS_MS) gateways.push(await start(bench, roundTripMs))
  const measured = (await limitedKinds()).flatMap((kind) => gateways.map((gateway) => pair(kind, gateway)))
  await interleaved(bench, measured)
  for (const gateway of gateways) await gateway.end()
  const lines = measured.map(({ kind, gateway, ...us }) => [
    ...[kind.title, gateway.name, show(us.gatewayUs), show(us.redisUs)],
  ])
  return `${markdown(['call', 'Redis', 'us of a process', 'us of Redis'], lines, 2)}\n\n${legend(bench)}`
}

/** Memory of a process after calls of many callers, each with a token and a counter. */
export async function callers(bench: Bench): Promise<string> {
  const lines: string[][] = []
  for (const count of CALLERS) {
    await bench.store.flushall()
    const kind = await callersKind(count)
    const gateway = await start(bench)
    const idle = usage(gateway.pid).rssMb
    for (let sent = 0; sent < CALLS_OF_CALLERS; sent += BATCH)
      await gateway.callers.sendAll(await kind.requests(BATCH), 200)
    const info = await bench.store.info('memory')
    lines.push([
      ...[count.toLocaleString('en'), idle.toFixed(0), usage(gateway.pid).rssMb.toFixed(0)],
      ...[peakMb(gateway.pid).toFixed(0), (Number(/^used_memory:(\d+)/m.exec(info)![1]) / 1e6).toFixed(1)],
    ])
    await gateway.end()
    console.error(`  ${count} callers`)
  }
  const header = ['callers', 'MB at start', `MB after ${CALLS_OF_CALLERS.toLocaleString('en')} calls`]
  return `${markdown([...header, 'MB at most', 'MB of Redis'], lines)}\n\nNode ${process.versions.node}.`
}

/** The greatest resident memory of a process so far, in MB. */
function peakMb(pid: number): number {
  return Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024
}
