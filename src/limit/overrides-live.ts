import { randomUUID } from 'node:crypto'
import {
  byClient,
  formatOverrides,
  lasts,
  MAX_BYTES,
  MAX_OVERRIDES,
  type Override,
  type Overrides,
  parseOverrides,
  VERSION_LENGTH,
  versionOf,
} from './overrides.ts'
import type { OverridesKey } from './redis/overrides.ts'

/** So that a change is in force everywhere within a second. */
const POLL_MS = 500

export interface LiveOverridesOptions {
  /** Called with how many there are, after each change and when one has ended, and with those that are new and that are gone. */
  readonly onChange: (count: number, added: readonly Override[], gone: readonly Override[]) => void
  /** Called when Redis has lost them, and they were written back. */
  readonly onRestored?: (count: number) => void
  /** Called with how many lines of a changed text are no overrides; they are ignored. */
  readonly onBad: (lines: number) => void
  readonly everyMs?: number
}

/** Keeps the overrides that Redis has, and the last known ones while it does not answer; none without a `source`. */
export function createLiveOverrides(
  source: OverridesKey | undefined,
  { onChange, onRestored, onBad, everyMs = POLL_MS }: LiveOverridesOptions,
) {
  const limits = new Map<string, ReadonlyMap<string, Override>>()
  let known: readonly Override[] = []
  /** What the text began with when it was read last. */
  let version = ''
  let firstEndAt = Infinity
  let timer: NodeJS.Timeout | undefined

  async function readChanged(): Promise<readonly Override[] | undefined> {
    const now = await source!.read(VERSION_LENGTH)
    if (now === version) return undefined
    if (now === '' && (await restored())) return undefined
    const parsed = parseOverrides(await source!.read(MAX_BYTES))
    version = now
    // Without a version, something else answers or was written there: as if Redis were out of reach.
    if (parsed === undefined || parsed.bad > 0) onBad(parsed?.bad ?? 1)
    return parsed?.overrides
  }

  /** Writes back what Redis has lost: operators never remove the text while it is of use. Returns false if there was nothing. */
  async function restored(): Promise<boolean> {
    const lasting = known.filter((one) => lasts(one, Date.now()))
    if (lasting.length === 0) return false
    const text = formatOverrides(randomUUID(), lasting)
    // If another gateway was faster, the next reading gets its text.
    if (await source!.replace('', text, lifeOf(lasting, Date.now()))) {
      version = versionOf(text)
      onRestored?.(lasting.length)
    }
    return true
  }

  /** Returns true if something changed since. */
  function put(changed: readonly Override[] | undefined): boolean {
    const nowMs = Date.now()
    if (changed === undefined && nowMs < firstEndAt) return false
    const before = known
    known = (changed ?? known).filter((one) => lasts(one, nowMs))
    if (known.length + before.length === 0) return false
    firstEndAt = known.reduce((first, { untilAt = Infinity }) => Math.min(first, untilAt), Infinity)
    limits.clear()
    for (const [client, own] of byClient(known)) limits.set(client, own)
    onChange(known.length, without(known, before), without(before, known))
    return true
  }

  return {
    /** Those that have not ended; always the same map. */
    limits: limits as Overrides,
    /** Reads them once; rejects if Redis does not answer. */
    load: async (): Promise<void> => void (source && put(await readChanged())),
    /** Reads them again and again, and calls `onApplied` after each change. */
    watch(onApplied: () => void): void {
      if (source === undefined) return
      let isReading = false
      timer = setInterval(() => {
        if (isReading) return
        isReading = true
        const read = readChanged().catch(() => undefined)
        void read.then((changed) => {
          isReading = false
          if (put(changed)) onApplied()
        })
      }, everyMs).unref()
    },
    close: (): void => clearInterval(timer),
  }
}

/** Kept in Redis so long after the last has ended, as the gateways' clocks say when that is. */
const KEPT_MS = 3_600_000
const MAX_TRIES = 20

/** Returns how long Redis is to keep overrides, in milliseconds; 0 for good. Where there are none, so long that each gateway sees it. */
function lifeOf(overrides: readonly Override[], nowMs: number): number {
  const lastEndAt = overrides.reduce((last, { untilAt = Infinity }) => Math.max(last, untilAt), nowMs)
  return lastEndAt === Infinity ? 0 : lastEndAt - nowMs + KEPT_MS
}

/** Returns those that are not, the same, among others. */
function without(some: readonly Override[], others: readonly Override[]): readonly Override[] {
  const known = new Set(others.map((one) => JSON.stringify(one)))
  return some.filter((one) => !known.has(JSON.stringify(one)))
}

/**
 * Changes the overrides in Redis; `change` gets those that have not ended, again if another operator was faster. Rejects where
 * there would be too many, or if Redis does not answer.
 */
export async function changeOverrides(
  source: OverridesKey,
  change: (overrides: readonly Override[]) => readonly Override[],
  nowMs: number,
): Promise<readonly Override[]> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const before = await source.read(MAX_BYTES)
    const overrides = change((parseOverrides(before)?.overrides ?? []).filter((one) => lasts(one, nowMs)))
    const text = formatOverrides(randomUUID(), overrides)
    if (overrides.length > MAX_OVERRIDES || Buffer.byteLength(text) > MAX_BYTES) {
      throw new Error(
        `Redis keeps ${MAX_OVERRIDES} overrides at most, in ${MAX_BYTES / 1024 ** 2} MB; remove some with LIMIT=default, or write lasting ones to the file.`,
      )
    }
    if (await source.replace(versionOf(before), text, lifeOf(overrides, nowMs))) return overrides
  }
  throw new Error('Other operators change the overrides at this moment; repeat it.')
}
