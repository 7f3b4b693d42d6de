import { shown } from '../authenticate/jose/cause.ts'
import { redactUrl } from '../authenticate/jose/fetch-json.ts'
import type { Jws } from '../authenticate/jose/jws.ts'
import { type KeySet, lacksKey, loadKeys } from '../authenticate/jose/key-set.ts'
import type { Tokens } from '../config/config.ts'
import { toError } from '../runtime/to-error.ts'
import { keysFrom } from './open-issuers.ts'
import { okIf, type TokenCheck } from './token-checks.ts'

/** A set that stands for keys that were not fetched. Every signature passes, so that the claims decide. */
export const ASSUMED: KeySet = { keys: [], source: '', find: () => [], verifies: () => true }
/** A set for the issuers of other tokens. */
export const UNUSED: KeySet = { ...ASSUMED, verifies: () => false }

const NOT_FETCHED = 'not fetched (--offline)'
/** Maximum `kid` that are listed. */
const MAX_LISTED = 10

/** The keys of an issuer, or why there are none. */
interface IssuerKeys {
  readonly keys: KeySet | undefined
  readonly from: string
}

/**
 * Reads the keys of an issuer as the gateway would. Never rejects. If `offline`, reads only a file;
 * returns `ASSUMED` for other keys.
 */
export async function readIssuerKeys(tokens: Tokens, offline: boolean): Promise<IssuerKeys> {
  const location = keysFrom(tokens)
  const { jwks } = location
  const isRemote = typeof jwks !== 'string' || /^https?:/i.test(jwks)
  if (offline && isRemote) return { keys: ASSUMED, from: NOT_FETCHED }
  try {
    const from = typeof jwks === 'string' ? redactUrl(jwks) : 'the jwks_uri of its discovery document'
    return { keys: await loadKeys(location), from }
  } catch (error) {
    return { keys: undefined, from: toError(error).message }
  }
}

/** Checks the key and the signature of a JWT. */
export function keyChecks(jws: Jws, { keys, from }: IssuerKeys): TokenCheck[] {
  const { alg, kid } = jws.header
  const value = shown(kid)
  if (keys === undefined || keys === ASSUMED) {
    const why = 'the keys were not read'
    return [
      { check: 'keys', result: keys === undefined ? 'failed' : 'unknown', value: '-', accepted: from },
      { check: 'kid', result: 'unknown', value, accepted: why },
      { check: 'signature', result: 'unknown', value: '-', accepted: why },
    ]
  }
  const kids = keys.keys.map((key) => key.kid ?? 'without kid')
  const more = kids.length > MAX_LISTED ? `, and ${kids.length - MAX_LISTED} more` : ''
  const fitting = `${keys.find(alg, kid).length} of ${kids.length} keys fit kid and alg`
  return [
    { check: 'keys', result: 'ok', value: '-', accepted: `${kids.length} from ${from}` },
    {
      check: 'kid',
      result: okIf(!lacksKey(keys, jws)),
      value,
      accepted: `${kids.slice(0, MAX_LISTED).join(', ')}${more}`,
    },
    {
      check: 'signature',
      result: okIf(keys.verifies(jws)),
      value: fitting,
      accepted: 'valid by one of them',
    },
  ]
}
