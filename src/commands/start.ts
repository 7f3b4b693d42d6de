import type { LoadOptions } from '../config/load.ts'
import { type LoadedInThread, loadInThread } from '../config/load-thread.ts'
import { ConfigError } from '../config/yaml/problem.ts'
import { type Running, start } from '../process/start.ts'
import { createWatch } from './watch.ts'

/** A signal this soon after another is the same one: npm passes on what the terminal has already sent. */
const ECHO_MS = 500

/**
 * Serves until SIGTERM or SIGINT, then drains and returns; reads the configuration again on SIGHUP and when its file changes,
 * or a certificate that it names.
 * A second signal ends the process at once, and so does an error that nobody caught, since nothing is known of the state
 * that it leaves.
 */
export async function runGateway(options: LoadOptions, workers = 1): Promise<void> {
  // From now on, so that none of them means what it means to a process that does not listen to it.
  let running: Running | undefined
  process.on('SIGHUP', () => void running?.reload('asked'))
  const signalled = nextSignal()
  const loaded = await Promise.race([loadInThread(options), signalled])
  // Nobody is served yet.
  if (typeof loaded === 'string') process.exit(0)
  const { config } = loaded
  if (workers > 1 && config.store === 'memory') throw countedApart(workers)
  const watch = createWatch(() => void running?.reload('changed'))
  const follow = ({ file, certificates }: LoadedInThread): void =>
    watch.follow(file === '-' ? certificates : [file, ...certificates])
  const load = async (): Promise<LoadedInThread> => {
    const loaded = await loadInThread(options)
    follow(loaded)
    return loaded
  }
  const opened = start(config, { source: { ...loaded, load }, workers })
  const first = await Promise.race([opened, signalled])
  if (typeof first === 'string') return
  running = first
  process.on('uncaughtException', (error) => {
    first.fatal(error)
    process.exit(1)
  })
  follow(loaded)
  // They may have changed since they were read.
  void running.reload('changed')
  const signal = await signalled
  const signalledAt = performance.now()
  const repeated = (): void => {
    if (performance.now() - signalledAt > ECHO_MS) process.exit(1)
  }
  watch.follow([])
  process.on('SIGTERM', repeated).on('SIGINT', repeated)
  // Ctrl-C is a person at a terminal, whom no load balancer needs time for.
  await running.close({ lameDuck: signal === 'SIGTERM' })
}

function countedApart(workers: number): ConfigError {
  const message = `is ${workers}, but "store: memory" counts in each process alone, so each would grant every limit anew; write "store: { redis: … }", or leave --workers out`
  return new ConfigError([{ where: '--workers', path: '', message }])
}

function nextSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    process.once('SIGTERM', resolve).once('SIGINT', resolve)
  })
}
