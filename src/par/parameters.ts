import { type JsonObject, parseObject } from '../authenticate/token/jws.ts'
import type { Refusal } from '../errors.ts'
import { invalidRequest } from './refusal.ts'

const REQUIRED = ['client_id', 'scope', 'response_type', 'redirect_uri']

/** Checks the parameters of an authorisation request (OpenID Connect Core section 3.1.2.1); `where` says where they stand. */
export function refuseParameters(
  get: (name: string) => unknown,
  where: 'form' | 'request object',
): Refusal | undefined {
  for (const name of REQUIRED) {
    const value = get(name)
    if (typeof value !== 'string' || value === '') return invalidRequest(`Send ${name} in the ${where}.`)
  }
  if (!(get('scope') as string).split(' ').includes('openid')) {
    return invalidRequest(`The scope in the ${where} must have openid.`)
  }
  const claims = get('claims')
  if (claims === undefined || claims === '' || isClaimsRequest(claims)) return undefined
  return invalidRequest(
    `The claims in the ${where} must be a JSON object with id_token or userinfo, each an object.`,
  )
}

/** OpenID Connect Core section 5.5. What is asked of a single claim is for the identity backend to read: real clients write `"true"`. */
function isClaimsRequest(value: unknown): boolean {
  const claims = typeof value === 'string' ? parseObject(Buffer.from(value)) : value
  if (!isObject(claims)) return false
  const members = [claims['id_token'], claims['userinfo']].filter((member) => member !== undefined)
  return members.length > 0 && members.every(isObject)
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
