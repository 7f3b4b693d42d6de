import { unwatchFile, watchFile } from 'node:fs'
import { loadInThread } from '../config/load-thread.ts'
import { ConfigError } from '../config/yaml/issue.ts'
import { type Running, start } from '../process/start.ts'
import { usableCores } from '../process/workers/pool.ts'
import { type Args, type Io, loadOptionsOf, wholeOf } from './io.ts'

/** A signal this soon after another is the same one: npm repeats what the terminal has already sent. */
const ECHO_MS = 500
/** Time between two checks of a watched file. */
const WATCH_MS = 1000
const MOST_WORKERS = 256

/**
 * Serves until SIGTERM or SIGINT, then drains and returns. Reloads on SIGHUP and when the file or a certificate changes;
 * SIGUSR2 switches the log level to debug and back. A second signal ends the process at once, and so does an uncaught error, since the state that it leaves is unknown.
 */
export async function run(args: Args, io: Io): Promise<void> {
  const isAuto = args['workers'] === 'auto'
  const asked = isAuto
    ? Math.min(usableCores(), MOST_WORKERS)
    : wholeOf(args, 'workers', MOST_WORKERS, 1, ', or auto')
  const options = loadOptionsOf(args, io)
  // Before anything is awaited: without a listener, each of these signals would end the process.
  let running: Running | undefined
  io.on('SIGHUP', () => void running?.reload('signal')).on('SIGUSR2', () => void running?.switchLogLevel())
  const signalled = new Promise<NodeJS.Signals>((resolve) => {
    io.once('SIGTERM', resolve).once('SIGINT', resolve)
  })
  const loaded = await Promise.race([loadInThread(options), signalled])
  if (typeof loaded === 'string') return
  const { config } = loaded
  const workers = isAuto && config.store === 'memory' ? 1 : asked
  if (workers > 1 && config.store === 'memory') {
    const message = `is ${workers}, but "store: memory" counts in each process alone; write "store: { redis: … }", or leave --workers out`
    throw new ConfigError([{ where: '--workers', path: '', message }])
  }
  const watch = createWatch(() => void running?.reload('file-change'))
  const follow = ({ file, certificates }: typeof loaded): void =>
    watch(file === '-' ? certificates : [file, ...certificates])
  const load = async (before: string) => {
    const loaded = await loadInThread({ ...options, before })
    follow(loaded)
    return loaded
  }
  const first = await Promise.race([start(config, { source: { ...loaded, load }, workers }), signalled])
  if (typeof first === 'string') return
  running = first
  io.on('uncaughtException', (error) => {
    first.fatal(error)
    io.exit(1)
  })
  follow(loaded)
  // The files may have changed since they were read.
  void running.reload('file-change')
  const signal = await signalled
  const signalledAt = performance.now()
  const repeated = (): void => {
    if (performance.now() - signalledAt > ECHO_MS) io.exit(1)
  }
  watch([])
  io.on('SIGTERM', repeated).on('SIGINT', repeated)
  // Ctrl-C comes from a person at a terminal: no load balancer needs time to see the failing readiness.
  await running.close({ lameDuck: signal === 'SIGTERM' })
}

/** Returns a function that watches the given files alone. It compares times and inodes, which symbolic links change, too (ConfigMaps, Secrets). */
function createWatch(onChange: () => void): (files: readonly string[]) => void {
  let watched: readonly string[] = []
  return (files) => {
    for (const file of watched) if (!files.includes(file)) unwatchFile(file, onChange)
    for (const file of files) if (!watched.includes(file)) watchFile(file, { interval: WATCH_MS }, onChange)
    watched = files
  }
}
