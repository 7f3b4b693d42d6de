import { createApiKeys } from '../authenticate/key/api-keys.ts'
import type { Authenticate } from '../authenticate/token/bearer.ts'
import type { Config } from '../config/config.ts'
import { Refusal } from '../errors.ts'

/** Opens the API keys, for the routes of issuers as well; undefined without `keys`. */
export function openKeys({ keys, apiKeys, tokens }: Config, byToken: Authenticate) {
  if (keys === undefined) return undefined
  const withoutToken = tokens.length === 0 ? undefined : byToken([])
  const challenges = withoutToken instanceof Refusal ? withoutToken.headers['WWW-Authenticate'] : undefined
  return createApiKeys(keys.field, apiKeys, challenges)
}
