import fc from 'fast-check'
import { expect, it } from 'vitest'
import { createBearer } from '../../src/authenticate/token/bearer.ts'
import { Refusal } from '../../src/errors.ts'
import { anyText } from '../helpers/any-text.ts'
import { keysOf, trust } from '../helpers/trust.ts'
import { BAD_CREDENTIALS } from '../edge/credentials.ts'
import { startIssuer } from '../helpers/issuer.ts'
import { PATIENCE_MS, runs } from '../helpers/runs.ts'
import { words } from '../helpers/words.ts'

const issuer = await startIssuer({ algorithms: ['ES256'] })
const keys = await keysOf(issuer, { cooldownMs: 600_000 })
const authenticate = createBearer([trust(issuer, keys)])
const good = issuer.token()

const put = fc.oneof(
  fc.constantFrom(
    '',
    '.',
    '=',
    '==',
    '-',
    '_',
    '+',
    '/',
    ' ',
    '\t',
    ',',
    'A',
    'Bearer ',
    'DPoP ',
    '"',
    '%2E',
    '\u0000',
    'e30',
    'bnVsbA',
  ),
  fc.string({ maxLength: 4 }),
  fc.base64String({ maxLength: 12 }),
)
/** One change of a string: at a position, a number of characters is replaced by a string. */
const change = fc.record({ at: fc.double({ min: 0, max: 1, noNaN: true }), cut: fc.nat(6), put })
const changed = (text: string, changes: readonly { at: number; cut: number; put: string }[]): string =>
  changes.reduce((sofar, { at, cut, put }) => {
    const i = Math.floor(at * (sofar.length + 1))
    return sofar.slice(0, i) + put + sofar.slice(i + cut)
  }, text)

const json = fc.jsonValue({ maxDepth: 2 })
const claims = fc.dictionary(
  fc.constantFrom(...words('iss aud exp nbf iat sub client_id cnf scope events __proto__')),
  json,
)
const header = fc.dictionary(
  fc.constantFrom('alg', 'kid', 'typ', 'crit', 'b64', 'jwk', 'jku', 'zip', '__proto__'),
  json,
)
const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')
/** The parts of a valid token, with replacements for some of them. */
const forged = fc
  .record({
    header: fc.option(header),
    claims: fc.option(claims),
    signature: fc.option(fc.constantFrom('', 'AAAA', 'A'.repeat(86))),
  })
  .filter((parts) => Object.values(parts).some((part) => part !== null))
  .map((parts) => () => {
    const [head, payload, signature] = good.split('.') as [string, string, string]
    const members = (part: string) => JSON.parse(Buffer.from(part, 'base64url').toString()) as object
    return [
      parts.header === null ? head : encode({ ...members(head), ...parts.header }),
      parts.claims === null ? payload : encode({ ...members(payload), ...parts.claims }),
      parts.signature ?? signature,
    ].join('.')
  })
const value = fc.oneof(
  fc.array(change, { minLength: 1, maxLength: 3 }).map((changes) => () => changed(`Bearer ${good}`, changes)),
  forged.map((make) => () => `Bearer ${make()}`),
  fc.tuple(fc.constantFrom(...Object.values(BAD_CREDENTIALS)), fc.array(change, { maxLength: 2 })).map(
    ([make, changes]) =>
      () =>
        changed(make(good), changes),
  ),
  anyText().map((text) => () => text),
)

it(
  'accepts only the exact valid token among any credentials, and never throws',
  async () => {
    expect(await authenticate([`Bearer ${good}`])).toMatchObject({ client: 'client-1' })
    await fc.assert(
      fc.asyncProperty(fc.array(value, { maxLength: 2 }), async (makers) => {
        const values = makers.map((make) => make())
        const verdict = await authenticate(values)
        if (!(verdict instanceof Refusal)) {
          // RFC 9110 section 11.1: the scheme in any case, and one or more blanks.
          expect(values.map((text) => text.replace(/^bearer +/i, ''))).toEqual([good])
          return
        }
        expect([400, 401]).toContain(verdict.status)
        expect(String(verdict.headers['WWW-Authenticate'])).toMatch(
          /^Bearer realm="test"(?:, error="invalid_(?:token|request)", error_description="[ !#-[\]-~]+")?$/,
        )
      }),
      runs(1000),
    )
    expect(issuer.asked.jwks).toBeLessThan(4)
  },
  PATIENCE_MS,
)
