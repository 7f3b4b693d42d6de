import type { RequestLine, Setting } from '../admin/limits.ts'
import type { AdminParts } from '../admin/server.ts'
import type { Config } from '../config/compile.ts'
import { nearest } from '../config/yaml/issue.ts'
import { InvalidQuestion } from '../errors.ts'
import { instant } from '../runtime/instant.ts'
import { quotaOf, reasonOf, rulesOf } from '../policy/rule.ts'
import type { LiveOverrides } from './overrides-live.ts'
import { isOverridable, listOverrides } from '../policy/overrides.ts'
import type { RedisStore } from '../limit/redis/store.ts'
import type { Store } from '../limit/store.ts'
import type { Usage } from '../gateway/usage.ts'
import type { ActivityValues } from '../observe/activity.ts'
import type { Log, LogEvent } from '../observe/log.ts'
import type { MetricValues } from '../observe/metrics.ts'
import type { Vitals } from '../observe/summary.ts'
import { type Explained, explainWithQuotas } from './explain.ts'

type Operations = ReturnType<typeof createOperations>

export type SettingResult = Awaited<ReturnType<Operations['setLimits']>>

export interface OperatorApi extends Operations, Pick<AdminParts, 'notReadyReason' | 'metrics'> {
  metricValues(): Promise<MetricValues>
  activity(): ActivityValues | Promise<ActivityValues>
  vitals(): Vitals | Promise<Vitals>
  /** Sends the id and the summary of this gateway to the others, and returns theirs. Rejects if Redis does not answer, and without Redis. */
  readonly exchange: RedisStore['exchange']
  /** Returns the latest events of all processes, in any order. */
  events(): readonly LogEvent[] | Promise<readonly LogEvent[]>
}

/** Creates the operators' requests to one process, which use the current configuration. */
export function createOperations(parts: {
  current(): { readonly config: Config; readonly usage: Usage }
  readonly overrides: Pick<LiveOverrides, 'change' | 'limits' | 'values'>
  readonly counters: Pick<Store, 'peek'>
  forget(client: string): void
  readonly log: Log
}) {
  const { current, overrides, counters, forget, log } = parts
  /** Returns the rule that decides a limit; null if the limit is not configured. */
  function ruleOf({ limits, clientLimits }: Config, client: string, name: string) {
    const limit = limits.find((limit) => limit.name === name)
    if (limit === undefined) return null
    const rules = rulesOf({ clientLimits, overrides: overrides.limits }, client, name)
    const nowMs = Date.now()
    const { limit: calls, source } = quotaOf(limit, '', nowMs, rules)
    return { limit: calls, decidedBy: source, because: reasonOf(limit, source, nowMs, rules) }
  }

  return {
    usage: (client: string, signal: AbortSignal) => current().usage.ofClient(client, signal),
    reset: (client: string, signal: AbortSignal) =>
      current()
        .usage.free(client, signal)
        .finally(() => forget(client)),

    /** Sets and removes overrides of a client atomically; rejects with an InvalidQuestion, and if the store does not answer. */
    async setLimits({ client, set, untilAt, by, note }: Setting) {
      const { config, usage } = current()
      const names = Object.keys(set)
      // An override remains when its limit is removed from the configuration.
      const isRemoval = (name: string) => set[name] === null && overrides.limits.get(client)?.has(name)
      for (const name of names) if (!isRemoval(name)) assertOverridable(config, name)
      const before = names.map((name) => ruleOf(config, client, name))
      const end = untilAt === null ? {} : { untilAt }
      const details = { setAt: Date.now(), ...end, ...(by && { by }), ...(note && { note }) }
      const added = Object.entries(set).flatMap(([name, limit]) =>
        limit === null ? [] : [{ client, name, limit, ...details }],
      )
      const removed = names.filter((name) => set[name] === null).map((name) => ({ client, name }))
      const isListed = config.clients.some(({ caller }) => caller === client)
      // Asked before: a limit of 0 shows no counted calls.
      const seen = isListed || (await isCounted(usage, client))
      await overrides.change(added, removed)
      const until = untilAt === null ? null : instant(untilAt)
      const fields = { client, set, ...(added.length > 0 && { until }), by, note }
      log.info(fields, 'client limits set by an operator')
      return {
        client,
        limits: names.map((name, i) => ({ name, before: before[i]!, after: ruleOf(config, client, name) })),
        /** True if all gateways share the overrides; false if only this process keeps them, until it exits. */
        shared: config.store !== 'memory',
        /** True if the client is listed or has counted calls, so that its id is probably right. */
        seen,
      }
    },

    overrides: async () => listOverrides(overrides.values(), current().config.limits, Date.now()),

    /** Explains a request, with the counted calls unless the question names an instant. */
    async explain(question: RequestLine): Promise<Explained> {
      const { explained, quotas } = explainWithQuotas(current().config, question, overrides.limits)
      if (question.at !== undefined) return explained
      const limits = explained.limits.map(async (limit, i) => {
        const quota = quotas[i]
        if (!quota) return limit
        const [allowance] = await counters.peek([quota])
        return { ...limit, used: allowance!.used }
      })
      return { ...explained, limits: await Promise.all(limits).catch(() => explained.limits) }
    },
  }
}

/** True if calls of the client are counted now, or if the store does not answer. */
const isCounted = (usage: Usage, client: string): Promise<boolean> =>
  usage.ofCaller(client).then(
    ({ limits }) => limits.some(({ limit, remaining }) => remaining < limit),
    () => true,
  )

function assertOverridable({ limits }: Config, name: string): void {
  const limit = limits.find((limit) => limit.name === name)
  if (limit !== undefined && isOverridable(limit)) return
  const names = limits.filter(isOverridable).map(({ name }) => name)
  const choice = `those that can be set are: ${names.join(', ') || 'none'}.`
  if (limit !== undefined)
    throw new InvalidQuestion(`The limit "${name}" does not count by the client first; ${choice}`)
  const meant = nearest(name, names)
  const advice = meant === undefined ? choice : `did you mean "${meant}"?`
  throw new InvalidQuestion(`There is no limit "${name}"; ${advice}`)
}
