import type { RequestLine, Setting } from '../admin/limits.ts'
import type { Config } from '../config/schema.ts'
import { nearest } from '../config/yaml/issue.ts'
import { InvalidQuestion } from '../errors.ts'
import { decidedBy, inForce } from '../limit/in-force.ts'
import { instant } from '../limit/instant.ts'
import type { LiveOverrides } from '../limit/overrides-live.ts'
import { isOverridable, type ListedOverride, listOverrides, type Override } from '../limit/overrides.ts'
import type { Store } from '../limit/store.ts'
import { type ClientUsage, readUsed, type Usage } from '../limit/usage.ts'
import type { Log } from '../observe/log.ts'
import { explain, type Explained } from './explain.ts'

/** The rule that decides a limit. */
interface Rule {
  readonly limit: number
  readonly decidedBy: 'override' | 'client' | 'change' | 'limit'
  /** Why, in words. */
  readonly because: string
}

/** The outcome of a setting; a rule is null where the configuration has no such limit any more. */
export interface SettingResult {
  readonly client: string
  readonly limits: readonly {
    readonly name: string
    readonly before: Rule | null
    readonly after: Rule | null
  }[]
  /** True if all gateways share the overrides; false if this process alone keeps them, until it ends. */
  readonly shared: boolean
  /** True if the client is listed, or if calls of it are counted now: its id is right. */
  readonly seen: boolean
}

interface Current {
  readonly config: Config
  readonly usage: Usage
}

export type Operations = ReturnType<typeof createOperations>

/** Creates what operators ask of one process, under the configuration in force; `forget` drops what is remembered of a client. */
export function createOperations(
  current: () => Current,
  live: Pick<LiveOverrides, 'change' | 'limits' | 'values'>,
  counters: Pick<Store, 'peek'>,
  forget: (client: string) => void,
  log: Log,
) {
  function ruleOf({ limits, clientLimits }: Config, client: string, name: string): Rule | null {
    const limit = limits.find((one) => one.name === name)
    if (limit === undefined) return null
    const own = clientLimits.get(client)?.get(name)
    const set = live.limits.get(client)?.get(name)
    const nowMs = Date.now()
    return { limit: inForce(limit, own, set, nowMs).limit, ...decidedBy({ limit, own, set }, nowMs) }
  }

  return {
    usage: (client: string, signal: AbortSignal): Promise<ClientUsage> =>
      current().usage.ofClient(client, signal),
    reset: (client: string, signal: AbortSignal): Promise<number> =>
      current()
        .usage.free(client, signal)
        .finally(() => forget(client)),

    /** Sets and removes overrides of a client, all or none; rejects with an InvalidQuestion, and if the store does not answer. */
    async setLimits({ client, set, untilAt, by, note }: Setting): Promise<SettingResult> {
      const { config, usage } = current()
      const names = Object.keys(set)
      // An override outlives its limit, and must be removable.
      const isGone = (name: string): boolean =>
        set[name] === null && live.limits.get(client)?.has(name) === true
      for (const name of names) if (!isGone(name)) assertOverridable(config, name)
      const before = names.map((name) => ruleOf(config, client, name))
      const setAt = Date.now()
      const rest = { ...(untilAt !== null && { untilAt }), ...(by && { by }), ...(note && { note }) }
      const wanted = Object.entries(set)
      const added = wanted.flatMap(([name, limit]): readonly Override[] =>
        limit === null ? [] : [{ client, name, limit, setAt, ...rest }],
      )
      const removed = wanted.flatMap(([name, limit]) => (limit === null ? [{ client, name }] : []))
      await live.change(added, removed)
      const until = untilAt === null ? null : instant(untilAt)
      log.info(
        { client, set, ...(added.length > 0 && { until }), by, note },
        'client limits set by an operator',
      )
      const limits = names.map((name, i) => ({
        name,
        before: before[i]!,
        after: ruleOf(config, client, name),
      }))
      const isListed = config.clients.some(({ caller }) => caller === client)
      const shared = config.store !== 'memory'
      return { client, limits, shared, seen: isListed || (await isCounted(usage, client)) }
    },

    overrides: async (): Promise<readonly ListedOverride[]> =>
      listOverrides(live.values(), current().config.limits, Date.now()),

    /** Explains a request; unless it is asked for another instant than now, with the calls that are counted. */
    async explain(question: RequestLine): Promise<Explained> {
      const explained = explain(current().config, question, live.limits)
      if (question.at !== undefined) return explained
      const limits = explained.limits.map(async (limit) => {
        if (limit.key === null) return limit
        const [used] = await readUsed(counters, [{ ...limit, key: limit.key }])
        return { ...limit, used: used! }
      })
      return { ...explained, limits: await Promise.all(limits).catch(() => explained.limits) }
    },
  }
}

/** True if calls of the client are counted now, or if that cannot be asked. */
const isCounted = (usage: Usage, client: string): Promise<boolean> =>
  usage.ofCaller(client).then(
    ({ limits }) => limits.some(({ limit, remaining }) => remaining < limit),
    () => true,
  )

function assertOverridable({ limits }: Config, name: string): void {
  const limit = limits.find((one) => one.name === name)
  if (limit !== undefined && isOverridable(limit)) return
  const what =
    limit === undefined
      ? `There is no limit "${name}"`
      : `The limit "${name}" does not count by the client first`
  const known = limits.filter(isOverridable).map((one) => one.name)
  const meant = limit === undefined ? nearest(name, known) : undefined
  const advice =
    meant === undefined
      ? `those that can be set are: ${known.join(', ') || 'none'}.`
      : `did you mean "${meant}"?`
  throw new InvalidQuestion(`${what}; ${advice}`)
}
