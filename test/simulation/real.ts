import { commandOf, DUMP, EXPIRED, withPlainSha } from './clocked.ts'
import type { History } from './history.ts'
import { type RealServer, startServer } from './real-server.ts'
import { type TraceEvent, traceOf } from './trace.ts'

/** The commands for real servers, and the differences of their replies, or their data at the end, from the model's. */
export interface Compared {
  readonly differences: Difference[]
  /** Counts by kind: replies, errors, keys and faults. */
  readonly counts: Record<string, number>
}

interface Difference {
  readonly history: string
  /** The event's index in the trace. */
  readonly at: number
  readonly request: readonly unknown[]
  readonly model: unknown
  readonly real: unknown
}

type Script = TraceEvent & { readonly kind: 'script' }

/** Plays a history on the model, and then, at real servers, what happened at the model's. Adds to `compared`. */
export async function playReal(name: string, history: History, compared: Compared): Promise<void> {
  const { differences, counts } = compared
  const events = await traceOf(history)
  const servers = new Map<string, RealServer>()
  const count = (kind: string, by = 1): void => void (counts[kind] = (counts[kind] ?? 0) + by)

  function compare(at: number, request: readonly unknown[], model: unknown, real: unknown): void {
    if (JSON.stringify(model) === JSON.stringify(real)) return
    differences.push({ history: name, at, request, model, real })
  }
  function compareReply(at: number, { request, reply }: Script, real: unknown): void {
    count(Array.isArray(reply) ? 'replies' : `errors ${String(reply).split(' ', 1)[0]}`)
    compare(at, request.args.slice(1), reply, withPlainSha(real))
  }

  async function serverOf(server: string): Promise<RealServer> {
    const found = servers.get(server) ?? (await startServer())
    servers.set(server, found)
    return found
  }

  /** Removes the keys that have expired. */
  async function expire(server: RealServer, nowUs: number): Promise<void> {
    const keys = (await server.command('EVAL', EXPIRED, 0, Math.floor(nowUs / 1000))) as readonly string[]
    count('expired keys', keys.length)
    if (keys.length === 0) return
    await server.command('CONFIG', 'SET', 'replica-read-only', 'no')
    await server.command('UNLINK', ...keys)
    await server.command('CONFIG', 'SET', 'replica-read-only', 'yes')
  }

  /** Runs a script, or those that waited together on one connection. */
  async function runScripts(server: RealServer, at: number, scripts: readonly [Script, ...Script[]]) {
    const [first] = scripts
    await expire(server, first.nowUs)
    const route = await server.route(first.request.from)
    if (!first.isAnswered()) {
      count('answers lost')
      const real = await route.sendWithLostAnswer(...commandOf(first.request, first.nowUs))
      return compareReply(at, first, real)
    }
    await route.repair()
    if (first.hasWaited) server.freeze()
    const sent = scripts.map(({ request, nowUs }) => route.send(...commandOf(request, nowUs)))
    if (first.hasWaited) {
      count('stalls')
      server.thaw()
    }
    for (const [i, outcome] of (await Promise.all(sent)).entries()) {
      compareReply(at + i, scripts[i]!, 'reply' in outcome ? outcome.reply : outcome)
    }
  }

  /** Returns the script of an event, with those after it that waited on the same connection. */
  function scriptsFrom(at: number, first: Script): readonly [Script, ...Script[]] {
    const scripts: [Script, ...Script[]] = [first]
    const { server, nowUs, request } = first
    if (!first.hasWaited || !first.isAnswered()) return scripts
    for (;;) {
      const next = events[at + scripts.length]
      if (next?.kind !== 'script' || next.server !== server || next.request.from !== request.from) break
      if (!next.hasWaited || next.nowUs !== nowUs || !next.isAnswered()) break
      scripts.push(next)
    }
    return scripts
  }

  /** Plays an event, and returns how many were played. */
  async function playEvent(event: TraceEvent, at: number): Promise<number> {
    const server = await serverOf(event.server)
    switch (event.kind) {
      case 'script': {
        const scripts = scriptsFrom(at, event)
        await runScripts(server, at, scripts)
        return scripts.length
      }
      case 'lost': {
        count(server.isDown() ? 'requests to no server' : 'requests lost')
        const route = await server.route(event.request.from)
        await route.sendInVain(...commandOf(event.request, 0), server.isDown())
        break
      }
      case 'down':
        await server.down()
        break
      case 'up':
        count(`restarts with${event.keepsData ? '' : 'out'} data`)
        await server.up(event.keepsData)
        break
      case 'promoted':
        count('failovers')
        await server.promote()
        break
      case 'flush':
        count('scripts flushed')
        if (!server.isDown()) await server.command('SCRIPT', 'FLUSH')
        break
      case 'clock':
        count('clocks set')
        if (!server.isDown()) await expire(server, event.nowUs)
        break
      case 'full':
      case 'readonly':
        if (event.isOn) count(event.kind)
        await server.setFault(event.kind, event.isOn)
        break
      case 'end':
        await expire(server, event.nowUs)
        count('keys at the end', event.data.length)
        compare(at, ['all data'], event.data, await server.command('EVAL', DUMP, 0))
        break
    }
    return 1
  }

  /** The steps of replicas before an event. */
  const steps = new Map<number, (() => Promise<void>)[]>()
  const before = (at: number, step: () => Promise<void>): void =>
    void steps.set(at, [...(steps.get(at) ?? []), step])
  for (const event of events) {
    if (event.kind !== 'promoted') continue
    const [from, to, master] = followed(events, event.snapshot)
    before(from, async () => void servers.set(event.server, await startServer(await serverOf(master))))
    before(to, async () => servers.get(event.server)!.detach())
  }

  count('histories')
  try {
    for (let at = 0, played = 0; at < events.length; at++) {
      for (const step of steps.get(at) ?? []) await step()
      if (at >= played) played = at + (await playEvent(events[at]!, at))
    }
  } finally {
    for (const server of servers.values()) await server.close()
  }
}

/**
 * Returns when a replica follows its master so that it has the data of a snapshot: between two events, during which the
 * master is neither down nor a replica itself. From the second until the snapshot its data does not change.
 */
function followed(
  events: readonly TraceEvent[],
  snapshot: object,
): [from: number, to: number, master: string] {
  const taken = events.findIndex((event) => event.kind === 'snapshot' && event.snapshot === snapshot)
  const { server } = events[taken]!
  let [from, to, isDown, isReadOnly] = [0, taken, false, false]
  for (const [i, event] of events.slice(0, taken).entries()) {
    if (event.server !== server) continue
    const couldFollow = !isDown && !isReadOnly
    if (event.kind === 'down' || event.kind === 'up') isDown = event.kind === 'down'
    if (event.kind === 'readonly') isReadOnly = event.isOn
    const canFollow = !isDown && !isReadOnly
    if (event.kind === 'promoted' || (canFollow && !couldFollow)) [from, to] = [i + 1, taken]
    else if (couldFollow && !canFollow) to = i
  }
  return [from, to, server]
}
