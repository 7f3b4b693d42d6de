import type { DecidedLimit } from '../admin/explained.ts'
import type { OperatorApi } from '../admin/operator-api.ts'
import type { Activity } from '../admin/overview/callers.ts'
import type { OverviewSource } from '../admin/overview/source.ts'
import type { Config } from '../config/compile.ts'
import { InvalidQuestion } from '../errors.ts'
import { quotaOf, reasonOf, rulesOf } from '../policy/rule.ts'
import { assertCounted, callerKey, countsBy } from '../policy/caller-keys.ts'
import { type CountedCaller, formatCaller, showCaller } from '../policy/counted-caller.ts'
import { agreedCaller } from '../policy/found-caller.ts'
import { isOverridable, overrideKey } from '../policy/overrides.ts'
import type { CallerUsage, Usage } from '../gateway/usage.ts'
import type { Log } from '../observe/log.ts'
import { explain } from './explain.ts'
import type { OpenedStore } from './open-store.ts'

/** Reasons for the limits while Redis is unavailable, each followed by the configured limit. */
const OUTAGE = {
  local: "Redis is unavailable: this gateway's part of",
  allow: 'Redis is unavailable: every call is admitted, instead of',
  deny: 'Redis is unavailable: every call is refused with 503, instead of',
}

/** Creates the operators' requests about limits to one process, which use the current configuration. */
export function createOperations(parts: {
  current(): { readonly config: Config; readonly usage: Usage }
  readonly opened: Pick<OpenedStore, 'overrides' | 'store'>
  readonly activity: Activity
  forget(caller: CountedCaller): void
  readonly log: Log
  /** Formats a caller for the log. */
  callerText(caller: CountedCaller): string
}): Omit<OperatorApi, keyof OverviewSource | 'metrics'> {
  const { current, opened, activity, forget, log, callerText } = parts
  const { overrides, store } = opened
  /** Returns the rule that decides a limit; null if the limit is not configured. */
  function ruleOf(caller: CountedCaller, name: string): DecidedLimit | null {
    const { limits, clientLimits, prefix } = current().config
    const limit = limits.find((limit) => limit.name === name)
    if (limit === undefined) return null
    const client = caller.find(({ word }) => word === 'client')?.value
    const key = callerKey(prefix, limit, caller)
    const rules = rulesOf({ clientLimits, overrides: overrides.limits }, limit, key, client)
    const nowMs = Date.now()
    const { limit: calls, source } = quotaOf(limit, '', nowMs, rules)
    return { limit: calls, decidedBy: source, because: reasonOf(limit, source, nowMs, rules) }
  }

  return {
    async usage(caller, signal) {
      const usage = await current().usage.ofCaller(caller, signal)
      return { ...usage, notes: notesOn(usage) }
    },
    async reset(caller, signal) {
      const { config, usage } = current()
      const fields = { caller: callerText(caller) }
      const freed = await usage.free(caller, signal).catch((error: Error) => {
        if (error.name !== 'UncountedCaller')
          log.warn({ ...fields, cause: error.message }, 'limit reset incomplete; counters remain')
        throw error
      })
      forget(caller)
      const keepsPlaces = config.limits.some((one) => one.isConcurrent && countsBy(one, caller))
      return { caller: showCaller(caller), freed, keepsPlaces }
    },
    findCaller(shown) {
      const set = overrides.values().map(({ caller }) => caller)
      return agreedCaller([...set.filter((caller) => showCaller(caller) === shown), activity.find(shown)])
    },
    async setLimits({ caller, set, untilAt, by, note }) {
      const { config, usage } = current()
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
      const asked = formatCaller(caller)
      const isListed = config.clients.some((client) => `client:${client.caller}` === asked)
      // Asked before: a limit of 0 shows no counted calls.
      const seen = isListed || (await isCounted(usage, caller))
      await overrides.change(added, removed)
      return {
        caller: showCaller(caller),
        limits: names.map((name, i) => ({ name, before: before[i]!, after: ruleOf(caller, name) })),
        shared: config.store !== 'memory',
        seen,
      }
    },

    async explain(question) {
      const { explained, quotas } = explain(current().config, question, overrides.limits)
      if (question.at !== undefined) return explained
      const limits = explained.limits.map(async (limit, i) => {
        const quota = quotas[i]
        if (!quota) return limit
        const [inspected] = await store.inspect([quota])
        const { allowance, mode } = inspected!
        const { limit: calls, used } = allowance
        if (mode === 'store') return { ...limit, used }
        return { ...limit, limit: calls, used, because: `${OUTAGE[mode]} ${quota.limit}; ${limit.because}` }
      })
      return { ...explained, limits: await Promise.all(limits).catch(() => explained.limits) }
    },
  }
}

/** Returns what the rows of a caller's limits do not say. */
function notesOn({ caller, limits, own, overrides, truncated }: CallerUsage): readonly string[] {
  const changes = limits.flatMap(({ name, changes }) =>
    changes.map(({ from, limit }) => `From ${from} on, "${name}" allows ${limit}.`),
  )
  const ofFile = own.map(({ name, limit, until }) => {
    const end = until === null ? '' : ` until ${until}`
    return `The file gives the client its own "${name}" of ${limit}${end}.`
  })
  const doubt = own.length + overrides.length === 0 ? ': check its spelling.' : '.'
  const notes: string[] = []
  if (limits.some(({ mode }) => mode !== 'store'))
    notes.push('Without Redis, this gateway counts what Redis last reported and its own calls.')
  if (!hasCalls(limits)) notes.push(`No calls of ${caller} are counted${doubt}`)
  notes.push(...new Set(changes))
  if (truncated) notes.push(`These are the first ${limits.length} keys; there are more.`)
  return notes.concat(ofFile)
}

const hasCalls = (limits: CallerUsage['limits']): boolean => limits.some(({ used }) => used > 0)

/** True if calls of the caller are counted now, or if the store does not answer. */
async function isCounted(usage: Usage, caller: CountedCaller): Promise<boolean> {
  const counted = await usage.ofCaller(caller).catch(() => undefined)
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
