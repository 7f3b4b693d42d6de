import type { Config } from './schema.ts'
import type { Path } from './locate.ts'
import type { Mistake } from './source.ts'

/** What is not wrong, but probably not meant either: what has no effect (any more), and what is left open. */
export function* warningsOf(config: Omit<Config, 'warnings'>, nowMs: number): Generator<Mistake> {
  const { admin, store } = config
  if (!admin.onLoopback && admin.token === undefined) {
    const message = `is reached from other machines, and there is no "token", so /limits is refused here; set admin.token to a secret of 16 characters or more`
    yield { path: ['admin', 'host'], message }
  }
  if (store !== 'memory' && store.redis.tls?.rejectUnauthorized === false) {
    const message =
      'trusts whoever answers for Redis; write "ca" with the authority that signed its certificate'
    yield { path: ['store', 'redis', 'tls', 'rejectUnauthorized'], message }
  }
  yield* limits(config, nowMs)
  yield* ownLimits(config, nowMs)
}

function* limits({ limits, routes }: Omit<Config, 'warnings'>, nowMs: number): Generator<Mistake> {
  for (const limit of limits) {
    const { name, changes } = limit
    const path = ['limits', name]
    if (!routes.some(({ limits }) => limits.includes(limit))) {
      yield { path, message: 'is named by no route, so it limits nothing', key: true }
    }
    const last = changes.findLastIndex(({ fromAt }) => fromAt <= nowMs)
    if (last === -1) continue
    const message = `has passed; write limit: ${changes[last]!.limit} for "${name}" and take this change out`
    yield { path: [...path, 'changes', last, 'from'], message }
  }
}

function* ownLimits(
  { clients, clientLimits, limits }: Omit<Config, 'warnings'>,
  nowMs: number,
): Generator<Mistake> {
  for (const [i, { id }] of clients.entries()) {
    for (const [name, { limit, windowMs, untilAt }] of clientLimits.get(id) ?? []) {
      const path: Path = ['clients', i, 'limits', name]
      const general = limits.find((one) => one.name === name)!
      if (untilAt !== undefined && untilAt <= nowMs) {
        const message =
          'has passed, so this limit has no effect any more; take it out or write a later instant'
        yield { path: [...path, 'until'], message }
      } else if (
        general.changes.length === 0 &&
        limit === general.limit &&
        (windowMs ?? general.windowMs) === general.windowMs
      ) {
        yield { path, message: `is what "${name}" is for every client; take it out`, key: true }
      }
    }
  }
}
