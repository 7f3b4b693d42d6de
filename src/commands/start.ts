import { unwatchFile, watchFile } from 'node:fs'
import { stat } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { loadInThread } from '../config/load-thread.ts'
import { ConfigError } from '../config/yaml/issue.ts'
import { type Running, start } from '../process/start.ts'
import { type Args, type Io, loadOptionsOf, wholeOf } from './io.ts'
import { assertTracingPackages } from './tracing-packages.ts'

/** A signal that follows another within this time is the same one: npm repeats what the terminal has already sent. */
const ECHO_MS = 500
const WATCH = { interval: 1000 }
const MAX_WORKERS = 256

/**
 * Serves until SIGTERM or SIGINT, then drains. Exits at once on a second signal, and on an uncaught
 * error, which leaves an unknown state.
 */
export async function run(args: Args, io: Io): Promise<void> {
  const isAuto = args['workers'] === 'auto'
  const wanted = isAuto ? availableParallelism() : wholeOf(args, 'workers', MAX_WORKERS, 1)
  const options = loadOptionsOf(args, io)
  // Before the first await: without a listener, each of these signals would end the process.
  let running: Running | undefined
  io.on('SIGHUP', () => void running?.reload('signal')).on('SIGUSR2', () => void running?.switchLogLevel())
  const signalled = new Promise<NodeJS.Signals>((resolve) => {
    io.once('SIGTERM', resolve).once('SIGINT', resolve)
  })
  const read = await stampOf(options.file)
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
  const load = async (before: string) => {
    const next = await loadInThread({ ...options, before })
    watch([options.file, ...next.files])
    return next
  }
  const started = await Promise.race([start(config, { ...loaded, load }, workers), signalled])
  if (typeof started === 'string') return
  running = started
  io.on('uncaughtException', (error) => {
    started.fatal(error)
    io.exit(1)
  })
  watch([options.file, ...loaded.files])
  // A change since the files were read. The times of the others before that are not known.
  if (loaded.files.length > 0 || (await stampOf(options.file)) !== read) void running.reload('file-change')
  const signal = await signalled
  const signalledAt = performance.now()
  const repeated = (): void => {
    if (performance.now() - signalledAt > ECHO_MS) io.exit(1)
  }
  watch([])
  io.on('SIGTERM', repeated).on('SIGINT', repeated)
  // Ctrl-C comes from a person at a terminal: no load balancer needs time to notice the failing readiness.
  await running.close({ lameDuck: signal === 'SIGTERM' })
}

/** Resolves with the time of the last change of a file, also behind symbolic links; undefined if there is no file. */
const stampOf = async (file: string) => (await stat(file).catch(() => undefined))?.ctimeMs

/**
 * Returns a function that sets the watched files. Compares times and inodes, which also change
 * behind symbolic links (ConfigMaps, Secrets).
 */
function createWatch(onChange: () => void): (files: readonly string[]) => void {
  let watched: readonly string[] = []
  return (files) => {
    for (const file of watched) if (!files.includes(file)) unwatchFile(file, onChange)
    for (const file of files) if (!watched.includes(file)) watchFile(file, WATCH, onChange)
    watched = files
  }
}
