import { stat } from 'node:fs/promises'
import type { ApiKey } from '../authenticate/key/api-keys.ts'
import { createQualifier } from '../authenticate/token/bearer.ts'
import { foldClientId } from '../par/clients.ts'
import type { ClientLimit } from '../policy/limit.ts'
import type { Client, Compiled } from './config.ts'
import type { SettingsFiles } from './files.ts'
import { ACCESS_BY_OTHERS, CHANGES_BY_OTHERS } from './keys/access.ts'
import { readKeys } from './keys/keys-file.ts'
import { planNumbers, plansOfClients } from './keys/plans.ts'
import type { Settings } from './schema.ts'

export type Issuers = readonly Exclude<NonNullable<Settings['tokens']>, readonly unknown[]>[]

/** Compiles the clients of the file and of the keys' file, with their limits and plans. */
export async function compileClients(settings: Settings, issuers: Issuers, files: SettingsFiles) {
  const apiKeys = await compileApiKeys(settings, files)
  const keys = await compileKeysFile(settings, apiKeys, files)
  const { clients, clientLimits } = ownLimitsOf(settings, issuers)
  checkPlans(clients, apiKeys, files)
  const plans = { numbers: planNumbers(settings.plans), ofClients: plansOfClients(clients, apiKeys) }
  return { keys, apiKeys, clients, clientLimits, plans }
}

/** Resolves the file of keys, and whether its mode lets others read or change it. */
async function compileKeysFile({ keys }: Settings, apiKeys: readonly ApiKey[], files: SettingsFiles) {
  if (keys === undefined) return undefined
  const file = files.pathOf(keys.file)
  const mode = await stat(file).then(
    (found) => found.mode & 0o777,
    () => 0,
  )
  // A file without keys has nothing that its readers must not know.
  const excess = mode & (apiKeys.length === 0 ? CHANGES_BY_OTHERS : ACCESS_BY_OTHERS)
  return { ...keys, file, openMode: excess === 0 ? undefined : mode }
}

const CREATES = '; "sluice keys create ID" creates it'

/** Reads the API keys. Throws a `ConfigError` for mistakes within their file. */
async function compileApiKeys({ keys, plans }: Settings, files: SettingsFiles): Promise<readonly ApiKey[]> {
  const text = await files.read(['keys', 'file'], keys?.file, () => undefined, { creates: CREATES })
  return text === undefined ? [] : readKeys(text, files.pathOf(keys!.file), Object.keys(plans))
}

/** Reports clients whose keys have another plan. */
function checkPlans(clients: readonly Client[], apiKeys: readonly ApiKey[], files: SettingsFiles): void {
  const ofKeys = plansOfClients([], apiKeys)
  for (const [i, { caller, plan }] of clients.entries()) {
    const other = ofKeys.get(caller)
    if (plan !== undefined && other !== undefined && other !== plan)
      files.report(
        ['clients', i, 'plan'],
        `is not "${other}", which the keys of the client have; remove one of them`,
      )
  }
}

function ownLimitsOf(settings: Settings, issuers: Issuers): Pick<Compiled, 'clients' | 'clientLimits'> {
  const qualify = createQualifier(issuers.map(({ issuer }) => issuer))
  const clientLimits = new Map<string, ReadonlyMap<string, ClientLimit>>()
  const clients = settings.clients.map(({ limits: own, jwks, jwksUri, ...client }): Client => {
    const issuer = issuers.find(({ names }) => names.includes(client.issuer ?? ''))?.issuer
    const caller = qualify(client.id, issuer)
    if (Object.keys(own).length > 0) clientLimits.set(caller, new Map(Object.entries(own)))
    const location = jwksUri === undefined ? undefined : { url: jwksUri }
    return { ...client, caller, folded: foldClientId(client.id), jwks: jwks ?? location }
  })
  return { clients, clientLimits }
}
