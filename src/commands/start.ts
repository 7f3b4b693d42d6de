import type { Config } from '../config/schema.ts'
import { start } from '../start.ts'

/** The part of `drainTimeout` in which new requests are still taken after SIGTERM, until a load balancer sees the failing readiness. */
const LAME_DUCK_PART = 4

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
  process.once('SIGTERM', exitNow).once('SIGINT', exitNow)
  // Ctrl-C is a person at a terminal, whom no load balancer needs time for.
  await running.close({ lameDuckMs: signal === 'SIGTERM' ? config.drainTimeoutMs / LAME_DUCK_PART : 0 })
}

function nextSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    process.once('SIGTERM', resolve).once('SIGINT', resolve)
  })
}

function exitNow(): never {
  process.exit(1)
}
