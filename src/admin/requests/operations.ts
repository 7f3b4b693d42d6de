import { hashOfKey, KEY_IN_TEXT } from '../../authenticate/key/key-text.ts'
import type { Config } from '../../config/config.ts'
import { InvalidQuestion } from '../../errors.ts'
import type { Reserves } from '../../gateway/reserves.ts'
import type { OutageMode } from '../../limit/quota.ts'
import { type Allowance, boundOf, type InspectedStore } from '../../limit/store.ts'
import type { Log } from '../../observe/log.ts'
import { assertCounted, callerKey, countsBy } from '../../policy/caller-keys.ts'
import { type CountedCaller, showCaller } from '../../policy/counted-caller.ts'
import { agreedCaller, partShownAs } from '../../policy/found-caller.ts'
import { isOverridable, type Override, overrideKey, type Overrides } from '../../policy/overrides.ts'
import { quotaOf, reasonOf, rulesOf } from '../../policy/rule.ts'
import type { Activity } from '../overview/callers.ts'
import type { OverviewSource } from '../overview/source.ts'
import { type CallerUsage, type Counters, createCounters } from './counters.ts'
import { explain } from './explain.ts'
import type { DecidedLimit } from './explained.ts'
import type { OperatorApi } from './operator-api.ts'

const ALLOWED = 'every call is admitted'
const DENIED = 'every call is refused with 503'

/** Returns the reason for what a limit admits while Redis is unavailable. */
function outageText(mode: OutageMode, { limit, part = limit }: Allowance): string {
  const texts = { local: `this gateway admits ${part}`, allow: ALLOWED, deny: DENIED }
  return `Redis is unavailable: ${texts[mode]}`
}

/** The overrides of the gateway, as operators change them. */
interface ChangedOverrides {
  /** The overrides in force by the keys of their counters. */
  readonly limits: Overrides
  values(): readonly Override[]
  /** Sets and removes overrides atomically; rejects if the store does not answer. */
  change(set: readonly Override[], removed: readonly Pick<Override, 'caller' | 'name'>[]): Promise<void>
}

/** Creates the operators' requests about limits to one process, which use the current configuration. */
export function createOperations(parts: {
  config(): Config
  readonly overrides: ChangedOverrides
  readonly store: Pick<InspectedStore, 'inspect' | 'keys' | 'reset'>
  readonly reserves: Pick<Reserves, 'of'>
  readonly activity: Activity
  /** Called after the counters of a caller were reset. */
  onReset(caller: CountedCaller): void
  readonly log: Log
  /** Formats a caller for the log. */
  callerText(caller: CountedCaller): string
}): Omit<OperatorApi, keyof OverviewSource | 'metrics'> {
  const { config: current, overrides, store, reserves, activity, onReset, log, callerText } = parts
  const counters = (): Counters =>
    createCounters({ ...current(), overrides: overrides.limits, store, reserves })

  /** Returns the rule that decides a limit; null if the limit is not configured. */
  function ruleOf(caller: CountedCaller, name: string): DecidedLimit | null {
    const config = current()
    const { limits, prefix } = config
    const limit = limits.find((limit) => limit.name === name)
    if (limit === undefined) return null
    const client = caller.find(({ word }) => word === 'client')?.value
    const key = callerKey(prefix, limit, caller)
    const rules = rulesOf({ ...config, overrides: overrides.limits }, limit, key, { client })
    const nowMs = Date.now()
    const { limit: calls, source } = quotaOf(limit, '', nowMs, rules)
    return { limit: calls, decidedBy: source, because: reasonOf(limit, source, nowMs, rules) }
  }

  return {
    async usage(caller, signal) {
      assertNoKey(current(), caller)
      const usage = await counters().ofCaller(caller, signal)
      return { ...usage, notes: notesOn(usage, isOfFiles(current(), caller)) }
    },
    async reset(caller, signal) {
      assertNoKey(current(), caller)
      const fields = { caller: callerText(caller) }
      const freed = await counters()
        .free(caller, signal)
        .catch((error: Error) => {
          if (error.name !== 'UncountedCaller')
            log.warn({ ...fields, cause: error.message }, 'limit reset incomplete; counters remain')
          throw error
        })
      onReset(caller)
      const keepsPlaces = current().limits.some((one) => one.isConcurrent && countsBy(one, caller))
      return { caller: showCaller(caller), freed, keepsPlaces }
    },
    findCaller(shown) {
      const set = overrides.values().map(({ caller }) => caller)
      return agreedCaller([...set.filter((caller) => showCaller(caller) === shown), activity.find(shown)])
    },
    findPart(shown) {
      const set = overrides.values().map(({ caller }) => partShownAs(caller, shown))
      return agreedCaller([...set, activity.findPart(shown)])
    },
    async setLimits({ caller, set, untilAt, by, note }) {
      const config = current()
      assertNoKey(config, caller)
      const names = Object.keys(set)
      // An override remains when its limit is removed from the configuration.
      const isRemoval = (name: string) =>
        set[name] === null && overrides.limits.has(overrideKey(config.prefix, { caller, name }))
      for (const name of names) if (!isRemoval(name)) assertOverridable(config, caller, name)
      const before = names.map((name) => ruleOf(caller, name))
      const details = { setAt: Date.now(), untilAt: untilAt ?? undefined, by, note }
      const added = Object.entries(set).flatMap(([name, limit]) =>
        limit === null ? [] : [{ caller, name, limit, ...details }],
      )
      const removed = names.filter((name) => set[name] === null).map((name) => ({ caller, name }))
      // Asked before: a limit of 0 shows no counted calls.
      const seen = isOfFiles(config, caller) || (await isCounted(counters(), caller))
      await overrides.change(added, removed)
      return {
        caller: showCaller(caller),
        limits: names.map((name, i) => ({ name, before: before[i]!, after: ruleOf(caller, name) })),
        shared: config.store !== 'memory',
        seen,
      }
    },

    async explain(question) {
      const { explained, quotas } = explain(current(), question, overrides.limits)
      if (question.at !== undefined) return explained
      const limits = explained.limits.map(async (limit, i) => {
        const quota = quotas[i]
        if (!quota) return limit
        const [inspected] = await store.inspect([quota])
        const { allowance, mode } = inspected!
        const { used, remaining } = allowance
        const reserved = reserves.of(quota.key)
        if (mode === 'store') return { ...limit, used, reserved, remaining }
        const because = `${outageText(mode, allowance)}; ${limit.because}`
        return { ...limit, used, reserved, remaining, part: boundOf(allowance) ?? null, because }
      })
      return { ...explained, limits: await Promise.all(limits).catch(() => explained.limits) }
    },
  }
}

/** Throws an InvalidQuestion, which does not repeat it, for a key that is given as the id of its client. */
function assertNoKey({ apiKeys }: Config, caller: CountedCaller): void {
  const id = caller.find(({ word }) => word === 'client')?.value
  if (id === undefined) return
  const sha256 = hashOfKey(id)
  if (KEY_IN_TEXT.test(id) || apiKeys.some((key) => key.sha256 === sha256))
    throw new InvalidQuestion(
      'The caller is an API key; name its client instead, which "sluice keys list" shows.',
    )
}

/** Returns what the rows of a caller's limits do not say. */
function notesOn(
  { caller, limits, own, overrides, truncated }: CallerUsage,
  isKnown: boolean,
): readonly string[] {
  const changes = limits.flatMap(({ name, changes }) =>
    changes.map(({ from, limit }) => `From ${from} on, "${name}" allows ${limit}.`),
  )
  const ofFile = own.map(({ name, limit, until }) => {
    const end = until === null ? '' : ` until ${until}`
    return `The file gives the client its own "${name}" of ${limit}${end}.`
  })
  const doubt = isKnown || overrides.length > 0 ? '.' : '. If it makes some, check its spelling.'
  const notes: string[] = []
  notes.push(...new Set(limits.flatMap(({ mode }) => (mode === 'store' ? [] : WITHOUT_REDIS[mode]))))
  for (const { key, reserved } of limits)
    if (reserved > 0) notes.push(`Calls in progress at this gateway hold a reserve of ${reserved} of ${key}.`)
  if (!hasCalls(limits)) notes.push(`No calls of ${caller} are counted now${doubt}`)
  notes.push(...new Set(changes))
  if (truncated) notes.push(`These are the first ${limits.length} keys; there are more.`)
  return notes.concat(ofFile)
}

/** The note on a caller in an outage, by what decides its calls. */
const WITHOUT_REDIS: Readonly<Record<OutageMode, string>> = {
  local:
    'Without Redis, this gateway counts what Redis last reported and its own calls, and admits its part of each limit.',
  allow: `Without Redis, ${ALLOWED}, and none is counted.`,
  deny: `Without Redis, ${DENIED}.`,
}

/** True for a client under `clients`, or with a key. */
function isOfFiles({ clients, apiKeys }: Config, caller: CountedCaller): boolean {
  const [part, ...others] = caller
  if (part?.word !== 'client' || others.length > 0) return false
  const { value } = part
  return clients.some((client) => client.caller === value) || apiKeys.some(({ client }) => client === value)
}

const hasCalls = (limits: CallerUsage['limits']): boolean => limits.some(({ used }) => used > 0)

/** True if calls of the caller are counted now, or if the store does not answer. */
async function isCounted(counters: Counters, caller: CountedCaller): Promise<boolean> {
  const counted = await counters.ofCaller(caller).catch(() => undefined)
  return counted === undefined || hasCalls(counted.limits)
}

function assertOverridable({ limits }: Config, caller: CountedCaller, name: string): void {
  assertCounted(limits, caller)
  const settable = limits.filter((limit) => isOverridable(limit, caller)).map(({ name }) => name)
  if (settable.includes(name)) return
  const mistake = `There is no limit "${name}" that counts by "${showCaller(caller)}" first`
  const known = settable.join(', ') || 'none'
  throw new InvalidQuestion(`${mistake}; those that can be set are: ${known}.`)
}
