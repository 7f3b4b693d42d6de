import { summariesKey, watchedKey } from '../key.ts'
import type { RedisConnection } from './connection.ts'
import type { createDeadlines } from './deadlines.ts'

/** Maximum fields of the key of all summaries, which is deleted beyond. */
const MAX_SUMMARIES = 1000
/**
 * Age at which a summary is deleted, as its gateway is gone, or has lost Redis; expiry of the key of
 * all. One that is dated as far ahead is deleted, too: Redis's clock was set back, or another
 * program wrote it.
 */
const SUMMARY_LIFE_MS = 10_000
/** Time after which gateways stop writing summaries, unless one of them reads them again, in milliseconds. */
const WATCHED_LIFE_MS = 10_000

/** The summary of another gateway, by its id. */
export interface SharedSummary {
  readonly field: string
  readonly summary: string
  readonly ageMs: number
}

/** The summary of this gateway, by its id. */
export interface SentSummary {
  readonly id: string
  readonly summary: string
  /** True if this gateway shows those of the others. */
  readonly isShown: boolean
}

const isCurrent = ({ ageMs }: SharedSummary): boolean => Math.abs(ageMs) <= SUMMARY_LIFE_MS

interface Parts {
  readonly prefix: string
  readonly within: ReturnType<typeof createDeadlines>['within']
  /** Returns the instant by the clock of a key's server; undefined if it is unknown. */
  dateNow(key: string): number | undefined
  /** True if some server had the mark of readers at this gateway's last registration. */
  isWatched(): boolean
}

/** Creates the functions that share the summaries of gateways, which only consoles show. */
export function createSummaries({ client, explain }: RedisConnection, parts: Parts) {
  const { prefix, within, dateNow, isWatched } = parts
  const { commands } = client
  const key = summariesKey(prefix)
  /** The gateway whose summary was written. */
  let written: string | undefined

  const ask = <T>(sent: Promise<T>) => within(() => explain(sent, client.server(key)))

  async function write(gateway: string, summary: string, nowMs: number): Promise<void> {
    written = gateway
    const sent = [commands.hset(key, gateway, `${nowMs} ${summary}`), commands.pexpire(key, SUMMARY_LIFE_MS)]
    await ask(Promise.all(sent))
  }

  /** Asks the other gateways for their summaries, by a mark at each server that registrations return. */
  function markWatched(): void {
    for (const tag of client.tags().values())
      commands.set(watchedKey(prefix, tag), '1', 'PX', WATCHED_LIFE_MS).catch(() => {})
  }

  /** Reads all summaries, and deletes old and damaged fields, and all of too many. */
  async function read(nowMs: number): Promise<readonly SharedSummary[]> {
    const fields = await ask(commands.hgetall(key))
    const all = Object.entries(fields).map(([field, value]) => {
      const [at = ''] = value.split(' ', 1)
      return { field, summary: value.slice(at.length + 1), ageMs: nowMs - Number(at) }
    })
    const old = all.filter((one) => !isCurrent(one)).map(({ field }) => field)
    if (all.length > MAX_SUMMARIES) commands.unlink(key).catch(() => {})
    else if (old.length > 0) commands.hdel(key, ...old).catch(() => {})
    return all.filter(isCurrent)
  }

  return {
    async share({ id, summary, isShown }: SentSummary): Promise<readonly SharedSummary[]> {
      if (!isShown && !isWatched()) return []
      const date = dateNow(key)
      if (date === undefined) throw new Error('Redis has not answered yet.')
      const nowMs = Math.round(date)
      if (!isShown) {
        await write(id, summary, nowMs)
        return []
      }
      markWatched()
      const [shared] = await Promise.all([read(nowMs), write(id, summary, nowMs)])
      return shared.filter(({ field }) => field !== id)
    },
    /** Deletes the summary of this gateway. */
    withdraw(): void {
      if (written !== undefined) commands.hdel(key, written).catch(() => {})
    },
  }
}
