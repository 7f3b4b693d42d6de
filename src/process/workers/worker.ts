import { createCollector, type Piece } from '../../config/pieces.ts'
import type { Config } from '../../config/schema.ts'
import type { ClientUsage } from '../../limit/usage.ts'
import { createLog, type LogOutput } from '../../observe/log.ts'
import { createMetrics, type MetricValues } from '../../observe/metrics.ts'
import { buildService, type DrainTimes, type OwnService } from '../build.ts'

/** What the primary process calls in a worker, with one argument that is copied, and what is returned. */
export interface WorkerCalls {
  /** Keeps clients for the next `configure`, whose configuration has none. */
  addClients(piece: Piece): void
  /** Serves a configuration, from now on or in place of the one before; returns the address. */
  configure(config: Config): string
  unready(): string | undefined
  metrics(): MetricValues
  usage(client: string): ClientUsage
  reset(client: string): number
  /** Aborts the `usage` or `reset` under way: its operator has left. */
  abort(): void
  /** Drops the cached refusals. */
  forget(): void
  /** Drains and exits; returns how many requests had to be cut. */
  close(times: DrainTimes): number
}

type Handlers = {
  readonly [Name in keyof WorkerCalls]: (
    argument: Parameters<WorkerCalls[Name]>[0],
  ) => ReturnType<WorkerCalls[Name]> | Promise<ReturnType<WorkerCalls[Name]>>
}

export interface Call {
  readonly id: number
  readonly name: keyof WorkerCalls
  readonly argument: unknown
}

/** The result of a call; only name and message of an error travel. The first one, of no call, says that the worker listens. */
export interface Result {
  readonly id: number
  readonly value?: unknown
  readonly error?: { readonly name: string; readonly message: string }
}

/**
 * Runs one of the processes that share the callers' port: does what the primary process calls over their channel, `send`, and
 * ends when that one is gone.
 */
export function runWorker(send: NonNullable<typeof process.send>): void {
  const metrics = createMetrics()
  const { add, collect } = createCollector()
  let output: LogOutput | undefined
  let service: OwnService | undefined
  let drainTimeoutMs = 0
  let closing = false
  let scan = new AbortController()
  const newScan = (): AbortSignal => (scan = new AbortController()).signal

  const handlers: Handlers = {
    addClients: add,
    async configure(given) {
      const config = collect(given)
      if (service === undefined) {
        // Only the primary process formats for people.
        output = await createLog(config.log.level, 'json')
        service = await buildService(config, output, metrics)
      } else await service.apply(config)
      ;({ drainTimeoutMs } = config)
      return service.address
    },
    unready: () => service!.unready(),
    metrics: metrics.values,
    usage: (client) => service!.usage(client, newScan()),
    reset: (client) => service!.reset(client, newScan()),
    abort: () => scan.abort(),
    forget: () => service!.forget(),
    async close(times) {
      closing = true
      const cut = await service!.close(times)
      await output!.close()
      return cut
    },
  }

  async function resultOf({ id, name, argument }: Call): Promise<Result> {
    try {
      return { id, value: await (handlers[name] as (argument: unknown) => unknown)(argument) }
    } catch (error) {
      const { name, message } = error as Error
      return { id, error: { name, message } }
    }
  }
  process.on('message', (call: Call) => {
    const sent = (): void => void (call.name === 'close' && process.exit(0))
    void resultOf(call).then((result) => send(result, undefined, undefined, sent))
  })
  // A terminal and some supervisors signal all processes; only the primary acts on it.
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => {})
  process.on('uncaughtException', (error) => {
    output?.fatal(error)
    process.exit(1)
  })
  process.on('disconnect', () => {
    if (closing || service === undefined) process.exit(1)
    closing = true
    // The port is closed already; requests under way may end.
    void service.close({ lameDuckMs: 0, drainTimeoutMs }).finally(() => process.exit(1))
  })
  send({ id: 0 } satisfies Result)
}
