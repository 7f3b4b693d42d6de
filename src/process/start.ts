import type { TlsOptions } from 'node:tls'
import { isDeepStrictEqual } from 'node:util'
import type { OperatorApi } from '../admin/requests/operator-api.ts'
import { createOverview } from '../admin/overview/overview.ts'
import { createAdmin } from '../admin/server.ts'
import type { Config } from '../config/config.ts'
import { drain } from '../downstream/listener/drain.ts'
import { listen, renewCertificate } from '../downstream/listener/server.ts'
import { type ListenerTls, tlsOptions } from '../downstream/listener/tls.ts'
import { createLog, type LogOutput } from '../observe/log.ts'
import { createMetrics } from '../observe/metrics.ts'
import { secretParts } from '../policy/parameter-kinds.ts'
import { VERSION } from '../runtime/package.ts'
import { REVISION } from '../runtime/revision.ts'
import { toError } from '../runtime/to-error.ts'
import type { Service } from './service.ts'
import { createConfiguration, type ReloadTrigger, type Source } from './reload.ts'

/** A running gateway, with the URLs of its listeners. */
export interface Running {
  readonly address: string
  readonly forwardAuthAddress: string | undefined
  readonly adminAddress: string
  /** Loads the configuration again; requests in flight end under the previous one. Never rejects. */
  reload(trigger: ReloadTrigger): Promise<void>
  /** Switches the log level of all processes to debug, and the next time back. Never rejects. */
  switchLogLevel(): Promise<void>
  readonly fatal: LogOutput['fatal']
  /** Fails readiness, drains, and closes everything. */
  close(options?: { readonly lameDuck?: boolean }): Promise<void>
}

type AdminTls = NonNullable<Config['admin']['tls']>

const STARTING = 'the gateway is starting'

/**
 * Opens the operators' port, then the callers', in `workers` processes. Without `source`, nothing
 * is reloaded; without `logFd`, the log is on standard output. Rejects with a message for the
 * operator.
 */
export async function start(config: Config, source?: Source, workers = 1, logFd?: number): Promise<Running> {
  const { level, format = process.stdout.isTTY ? 'pretty' : 'json', audit } = config.log
  const output = createLog(level, format, logFd, audit)
  const { log } = output
  const metrics = createMetrics()
  let service: Service
  /** Undefined until the gateway has started; replaced when it drains. */
  let operatorApi: OperatorApi | undefined
  function started(): OperatorApi {
    if (operatorApi === undefined) throw new Error(STARTING)
    return operatorApi
  }
  async function apply(next: Config): Promise<void> {
    await service.apply(next)
    const { tls } = next.admin
    if (tls === undefined || isDeepStrictEqual(tls, configuration.config().admin.tls)) return
    renewCertificate(admin, listenerTls(tls))
    // Connections that a removed authority admitted must not go on.
    admin.closeIdleConnections()
  }
  const configuration = createConfiguration(config, source, { apply, log, metrics })
  const overview = createOverview(configuration, started)
  const admin = createAdmin({
    notReadyReason: () => (operatorApi === undefined ? STARTING : operatorApi.notReadyReason()),
    metrics: (format) => operatorApi?.metrics(format) ?? metrics.text(format),
    access: () => configuration.config().admin,
    overview: overview.read,
    tls: config.admin.tls && adminTls(config.admin.tls),
    requests: metrics.adminRequests,
    audit: output.audit,
    operator: started,
    hash: configuration.hash,
    secrets: () => secretParts(configuration.config().parameters),
    failed: (error) =>
      log.warn({ cause: toError(error).message }, 'operator request failed; counters unavailable'),
  })
  async function closeAdmin(): Promise<void> {
    overview.close()
    await drain(admin, 0)
  }

  try {
    const adminAddress = await listen(admin, config.admin.host, config.admin.port, 'admin')
    configuration.warn()
    service =
      workers > 1
        ? await (await import('./workers/pool.ts')).openWorkers(workers, config, output, metrics)
        : await (await import('./service.ts')).buildService(config, output, metrics)
    operatorApi = service
    await configuration.begin()
    const { address, forwardAuthAddress } = service
    const addresses = { address, forwardAuthAddress, adminAddress }
    const fields = { ...addresses, workers, loadMs: source?.loadMs, configHash: source?.hash }
    log.info({ version: VERSION, revision: REVISION, ...fields }, 'gateway started')

    let logLevel = level
    async function switchLogLevel(): Promise<void> {
      logLevel = logLevel === level ? 'debug' : level
      // Both switches are logged at the debug level, so that each of them is visible.
      log.level = 'debug'
      await service.setLogLevel?.(logLevel)
      log.info({ logLevel }, 'log level switched')
      log.level = logLevel
    }
    let last = Promise.resolve()
    /** Runs reloads and switches of the log level one at a time. */
    const inTurn = (act: () => Promise<void>): Promise<void> => (last = last.then(act))

    async function close(lameDuck: boolean): Promise<void> {
      operatorApi = { ...service, notReadyReason: () => 'the gateway is draining' }
      log.info('drain started; readiness fails')
      const cut = await service.close(lameDuck)
      if (cut > 0) log.warn({ requests: cut }, 'requests cut at the end of drainTimeout')
      await closeAdmin()
      log.info('gateway stopped')
      await output.close()
    }
    let closed: Promise<void> | undefined
    return {
      ...addresses,
      reload: (trigger) => inTurn(() => configuration.reload(trigger)),
      switchLogLevel: () => inTurn(switchLogLevel),
      fatal: output.fatal,
      close: ({ lameDuck = false } = {}) => (closed ??= close(lameDuck)),
    }
  } catch (error) {
    await closeAdmin()
    await output.close()
    throw error
  }
}

/** Settings of the admin listener's certificates, as those of the callers' listener. */
const listenerTls = (tls: AdminTls): ListenerTls => ({
  ...tls,
  requestClientCert: tls.clientCa !== undefined,
})

/**
 * Returns the TLS options of the admin listener. A connection without a client certificate is
 * accepted, for probes, Prometheus, and operators with a token.
 */
const adminTls = (tls: AdminTls): TlsOptions => ({
  ...tlsOptions(listenerTls(tls)),
  rejectUnauthorized: false,
})
