import { availableParallelism } from 'node:os'
import { setInterval } from 'node:timers'
import { loadInThread } from '../config/load-thread.ts'
import type { InForce } from '../config/load.ts'
import { ConfigError } from '../config/yaml/issue.ts'
import { type Running, start } from '../process/start.ts'
import { type Args, textOf, wholeOf } from './args.ts'
import { loadOptionsOf } from './configuration.ts'
import { type Io, takeOver } from './io.ts'
import { assertTracingPackages } from './tracing-packages.ts'
import { createWatch } from './watch.ts'

/** A signal that follows another within this time is the same one: npm repeats what the terminal has already sent. */
const ECHO_MS = 500
/** Milliseconds between two polls of the files. A change is read after two, which is within a second. */
const POLL_MS = 400
const MAX_WORKERS = 256

/**
 * Serves until SIGTERM or SIGINT, then drains. Exits at once on a second signal, and on an uncaught
 * error, which leaves an unknown state.
 */
export async function run(args: Args, io: Io): Promise<void> {
  const isAuto = textOf(args, 'workers') === 'auto'
  const wanted = isAuto ? availableParallelism() : wholeOf(args, 'workers', MAX_WORKERS, 1)
  const options = loadOptionsOf(args, io)
  // Before the first await: without a listener, each of these signals would end the process.
  let running: Running | undefined
  io.on('SIGHUP', () => void running?.reload('signal')).on('SIGUSR2', () => void running?.switchLogLevel())
  // In place of the listeners of bin/sluice.ts, which end the process.
  const signalled = new Promise<NodeJS.Signals>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) takeOver(io, signal, resolve)
  })
  const loaded = await Promise.race([loadInThread(options), signalled])
  if (typeof loaded === 'string') return
  assertTracingPackages(loaded)
  const { config } = loaded
  const workers = isAuto && config.store === 'memory' ? 1 : wanted
  if (workers > 1 && config.store === 'memory') {
    const message = 'needs "store: { redis: … }", because "store: memory" counts in each process'
    throw new ConfigError([{ where: '--workers', path: '', message }])
  }
  const watch = createWatch(() => void running?.reload('file-change'))
  const load = async (before: InForce) => {
    const next = await loadInThread({ ...options, before })
    watch.set(next.files)
    return next
  }
  const started = await Promise.race([start(config, { ...loaded, load }, workers), signalled])
  if (typeof started === 'string') return
  running = started
  io.on('uncaughtException', (error) => {
    started.fatal(error)
    io.exit(1)
  })
  watch.set(loaded.files)
  const polling = setInterval(() => void watch.poll(), POLL_MS)
  const signal = await signalled
  const signalledAt = performance.now()
  const repeated = (): void => {
    if (performance.now() - signalledAt > ECHO_MS) io.exit(1)
  }
  clearInterval(polling)
  io.on('SIGTERM', repeated).on('SIGINT', repeated)
  // Ctrl-C comes from a person at a terminal: no load balancer needs time to notice the failing readiness.
  await running.close({ lameDuck: signal === 'SIGTERM' })
}
