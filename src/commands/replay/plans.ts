import { KEY_IN_TEXT } from '../../authenticate/key/key-text.ts'
import type { Config } from '../../config/config.ts'
import { nearest } from '../../config/yaml/issue.ts'
import { UsageError } from '../args.ts'
import { cell, formatRows } from '../format.ts'
import { readGivenPlan } from '../given-plan.ts'

/** The plan that is tried on a client, and the one that it has; null means without a plan. */
interface TriedPlan {
  readonly client: string
  readonly plan: string | null
  readonly before: string | null
  /** The number of replayed calls of the client. */
  readonly calls: number
}

/**
 * Creates the plans of a replay: those of the configuration, with those of `--plan CLIENT=PLAN` in
 * place of the ones of their clients. Throws a UsageError for plans and clients that do not exist.
 */
export function createTrial(given: readonly string[], { plans, clients, apiKeys }: Config) {
  const tried = readTried(given, [...plans.numbers.keys()])
  const ofClients = new Map(plans.ofClients)
  for (const [client, plan] of tried)
    if (plan === null) ofClients.delete(client)
    else ofClients.set(client, plan)
  /** Replayed calls by client; empty if no plan is tried. */
  const calls = new Map<string, number>()

  function assertClient(client: string): void {
    if (calls.has(client)) return
    const configured = [...clients.map(({ caller }) => caller), ...apiKeys.map((key) => key.client)]
    if (configured.includes(client)) return
    const similar = nearest(client, [...calls.keys(), ...configured])
    const remedy = similar === undefined ? '' : ` Did you mean "${similar}"?`
    throw new UsageError(`Neither the logs nor the configuration have the client "${client}".${remedy}`)
  }

  return {
    plans: { ...plans, ofClients },
    count(client: string | undefined, added: number): void {
      if (tried.size > 0 && client !== undefined) calls.set(client, (calls.get(client) ?? 0) + added)
    },
    /** Returns the plans that were tried, after all calls. */
    report(): readonly TriedPlan[] {
      return [...tried].map(([client, plan]) => {
        assertClient(client)
        const before = plans.ofClients.get(client) ?? null
        return { client, plan, before, calls: calls.get(client) ?? 0 }
      })
    },
  }
}

function readTried(given: readonly string[], plans: readonly string[]): ReadonlyMap<string, string | null> {
  const tried = new Map<string, string | null>()
  for (const text of given) {
    // The id of a client may have "=", and the name of a plan has none.
    const end = text.lastIndexOf('=')
    const client = text.slice(0, Math.max(0, end))
    if (client === '') throw new UsageError('--plan must be CLIENT=PLAN, such as acme=pro.')
    if (KEY_IN_TEXT.test(client)) throw new UsageError('--plan has a key. Give the id of its client.')
    if (tried.has(client)) throw new UsageError(`--plan gives "${client}" two plans; remove one.`)
    tried.set(client, readGivenPlan(text.slice(end + 1), plans))
  }
  return tried
}

/** Formats the plans that were tried. */
export function describePlans(tried: readonly TriedPlan[]): string {
  const rows = tried.map(({ client, plan, before, calls }) => [
    cell(client),
    `${before ?? 'none'} -> ${plan ?? 'none'}`,
    calls,
  ])
  return formatRows(['CLIENT', 'PLAN', 'CALLS'], rows)
}
