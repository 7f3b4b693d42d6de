import { createCollector } from '../../config/pieces.ts'
import { createLog, type LogOutput } from '../../observe/log.ts'
import { createMetrics } from '../../observe/metrics.ts'
import { type OwnService, serve } from '../build.ts'
import { type Answered, type Answers, type Asked, LISTENS } from './messages.ts'

/**
 * One of the processes that share the callers' port: does what the first process asks, over the channel between them, and
 * ends when that one is gone. `send` is the channel's.
 */
export function runWorker(send: NonNullable<typeof process.send>): void {
  // A terminal and some supervisors send signals to all processes; what they mean is the first one's to say.
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => {})

  const metrics = createMetrics()
  let output: LogOutput | undefined
  let service: OwnService | undefined
  let drainTimeoutMs = 0
  let closing = false
  let scanning = new AbortController()
  const scan = (): AbortSignal => {
    scanning = new AbortController()
    return scanning.signal
  }
  const { add, collect } = createCollector()

  process.on('uncaughtException', (error) => {
    const cause = error.stack ?? error.message
    output?.log.fatal({ cause }, 'a worker ends of an error that nobody caught')
    if (output?.log.isLevelEnabled('fatal') !== true) process.stderr.write(`sluice: uncaught: ${cause}\n`)
    process.exit(1)
  })
  process.on('disconnect', () => {
    if (closing || service === undefined) process.exit(1)
    closing = true
    // The port is closed already; requests under way may end.
    void service.close({ lameDuckMs: 0, drainTimeoutMs }).finally(() => process.exit(1))
  })

  const answers: Answers = {
    clients: add,
    async start(given) {
      const config = collect(given)
      // The first process writes for people, if at all.
      output = await createLog(config.log.level, 'json')
      ;({ drainTimeoutMs } = config)
      service = await serve(config, output, metrics)
      return service.address
    },
    unready: () => service!.unready(),
    async apply(given) {
      const config = collect(given)
      await service!.apply(config)
      ;({ drainTimeoutMs } = config)
    },
    metrics: metrics.values,
    usage: (client) => service!.usage(client, scan()),
    reset: (client) => service!.reset(client, scan()),
    forget: () => service!.forget(),
    abort: () => scanning.abort(),
    async close(times) {
      closing = true
      const cut = await service!.close(times)
      await output!.close()
      return cut
    },
  }

  process.on('message', ({ id, question, told }: Asked) => {
    const reply = (answered: Answered): void =>
      void send(answered, undefined, undefined, () => {
        if (question === 'close') process.exit(0)
      })
    answer(answers, question, told).then(
      (answer) => reply({ id, answer }),
      ({ name, message }: Error) => reply({ id, failure: { name, message } }),
    )
  })
  send(LISTENS)
}

async function answer(answers: Answers, question: Asked['question'], told: unknown): Promise<unknown> {
  return await (answers[question] as (told: unknown) => unknown)(told)
}
