import { createAdmin } from '../admin/server.ts'
import type { Config } from '../config/schema.ts'
import { drain } from '../downstream/drain.ts'
import { listen } from '../downstream/server.ts'
import { NO_ACTIVITY } from '../observe/activity/values.ts'
import { createLog } from '../observe/log.ts'
import { createMetrics } from '../observe/metrics.ts'
import { VERSION } from '../observe/version.ts'
import { createOverview } from './overview.ts'
import { buildService, type OperatorApi } from './service.ts'
import { createReload, type ReloadRecord, type ReloadTrigger, type Source } from './reload.ts'
import { openWorkers } from './workers/pool.ts'

export interface Running {
  /** Where callers are served, such as `http://127.0.0.1:8080`. */
  readonly address: string
  /** Where operators are served. */
  readonly adminAddress: string
  /** Loads the configuration again; requests in flight end with the old one. A bad one changes nothing. Never rejects. */
  reload(trigger: ReloadTrigger): Promise<void>
  /** Switches the log level, of all processes, to debug, and the next time back. Never rejects. */
  switchLogLevel(): Promise<void>
  /** Logs an uncaught exception, as the last line of the log. */
  fatal(error: Error): void
  /**
   * Fails readiness, lets requests in flight end within `drainTimeout`, then closes everything. With `lameDuck`, new requests
   * are still taken for a part of that time, so that a load balancer can see the failing readiness.
   */
  close(options?: { readonly lameDuck?: boolean }): Promise<void>
}

/** The part of `drainTimeout` in which new requests are still taken. */
const LAME_DUCK_PART = 4
/** Most warnings of one configuration that are logged: each of 10,000 clients may give one. */
const MAX_WARNINGS = 100

const NOT_STARTED = 'the gateway does not serve yet'
const refuse = (): Promise<never> => Promise.reject(new Error(NOT_STARTED))
const UNSERVED = {
  notReadyReason: () => NOT_STARTED,
  activity: () => NO_ACTIVITY,
  usage: refuse,
  reset: refuse,
  setLimits: refuse,
  overrides: refuse,
  explain: refuse,
}

/**
 * Opens the operators' port, then the callers', which `workers` share; one is this process itself. Without `source`, the
 * configuration never changes. Rejects with a message for the operator.
 */
export async function start(
  config: Config,
  { source, workers = 1 }: { readonly source?: Source | undefined; readonly workers?: number } = {},
): Promise<Running> {
  const { level, format = process.stdout.isTTY ? 'pretty' : 'json' } = config.log
  const output = createLog(level, format)
  const { log } = output
  const metrics = createMetrics()
  /** What operators see; replaced when it serves, and when it drains. */
  let operatorApi: OperatorApi = { ...UNSERVED, metrics: metrics.text, metricValues: metrics.values }
  const overview = createOverview(config, () => operatorApi)
  /** Of the file in force. */
  let hash = source?.hash ?? null
  const { server: admin, endStreams } = createAdmin({
    notReadyReason: () => operatorApi.notReadyReason(),
    metrics: () => operatorApi.metrics(),
    metricsType: metrics.contentType,
    ...config.admin,
    overview: overview.read,
    usage: (client, signal) => operatorApi.usage(client, signal),
    async reset(client, signal) {
      const freed = await operatorApi.reset(client, signal).catch((error: Error) => {
        log.warn({ client, cause: error.message }, 'client limits reset in part by an operator')
        throw error
      })
      log.info({ client, freed }, 'client limits reset by an operator')
      return freed
    },
    setLimits: (setting) => operatorApi.setLimits(setting),
    overrides: () => operatorApi.overrides(),
    explain: async (question) => ({ ...(await operatorApi.explain(question)), configuration: hash }),
    failed: (error) => log.warn({ cause: (error as Error).message }, 'counters unavailable to an operator'),
  })

  function warn({ warnings }: Config): void {
    for (const { where, path, message } of warnings.slice(0, MAX_WARNINGS)) {
      log.warn({ where, path }, message)
    }
    const more = warnings.length - MAX_WARNINGS
    if (more > 0) log.warn({ more }, 'more warnings; "sluice check --json" lists them all')
  }

  try {
    const adminAddress = await listen(admin, config.admin.host, config.admin.port, 'admin')
    warn(config)
    const several = workers > 1 ? workers : undefined
    const service = several
      ? await openWorkers(several, config, output, metrics)
      : await buildService(config, output, metrics)
    if (several === undefined) metrics.workers.set(1)
    operatorApi = service
    const { address } = service
    const { loadMs } = source ?? {}
    log.info(
      { version: VERSION, configHash: source?.hash, address, adminAddress, workers: several, loadMs },
      'sluice serves',
    )

    let { drainTimeoutMs } = config
    async function apply(next: Config): Promise<void> {
      await service.apply(next)
      ;({ drainTimeoutMs } = next)
      overview.configured(next)
      warn(next)
    }
    async function close(lameDuckMs: number): Promise<void> {
      operatorApi = { ...service, notReadyReason: () => 'the gateway drains' }
      log.info('sluice drains')
      const cut = await service.close({ lameDuckMs, drainTimeoutMs })
      if (cut > 0) log.warn({ requests: cut }, 'requests cut at the end of drainTimeout')
      endStreams()
      await drain(admin, 0)
      log.info('sluice stopped')
      await output.close()
    }
    let debugs = false
    async function switchOnce(): Promise<void> {
      debugs = !debugs
      const next = debugs ? 'debug' : level
      if (debugs) output.setLevel('debug')
      await service.setLogLevel?.(next)
      // Before it is quiet again, so that each switch is logged.
      log.info({ logLevel: next }, 'log level switched')
      if (!debugs) output.setLevel(level)
    }
    let switching = Promise.resolve()
    function reloaded(end: ReloadRecord): void {
      ;({ hash } = end)
      overview.reloaded(end)
    }
    const reload = source && createReload(config, source, apply, log, metrics, reloaded)
    let closed: Promise<void> | undefined
    return {
      address,
      adminAddress,
      reload: async (trigger) => await reload?.(trigger),
      switchLogLevel: () => (switching = switching.then(switchOnce)),
      fatal: output.fatal,
      close: ({ lameDuck = false } = {}) =>
        (closed ??= close(lameDuck ? drainTimeoutMs / LAME_DUCK_PART : 0)),
    }
  } catch (error) {
    endStreams()
    admin.close()
    await output.close()
    throw error
  }
}
