import type { ApiKey } from '../../authenticate/key/api-keys.ts'
import type { PlanNumber, Plans } from '../../policy/plans.ts'

/** Returns the numbers of plans, as limits read them. */
export const planNumbers = (
  written: Readonly<Record<string, Readonly<Record<string, number>>>>,
): Plans['numbers'] =>
  new Map(
    Object.entries(written).map(([plan, numbers]) => [
      plan,
      new Map(Object.entries(numbers).map(([name, limit]): [string, PlanNumber] => [name, { plan, limit }])),
    ]),
  )

/** Returns the plans of clients: those under `clients`, and those of their keys. */
export function plansOfClients(
  clients: readonly { readonly caller: string; readonly plan?: string | undefined }[],
  keys: readonly ApiKey[],
): Plans['ofClients'] {
  const plans = new Map<string, string>()
  for (const { caller, plan } of clients) if (plan !== undefined) plans.set(caller, plan)
  for (const { client, plan } of keys) if (plan !== undefined) plans.set(client, plan)
  return plans
}
