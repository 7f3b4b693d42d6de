import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import { anyText } from '../helpers/any-text.ts'
import { readForm } from '../helpers/par-request.ts'
import { BAD_PUSHES } from '../edge/forms.ts'
import { assertion, encodeForm, guardOf, KEYS, plain, requestObject } from '../helpers/par-request.ts'
import { PATIENCE_MS, runs } from '../helpers/runs.ts'
import { words } from '../helpers/words.ts'

const FORM = 'application/x-www-form-urlencoded'
const guard = guardOf({
  signing: { requestObjectSigningAlg: 'PS256', authentication: 'private_key_jwt', keys: KEYS },
  c: {},
})
const seeds = [
  ...Object.values(BAD_PUSHES).map(({ body }) => body),
  String(encodeForm(plain('c'))),
  String(encodeForm({ ...assertion('signing'), request: requestObject('signing') })),
]
const put = fc.oneof(
  fc.constantFrom(
    '',
    ...words('& = % %00 %26 %3D + ; [] &a=b &client_id=d &request_uri=x &request= &resource=x&resource=y'),
    '\u0000',
    '\u00ff',
    'claims={}',
    '.',
  ),
  anyText({ maxLength: 3 }),
)
const change = fc.record({
  at: fc.double({ min: 0, max: 1, noNaN: true }),
  cut: fc.oneof(fc.nat(3), fc.nat(60)),
  put,
})
const body = fc
  .tuple(
    fc.constantFrom(...seeds),
    fc.array(change, { maxLength: 3 }),
    fc.constantFrom<BufferEncoding>('latin1', 'utf8'),
  )
  .map(([seed, changes, encoding]) =>
    Buffer.from(
      changes.reduce((text, { at, cut, put }) => {
        const i = Math.floor(at * (text.length + 1))
        return text.slice(0, i) + put + text.slice(i + cut)
      }, seed),
      encoding,
    ),
  )
const type = fc.oneof(
  { weight: 6, arbitrary: fc.constant(FORM) },
  fc.constantFrom(`${FORM};charset=utf-8`, `${FORM}; charset="latin1"`, 'text/plain', ''),
  fc.string(),
)

it(
  'any pushed form is parsed as URLSearchParams does, or refused with an OAuth error, and never throws',
  async () => {
    let taken = 0
    await fc.assert(
      fc.asyncProperty(
        body,
        type,
        fc.option(anyText(), { nil: undefined }),
        async (body, contentType, authorization) => {
          const before = Buffer.from(body)
          const form = readForm(contentType, body)
          if (!(form instanceof Refusal)) {
            const reference = new URLSearchParams(body.toString())
            for (const [name, value] of reference) {
              if (name === 'resource') continue
              expect(reference.getAll(name)).toHaveLength(1)
              expect(form.get(name) ?? '').toBe(value)
            }
            for (const name of form.keys()) expect(reference.has(name)).toBe(true)
          }
          const answer = await guard('', {
            contentType,
            authorization: authorization === undefined ? [] : [authorization],
            body,
          })
          expect(body.equals(before)).toBe(true)
          if (!(answer instanceof Refusal)) {
            taken++
            expect(form).not.toBeInstanceOf(Refusal)
            return
          }
          expect([400, 401, 413]).toContain(answer.status)
          expect(answer.oauthError).toMatch(/^invalid_(?:request|client|request_object)$/)
          expect(answer.message).toMatch(/^[ !#-[\]-~]+$/)
        },
      ),
      runs(4000),
    )
    expect(taken).toBeGreaterThan(0)
  },
  PATIENCE_MS,
)
