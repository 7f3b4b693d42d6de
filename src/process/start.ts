import { createAdmin } from '../admin/server.ts'
import type { Config } from '../config/schema.ts'
import { drain } from '../downstream/drain.ts'
import { listen } from '../downstream/server.ts'
import { createLog } from '../observe/log.ts'
import { createMetrics } from '../observe/metrics.ts'
import { createReload, type Occasion, type Source } from './reload.ts'
import { serve } from './build.ts'
import type { Service } from './workers/service.ts'
import { openWorkers } from './workers/pool.ts'

/** A gateway that serves. */
export interface Running {
  /** Where callers are served, such as `http://127.0.0.1:8080`. */
  readonly address: string
  /** Where operators look. */
  readonly adminAddress: string
  /**
   * Reads the configuration again, for every request from then on; requests under way end with the old one, and counters
   * stay. A bad one changes nothing. Never rejects.
   */
  reload(occasion: Occasion): Promise<void>
  /** Tells an error that nobody caught, as the last line of the log. */
  fatal(error: Error): void
  /** Readiness fails, requests under way end within `drainTimeout`, then everything is closed. */
  close(options?: CloseOptions): Promise<void>
}

export interface StartOptions {
  /** How to read the configuration again; without one, it never changes. */
  readonly source?: Source | undefined
  /** Processes that share the callers' port; one is this process itself. */
  readonly workers?: number
}

export interface CloseOptions {
  /** Are new requests still taken for a part of `drainTimeout`, so that a load balancer can see the failing readiness? */
  readonly lameDuck?: boolean
}

/** The part of `drainTimeout` in which new requests are still taken. */
const LAME_DUCK_PART = 4

/** Most warnings of one configuration that are logged: each of 10,000 clients may give one. */
const MOST_WARNINGS = 100

/** Opens the operators' port, then the callers'. Rejects with words for the operator. */
export async function start(config: Config, { source, workers = 1 }: StartOptions = {}): Promise<Running> {
  const output = await createLog(
    config.log.level,
    config.log.format ?? (process.stdout.isTTY ? 'pretty' : 'json'),
  )
  const { log } = output
  const metrics = createMetrics()
  const warn = ({ warnings }: Config): void => {
    for (const { where, path, message } of warnings.slice(0, MOST_WARNINGS)) {
      log.warn({ where, path }, message)
    }
    const more = warnings.length - MOST_WARNINGS
    if (more > 0) log.warn({ more }, 'there are more warnings; "sluice check" tells them all')
  }
  /** Until it serves, and from when it drains, there is nobody to be asked. */
  let service: Service | undefined
  let draining = false
  const asked = (): Service => {
    if (service === undefined) throw new Error('the gateway does not serve yet')
    return service
  }

  const admin = createAdmin({
    unready: () => {
      if (draining) return 'the gateway drains'
      return service === undefined ? 'the gateway does not serve yet' : service.unready()
    },
    metrics: () => (service === undefined ? metrics.text() : service.metrics()),
    metricsType: metrics.contentType,
    token: config.admin.token,
    onLoopback: config.admin.onLoopback,
    usage: async (client, signal) => await asked().usage(client, signal),
    async reset(client, signal) {
      const freed = await asked()
        .reset(client, signal)
        .catch((error: Error) => {
          log.warn({ client, cause: error.message }, 'an operator freed a client in part')
          throw error
        })
      log.info({ client, freed }, 'an operator freed a client')
      return freed
    },
    failed: (error) => log.warn({ cause: (error as Error).message }, 'the counters could not be read'),
  })

  try {
    const adminAddress = await listen(admin, config.admin.host, config.admin.port, 'admin')
    warn(config)
    const opened =
      workers === 1 ? serve(config, output, metrics) : openWorkers(workers, config, output, metrics)
    const { address } = (service = await opened)
    if (workers === 1) metrics.workers.set(1)
    const several = workers === 1 ? undefined : workers
    log.info({ address, adminAddress, workers: several, loadMs: source?.loadMs }, 'sluice serves')

    let { drainTimeoutMs } = config
    const reload =
      source &&
      createReload({
        config,
        source,
        async apply(next) {
          await service!.apply(next)
          ;({ drainTimeoutMs } = next)
          warn(next)
        },
        log,
        metrics,
      })

    let closing: Promise<void> | undefined
    const close = async (lameDuckMs: number): Promise<void> => {
      draining = true
      log.info('sluice drains')
      const cut = await service!.close({ lameDuckMs, drainTimeoutMs })
      if (cut > 0) log.warn({ requests: cut }, 'requests were cut at the end of drainTimeout')
      await drain(admin, 0)
      log.info('sluice stopped')
      await output.close()
    }
    return {
      address,
      adminAddress,
      reload: async (occasion) => await reload?.(occasion),
      fatal({ stack, message }) {
        const cause = stack ?? message
        log.fatal({ cause }, 'sluice ends of an error that nobody caught')
        if (!log.isLevelEnabled('fatal')) process.stderr.write(`sluice: uncaught: ${cause}\n`)
      },
      close: ({ lameDuck = false } = {}) =>
        (closing ??= close(lameDuck ? drainTimeoutMs / LAME_DUCK_PART : 0)),
    }
  } catch (error) {
    admin.close()
    await output.close()
    throw error
  }
}
