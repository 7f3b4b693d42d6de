import type { Config } from '../config/schema.ts'
import { start } from '../start.ts'

/** The part of `drainTimeout` in which new requests are still taken after SIGTERM, until a load balancer sees the failing readiness. */
const LAME_DUCK_PART = 4
/** A signal this soon after another is the same one: npm passes on what the terminal has already sent. */
const ECHO_MS = 500

/**
 * Serves until SIGTERM or SIGINT, then drains and returns. A second signal ends the process at once, and so does an error that
 * nobody caught, since nothing is known of the state that it leaves.
 */
export async function runGateway(config: Config): Promise<void> {
  process.on('uncaughtException', (error) => {
    process.stderr.write(`sluice: uncaught: ${error.stack ?? error.message}\n`)
    process.exit(1)
  })
  const running = await start(config)
  const signal = await nextSignal()
  const signalledAt = performance.now()
  const again = (): void => {
    if (performance.now() - signalledAt > ECHO_MS) process.exit(1)
  }
  process.on('SIGTERM', again).on('SIGINT', again)
  // Ctrl-C is a person at a terminal, whom no load balancer needs time for.
  await running.close({ lameDuckMs: signal === 'SIGTERM' ? config.drainTimeoutMs / LAME_DUCK_PART : 0 })
}

function nextSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    process.once('SIGTERM', resolve).once('SIGINT', resolve)
  })
}
