import { createAdmin } from '../admin/server.ts'
import type { Config } from '../config/schema.ts'
import { drain } from '../downstream/drain.ts'
import { listen } from '../downstream/server.ts'
import { NO_ACTIVITY } from '../observe/activity/values.ts'
import { createLog } from '../observe/log.ts'
import { createMetrics } from '../observe/metrics.ts'
import { VERSION } from '../observe/version.ts'
import { createOverview } from './overview.ts'
import type { OperatorApi } from './operations.ts'
import { buildService, type Service } from './service.ts'
import { createReload, type ReloadRecord, type ReloadTrigger, type Source } from './reload.ts'
import { openWorkers } from './workers/pool.ts'

export type Running = Awaited<ReturnType<typeof start>>

/** Maximum warnings of one configuration that are logged: each of 10,000 clients may cause one. */
const MAX_WARNINGS = 100

const STARTING = 'the gateway is starting'
const refuse = (): Promise<never> => Promise.reject(new Error(STARTING))
const UNSERVED = {
  notReadyReason: () => STARTING,
  activity: () => NO_ACTIVITY,
  usage: refuse,
  reset: refuse,
  setLimits: refuse,
  overrides: refuse,
  explain: refuse,
}

/**
 * Opens the operators' port, then the callers', which `workers` processes share; with 1, this process serves. Without `source`,
 * the configuration never changes. Rejects with a message for the operator.
 */
export async function start(
  config: Config,
  { source, workers = 1 }: { readonly source?: Source | undefined; readonly workers?: number } = {},
) {
  const { level, format = process.stdout.isTTY ? 'pretty' : 'json' } = config.log
  const output = createLog(level, format)
  const { log } = output
  const metrics = createMetrics()
  /** Replaced when the gateway has started, and when it drains. */
  let operatorApi: OperatorApi = {
    ...UNSERVED,
    metrics: metrics.text,
    metricValues: metrics.values,
    events: output.events,
  }
  let current = config
  const overview = createOverview(
    () => current,
    () => operatorApi,
  )
  /** Hash of the file that is in force. */
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
        log.warn({ client, cause: error.message }, 'client limit reset incomplete; some counters remain')
        throw error
      })
      log.info({ client, freed }, 'client limits reset by an operator')
      return freed
    },
    setLimits: (setting) => operatorApi.setLimits(setting),
    overrides: () => operatorApi.overrides(),
    explain: async (question) => ({ ...(await operatorApi.explain(question)), configuration: hash }),
    failed: (error) =>
      log.warn({ cause: (error as Error).message }, 'operator request failed; the counters are unavailable'),
  })

  function warn({ warnings }: Config): void {
    for (const { where, path, message } of warnings.slice(0, MAX_WARNINGS)) log.warn({ where, path }, message)
    const more = warnings.length - MAX_WARNINGS
    if (more > 0) log.warn({ more }, 'more warnings; "sluice check --json" lists them all')
  }

  try {
    const adminAddress = await listen(admin, config.admin.host, config.admin.port, 'admin')
    warn(config)
    const several = workers > 1 ? workers : undefined
    const service: Service = several
      ? await openWorkers(several, config, output, metrics)
      : await buildService(config, output, metrics)
    operatorApi = service
    const { address, forwardAuthAddress } = service
    const fields = { address, forwardAuthAddress, adminAddress, workers: several, loadMs: source?.loadMs }
    log.info({ version: VERSION, configHash: source?.hash, ...fields }, 'gateway started')

    async function apply(next: Config) {
      await service.apply(next)
      current = next
      warn(next)
    }
    function record(outcome: ReloadRecord): void {
      ;({ hash } = outcome)
      overview.reloaded(outcome)
    }
    const reload = source && createReload(config, source, { apply, record, log, metrics })

    let logLevel = level
    async function switchLogLevel(): Promise<void> {
      logLevel = logLevel === level ? 'debug' : level
      // Both switches are logged at the debug level, so that each of them is visible.
      output.setLevel('debug')
      await service.setLogLevel?.(logLevel)
      log.info({ logLevel }, 'log level switched')
      output.setLevel(logLevel)
    }
    /** The last reload or switch of the log level, which run one at a time. */
    let last = Promise.resolve()
    const inTurn = (act: () => Promise<void>): Promise<void> => (last = last.then(act))

    async function close(lameDuck: boolean): Promise<void> {
      operatorApi = { ...service, notReadyReason: () => 'the gateway is draining' }
      log.info('drain started; readiness fails')
      const cut = await service.close(lameDuck)
      if (cut > 0) log.warn({ requests: cut }, 'requests cut at the end of drainTimeout')
      endStreams()
      overview.close()
      await drain(admin, 0)
      log.info('gateway stopped')
      await output.close()
    }
    let closed: Promise<void> | undefined
    return {
      address,
      forwardAuthAddress,
      adminAddress,
      /** Loads the configuration again; requests in flight end under the previous one. Never rejects. */
      reload: (trigger: ReloadTrigger) => inTurn(async () => await reload?.(trigger)),
      /** Switches the log level of all processes to debug, and the next time back. Never rejects. */
      switchLogLevel: () => inTurn(switchLogLevel),
      /** Logs an uncaught exception, as the last line of the log. */
      fatal: output.fatal,
      /** Fails readiness, drains, and closes everything. */
      close: ({ lameDuck = false } = {}) => (closed ??= close(lameDuck)),
    }
  } catch (error) {
    overview.close()
    endStreams()
    admin.close()
    await output.close()
    throw error
  }
}
