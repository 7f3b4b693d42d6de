import type { Caller } from './facts.ts'

/** The number of calls that a plan has for a limit. */
export interface PlanNumber {
  /** The name of the plan. */
  readonly plan: string
  readonly limit: number
}

/** The plans of a configuration, and of its clients. */
export interface Plans {
  /** The name of a plan → the name of a limit → its number. */
  readonly numbers: ReadonlyMap<string, ReadonlyMap<string, PlanNumber>>
  /** Client → the name of its plan in the files; other clients may have one by a claim. */
  readonly ofClients: ReadonlyMap<string, string>
}

/** Returns the name of the plan of a caller, that of the files before that of its token; undefined without one. */
export function planOf({ numbers, ofClients }: Plans, { client, plan }: Pick<Caller, 'client' | 'plan'>) {
  const ofFiles = client === undefined ? undefined : ofClients.get(client)
  return ofFiles ?? (plan !== undefined && numbers.has(plan) ? plan : undefined)
}

/** Returns the plan that a caller's token names, if it is not a plan and no file names another. */
export function unknownPlanOf({ numbers, ofClients }: Plans, { client, plan }: Caller): string | undefined {
  if (plan === undefined || numbers.has(plan) || ofClients.has(client ?? '')) return undefined
  return plan
}
