import type { History } from './history.ts'
import type { Request, Server } from './deployment.ts'
import { play } from './play.ts'
import type { RedisModel, Snapshot } from './redis-model.ts'

/** The events at a server, in their order. */
export type TraceEvent = { readonly server: string } & (
  | {
      readonly kind: 'script'
      readonly request: Request
      /** The reply, or the message of an error. */
      readonly reply: unknown
      readonly nowUs: number
      /** The server was stalled when the request arrived. */
      readonly hasWaited: boolean
      isAnswered: () => boolean
    }
  /** A request that the server never read. */
  | { readonly kind: 'lost'; readonly request: Request }
  | { readonly kind: 'down' }
  | { readonly kind: 'up'; readonly keepsData: boolean }
  /** A replica has the data as of now, and gets no more. */
  | { readonly kind: 'snapshot'; readonly snapshot: Snapshot }
  /** This server, the replica, takes over. */
  | { readonly kind: 'promoted'; readonly snapshot: Snapshot }
  | { readonly kind: 'flush' }
  /** The clock is about to be set: the keys that have expired are removed. */
  | { readonly kind: 'clock'; readonly nowUs: number }
  | { readonly kind: 'full' | 'readonly'; readonly isOn: boolean }
  /** The history has ended: the data of a server that is alive. */
  | { readonly kind: 'end'; readonly nowUs: number; readonly data: Dump }
)

/** Every key with its type, its content, and the instant of its expiry on the server's clock, in milliseconds, 0 for none. */
export type Dump = readonly (readonly [key: string, type: string, content: unknown, expiresMs: number])[]

/** Plays a history on the model, and returns what happened at its servers. */
export async function traceOf(history: History): Promise<readonly TraceEvent[]> {
  const events: TraceEvent[] = []
  await play(history, (server, nowUs) => observed(server, nowUs, (event) => void events.push(event)))
  return events
}

type Draft = TraceEvent extends infer Event
  ? Event extends TraceEvent
    ? Omit<Event, 'server'>
    : never
  : never

/** Returns a server that reports what happens to it. */
function observed(server: Server, nowUs: () => number, push: (event: TraceEvent) => void): Server {
  const { name, model } = server
  const report = (event: Draft): void => push({ ...event, server: name })
  const own = new Set<Snapshot>()
  const state = { isAlive: true, isFull: false, isReadOnly: false }
  let isInUse = false

  const observedModel: RedisModel = {
    ...model,
    get isFull() {
      return model.isFull
    },
    set isFull(isOn) {
      model.isFull = isOn
      report({ kind: 'full', isOn })
    },
    get isReadOnly() {
      return model.isReadOnly
    },
    set isReadOnly(isOn) {
      model.isReadOnly = isOn
      report({ kind: 'readonly', isOn })
    },
    snapshot() {
      const snapshot = model.snapshot()
      own.add(snapshot)
      report({ kind: 'snapshot', snapshot })
      return snapshot
    },
    restart(data) {
      model.restart(data)
      if (data !== undefined && !own.has(data)) report({ kind: 'promoted', snapshot: data })
      else report({ kind: 'up', keepsData: data !== undefined })
    },
    flushScripts() {
      model.flushScripts()
      report({ kind: 'flush' })
    },
    sweep() {
      model.sweep()
      report({ kind: 'clock', nowUs: nowUs() })
    },
    close() {
      if (isInUse && state.isAlive) report({ kind: 'end', nowUs: nowUs(), data: dump(model, nowUs()) })
      model.close()
    },
  }
  return {
    name,
    model: observedModel,
    stalledUntilMs: 0,
    get isAlive() {
      return state.isAlive
    },
    set isAlive(isAlive) {
      state.isAlive = isAlive
      if (!isAlive) report({ kind: 'down' })
    },
    onRan(request, reply, record, hasWaited) {
      isInUse = true
      const isAnswered = (): boolean => record.answeredAtMs !== undefined
      const said = reply instanceof Error ? reply.message : reply
      report({ kind: 'script', request, reply: said, nowUs: nowUs(), hasWaited, isAnswered })
    },
    onLost: (request) => report({ kind: 'lost', request }),
  }
}

/** Returns all data of the model. */
function dump(model: RedisModel, nowUs: number): Dump {
  const keys = model.run('KEYS', ['*']) as readonly string[]
  return keys.toSorted().map((key) => {
    const type = String(model.run('TYPE', [key]))
    const content = model.run(type === 'zset' ? 'ZCARD' : 'GET', [key])
    const ttl = model.run('PTTL', [key]) as number
    return [key, type, content, ttl < 0 ? 0 : Math.floor(nowUs / 1000) + ttl]
  })
}
