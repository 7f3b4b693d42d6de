import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Body } from '../../src/par/form.ts'
import { anyText } from '../helpers/any-text.ts'
import type { TestKey } from '../helpers/issuer.ts'
import {
  assertion,
  basic,
  encode,
  encodeForm,
  guardOf,
  KEY,
  KEYS,
  OTHER_KEY,
  plain,
  requestObject,
  unsignedObject,
} from '../helpers/par-request.ts'

const signing = { requestObjectSigningAlg: 'PS256', authentication: 'private_key_jwt', keys: KEYS }
const none = { requestObjectSigningAlg: 'none', keys: KEYS }
/** The client that the guard took the last request to be from. */
let named = ''
const guard = guardOf(
  {},
  {
    clientOf(id) {
      named = id
      if (id === 'signing') return { id, ...signing }
      return id === 'none' ? { id, ...none } : undefined
    },
  },
)

const names = (list: string) => fc.constantFrom(...list.split(' '))
const client = fc.constantFrom('signing', 'none', 'unlisted')
const json = fc.oneof(fc.json({ maxDepth: 3 }), anyText())
const anyJwt = fc
  .tuple(json, json, fc.constantFrom('', 'AA', 'AAAA', '%'))
  .map(([header, payload, signature]) =>
    [Buffer.from(header).toString('base64url'), Buffer.from(payload).toString('base64url'), signature].join(
      '.',
    ),
  )
/** Keys that are not of `signing`. */
const keyOf = (client: string): TestKey => (client === 'signing' ? OTHER_KEY : KEY)
/** JWTs with valid and arbitrary claims, and any header. */
const odd = fc.dictionary(
  names('iss sub aud exp nbf iat jti claims scope client_id request __proto__'),
  fc.jsonValue({ maxDepth: 2 }),
)
const oddHeader = fc.dictionary(names('alg typ kid crit jwk __proto__'), fc.jsonValue({ maxDepth: 1 }))
const oddAssertion = fc
  .tuple(client, odd, oddHeader)
  .map(([client, claims, header]) =>
    String(assertion(client, claims, { header, key: keyOf(client) })['client_assertion']),
  )
const oddObject = fc
  .tuple(client, odd, oddHeader)
  .chain(([client, claims, header]) =>
    fc.constantFrom(
      requestObject(client, claims, { header, key: keyOf(client) }),
      unsignedObject(client, claims, header),
    ),
  )
const text = fc.oneof(anyText(), json, anyJwt, oddAssertion, oddObject)
const fields = fc
  .tuple(
    client,
    fc.dictionary(
      names([...Object.keys(plain('x')), 'request request_uri client_secret client_assertion'].join(' ')),
      fc.option(text, { nil: undefined }),
    ),
    fc.boolean(),
  )
  .map(([client, fields, typed]) =>
    plain(client, {
      ...fields,
      ...(typed && { client_assertion_type: assertion('x')['client_assertion_type'] }),
    }),
  )

const request: fc.Arbitrary<Body> = fc.record({
  contentType: fc.oneof(
    { weight: 9, arbitrary: fc.constant('application/x-www-form-urlencoded') },
    fc.string(),
  ),
  authorization: fc.array(
    fc.oneof(
      anyText(),
      fc.base64String().map((text) => `Basic ${text}`),
      client.map((id) => basic(id)),
    ),
    { maxLength: 2 },
  ),
  body: fc.oneof(
    { weight: 9, arbitrary: fields.map(encodeForm) },
    fc.uint8Array().map((bytes) => Buffer.from(bytes)),
  ),
})

const CODES = ['invalid_request', 'invalid_client', 'invalid_request_object']

describe('for any request', () => {
  it('is answered with a client or a refusal in OAuth’s format, and never changed', async () => {
    await fc.assert(
      fc.asyncProperty(request, async (request) => {
        const before = Buffer.from(request.body)
        const answer = await guard('', request)
        expect(request.body.equals(before)).toBe(true)
        // The signature of `signing` is not to be had here, and plain parameters are not enough.
        if (answer === undefined) {
          expect(named).toMatch(/^\P{Surrogate}+$/su)
          expect(named).not.toBe('signing')
          return
        }
        expect(CODES).toContain(answer.oauthError)
        expect([400, 401]).toContain(answer.status)
        expect(answer.message).toMatch(/^[ !#-[\]-~]+$/)
      }),
      { numRuns: 400 },
    )
  })

  it('needs time proportional to its length', async () => {
    const deep = `${encode({ alg: 'none' })}.${Buffer.from('{"a":'.repeat(8000)).toString('base64url')}.`
    const wide = Buffer.from(`{${'"a":1,'.repeat(8000)}"a":1}`).toString('base64url')
    const before = process.cpuUsage()
    for (const request of [
      deep,
      `${encode({ alg: 'none' })}.${wide}.`,
      '.'.repeat(64_000),
      'A'.repeat(64_000),
      `${'A'.repeat(64_000)}.`,
    ]) {
      for (const client of ['signing', 'none']) {
        const contentType = 'application/x-www-form-urlencoded'
        const body = encodeForm({ client_id: client, request })
        const claims = encodeForm(plain(client, { claims: '['.repeat(60_000) }))
        await guard('', { contentType, authorization: [`Basic ${'A'.repeat(64_000)}!`], body })
        await guard('', { contentType, authorization: [], body })
        await guard('', { contentType, authorization: [], body: claims })
      }
    }
    // Microseconds of the processor: the square of the length would take minutes.
    expect(process.cpuUsage(before).user).toBeLessThan(3_000_000)
  })
})
