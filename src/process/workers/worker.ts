import type { OperatorApi } from '../../admin/requests/operator-api.ts'
import type { Config } from '../../config/config.ts'
import { createCollector } from '../../config/client-chunks.ts'
import { createLog } from '../../observe/log.ts'
import { createMetrics } from '../../observe/metrics.ts'
import type { CountedCaller } from '../../policy/counted-caller.ts'
import { buildService, type LocalService } from '../service.ts'
import { toError } from '../../runtime/to-error.ts'

type OwnCalls = ReturnType<typeof createCalls>['calls']

/**
 * The functions of a worker that the primary process calls: its own, and those of its service. The
 * argument and the result are copied.
 */
export type WorkerCalls = OwnCalls & Omit<OperatorApi & Pick<LocalService, 'forgetCaller'>, keyof OwnCalls>

export type CallName = keyof WorkerCalls

/** The arguments and the results of the functions of a worker. */
type Arguments = { [Name in CallName]: Parameters<WorkerCalls[Name]>[0] }
type Values = { [Name in CallName]: Awaited<ReturnType<WorkerCalls[Name]>> }

/** The functions of a worker, by name; those of its service are absent until it is configured. */
type CallTable = {
  readonly [Name in CallName]?: (argument: Arguments[Name]) => Values[Name] | Promise<Values[Name]>
}

/** The argument of a function of a worker. */
export type Argument<Name extends CallName> = Arguments[Name]

/** The result of a function of a worker. */
export type Value<Name extends CallName> = Values[Name]

/** The message that calls a function of a worker. */
export interface Call<Name extends CallName = CallName> {
  readonly id: number
  readonly name: Name
  readonly argument: Argument<Name>
}

/**
 * The result of a call. The first message has id 0, belongs to no call, and means that the worker
 * is ready for calls.
 */
export interface Result {
  readonly id: number
  readonly value?: unknown
  readonly error?: Pick<Error, 'name' | 'message'>
}

/**
 * Runs a worker, which answers the calls of the primary process with `send`, and exits when that
 * process has exited.
 */
export function runWorker(send: NonNullable<typeof process.send>): void {
  // A terminal and some supervisors signal all processes; only the primary process reacts.
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2']) process.on(signal, () => {})
  const { calls, service } = createCalls()

  async function resultOf<Name extends CallName>({ id, name, argument }: Call<Name>): Promise<Result> {
    try {
      const table: CallTable = { ...service(), ...calls }
      const call = table[name]
      if (call === undefined) throw new Error('the worker is not configured yet')
      return { id, value: await call(argument) }
    } catch (error) {
      const { name, message } = toError(error)
      return { id, error: { name, message } }
    }
  }
  process.on('message', (call: Call) => void resultOf(call).then((result) => send(result)))
  send({ id: 0 } satisfies Result)
}

function createCalls() {
  const metrics = createMetrics()
  // Only the primary process formats for people.
  const output = createLog('info', 'json')
  const { add, collect } = createCollector()
  let service: LocalService | undefined
  let closing = false
  let scan = new AbortController()
  const newScan = (): AbortSignal => (scan = new AbortController()).signal

  process.on('uncaughtException', (error) => {
    output.fatal(error)
    process.exit(1)
  })
  process.on('disconnect', () => {
    if (closing || service === undefined) process.exit(1)
    // The port closed with the primary process; requests in flight may end.
    void service.close(false).finally(() => process.exit(1))
  })

  const calls = {
    /** Collects clients for the next `configure`, whose configuration has none. */
    addClients: add,
    /** Starts to serve, or applies a new configuration; returns the address. */
    async configure(given: Config) {
      const config = collect(given)
      output.log.level = config.log.level
      if (service === undefined) service = await buildService(config, output, metrics)
      else await service.apply(config)
      return service.address
    },
    setLogLevel(level: Config['log']['level']) {
      output.log.level = level
    },
    metrics: metrics.values,
    usage: (caller: CountedCaller) => service!.usage(caller, newScan()),
    reset: (caller: CountedCaller) => service!.reset(caller, newScan()),
    /** Aborts the `usage` or `reset` in flight, if its operator has disconnected. */
    abort: () => scan.abort(),
    /** Drains, and flushes the log; returns how many requests were cut. */
    async close(lameDuck: boolean) {
      closing = true
      const cut = await service!.close(lameDuck)
      await output.close()
      return cut
    },
  }
  return { calls, service: () => service }
}
