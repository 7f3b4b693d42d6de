import { unwatchFile, watchFile } from 'node:fs'
import { ConfigError, type Loaded } from '../config/load.ts'
import { start } from '../start.ts'

/** How often the file is looked at. */
const WATCH_MS = 1000
/** A signal this soon after another is the same one: npm passes on what the terminal has already sent. */
const ECHO_MS = 500

/**
 * Serves until SIGTERM or SIGINT, then drains and returns; reads the configuration again on SIGHUP and when its file changes.
 * A second signal ends the process at once, and so does an error that nobody caught, since nothing is known of the state
 * that it leaves.
 */
export async function runGateway(load: () => Promise<Loaded>, workers = 1): Promise<void> {
  const { config, file, hash } = await load()
  if (workers > 1 && config.store === 'memory') throw countedApart(workers)
  const running = await start(config, { source: { hash, load }, workers })
  process.on('uncaughtException', (error) => {
    running.fatal(error)
    process.exit(1)
  })
  process.on('SIGHUP', () => void running.reload('asked'))
  // By its times and inode, which also sees the symbolic links of a ConfigMap change.
  if (file !== '-') {
    watchFile(file, { interval: WATCH_MS }, () => void running.reload('changed'))
    // It may have changed since it was read.
    void running.reload('changed')
  }
  const signal = await nextSignal()
  const signalledAt = performance.now()
  const again = (): void => {
    if (performance.now() - signalledAt > ECHO_MS) process.exit(1)
  }
  unwatchFile(file)
  process.on('SIGTERM', again).on('SIGINT', again)
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
