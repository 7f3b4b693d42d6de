/** Reconnections of a fleet to a Redis with TLS that stalled, or restarted without its data. */
import { type ChildProcess, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type FallbackStore, withFallback } from '../src/limit/fallback/store.ts'
import { createRedisStore } from '../src/limit/redis/store.ts'
import { folder, freePort, LOAD_CPU, requireCommands, serve, sleep, stop, usage } from './environment.ts'
import { markdown } from './report.ts'

const FLEETS = [500, 2000]
/** Gateways that connect together at first. */
const TOGETHER = 50
/** Time for which Redis stays silent after the last gateway has noticed it. */
const STALL_MS = 1500
const MAX_S = 30

const [cert, key] = [join(folder, 'tls.pem'), join(folder, 'tls.key')]

/** Writes a certificate with an RSA key of 2048 bits. */
function writeCertificate(): void {
  const subject = '-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -days 1'
  const args = `req -x509 -newkey rsa:2048 -nodes ${subject} -out ${cert} -keyout ${key}`
  if (spawnSync('openssl', args.split(' ')).status !== 0) throw new Error('openssl wrote no certificate')
}

/** Starts a Redis that accepts only TLS. */
async function startTlsRedis(port: number): Promise<ChildProcess> {
  const tls = `--tls-port ${port} --tls-cert-file ${cert} --tls-key-file ${key} --tls-auth-clients no`
  const args = `--port 0 ${tls} --bind 127.0.0.1 --save  --appendonly no --dir ${folder}`.split(' ')
  return await serve(LOAD_CPU, port, { command: 'redis-server', args })
}

/** Opens the stores of as many gateways, some at a time. */
async function openFleet(port: number, count: number): Promise<readonly FallbackStore[]> {
  const tls = { ca: readFileSync(cert, 'utf8') }
  const topology = { url: `rediss://127.0.0.1:${port}` }
  const stores: FallbackStore[] = []
  while (stores.length < count) {
    const opened = Array.from({ length: TOGETHER }, () =>
      createRedisStore({ topology, tls, prefix: 'fleet', timeoutMs: 100 }),
    )
    await Promise.all(opened.map((store) => store.connect()))
    stores.push(...opened.map((store) => withFallback(store, { onOutage: 'local' })))
  }
  return stores
}

/** Resolves with the seconds until `count` gateways decide by Redis; at most `MAX_S`. */
async function secondsUntil(stores: readonly FallbackStore[], count: number): Promise<number> {
  const startedAt = performance.now()
  const seconds = (): number => (performance.now() - startedAt) / 1000
  const withRedis = (): number => stores.filter((store) => store.mode() === 'store').length
  while (count === 0 ? withRedis() > 0 : withRedis() < count) {
    if (seconds() > MAX_S) return Infinity
    await sleep(50)
  }
  return seconds()
}

const show = (seconds: number): string => (seconds > MAX_S ? `over ${MAX_S} s` : `${seconds.toFixed(1)} s`)

async function rowOf(count: number): Promise<readonly string[]> {
  const port = await freePort()
  let redis = await startTlsRedis(port)
  const stores = await openFleet(port, count)
  await secondsUntil(stores, count)
  await sleep(2000)
  const idleS = usage(redis.pid!).cpuS
  await sleep(2000)
  const idle = (usage(redis.pid!).cpuS - idleS) / 2

  redis.kill('SIGSTOP')
  await secondsUntil(stores, 0)
  await sleep(STALL_MS)
  const stalledS = usage(redis.pid!).cpuS
  redis.kill('SIGCONT')
  const found = await secondsUntil(stores, count)
  const stallS = usage(redis.pid!).cpuS - stalledS

  await stop(redis)
  await secondsUntil(stores, 0)
  redis = await startTlsRedis(port)
  const again = await secondsUntil(stores, count)
  const restartS = usage(redis.pid!).cpuS
  await Promise.all(stores.map((store) => store.close()))
  await stop(redis)
  return [
    String(count),
    `${(idle * 100).toFixed(0)} %`,
    ...[show(found), show(stallS), show(again), show(restartS)],
  ]
}

export async function fleet(): Promise<string> {
  requireCommands('openssl')
  writeCertificate()
  const lines: (readonly string[])[] = []
  for (const count of FLEETS) lines.push(await rowOf(count))
  const stall = `all decide by Redis after a stall`
  return markdown(
    ['gateways', "Redis's core, idle", stall, 'processor of Redis', 'after a restart', 'processor of Redis'],
    lines,
  )
}
