import { describe, expect, it } from 'vitest'
import {
  assertion,
  ASSERTION_TYPE,
  basic,
  encode,
  encodeForm,
  guardOf,
  ISSUER,
  KEYS,
  OTHER_KEY,
  PASSED,
  plain,
  push,
  refusal,
  requestObject,
  unsignedObject,
} from '../helpers/par-request.ts'

/** Clients as an operator lists them; `unlisted` is not among them. */
const guard = guardOf({
  signing: { requestObjectSigningAlg: 'PS256', authentication: 'private_key_jwt', keys: KEYS },
  keyed: { requestObjectSigningAlg: 'none', authentication: 'private_key_jwt', keys: KEYS },
  secret: { requestObjectSigningAlg: 'none', authentication: 'client_secret_basic' },
  certificate: { authentication: 'tls_client_auth' },
  public: { authentication: 'none' },
  'macs/with:key': { authentication: 'client_secret_jwt', keys: KEYS },
  bare: {},
})
const NO_SUB = /must be a JWT with the client_id as sub/
const challenge = { 'WWW-Authenticate': `Basic realm="${ISSUER}"` }
const asSecret = { authorization: basic('secret') }

describe('the guard accepts', () => {
  it.each([
    ['a signed JWT and a client assertion', 'signing', { request: requestObject('signing') }],
    ['those and a client_id', 'signing', { client_id: 'signing', request: requestObject('signing') }],
    ['separate parameters with claims "true"', 'keyed', plain('keyed')],
    ['the setting none and an unsigned request object', 'keyed', { request: unsignedObject('keyed') }],
    ['the setting none and a signed object', 'keyed', { request: requestObject('keyed') }],
  ])('%s', async (_, client, fields) => {
    expect(await push(guard, { ...fields, ...assertion(client) })).toBe(PASSED)
  })

  it.each([
    ['Basic and plain parameters', plain('secret'), asSecret],
    ['Basic and an unsigned object', { request: unsignedObject('secret') }, asSecret],
    ['Basic and its own client_id', { client_id: 'secret', request: unsignedObject('secret') }, asSecret],
    ['a signed object of a client without keys', { request: requestObject('secret') }, asSecret],
    ['client_secret_post instead of basic', { ...plain('secret'), client_secret: 'x' }, {}],
    [
      'Basic with reserved characters in the client',
      plain('macs/with:key'),
      { authorization: basic('macs/with:key', '+&=%') },
    ],
    ['Basic in lower case', plain('secret'), { authorization: basic('secret').replace('Basic', 'basic') }],
    ['a client with a certificate and nothing else', plain('certificate'), {}],
    ['a public client', plain('public'), {}],
    ['a listed client without settings', plain('bare'), {}],
    ['a client that is not listed', plain('unlisted'), {}],
    ['its unsigned object', { client_id: 'unlisted', request: unsignedObject('unlisted') }, {}],
    ['its object that is none', { client_id: 'unlisted', request: 'nonsense' }, {}],
    [
      'its assertion, without a client_id',
      { request: 'x', ...assertion('unlisted', {}, { key: OTHER_KEY }) },
      {},
    ],
    ['its secret', plain('unlisted'), { authorization: basic('unlisted') }],
    [
      'a parameter without value, as if it were not there',
      { ...plain('public'), client_secret: '', request: '', client_assertion: '', client_assertion_type: '' },
      {},
    ],
    ['resource twice', plain('public', { resource: ['https://a.example', 'https://b.example'] }), {}],
    ['parameters that it does not know', plain('public', { x_own_parameter_1: '{"a":[1]}' }), {}],
    [
      'an identifier in the scope',
      plain('public', { scope: 'id:1ffe704d39629a929c8e293880fb449a openid' }),
      {},
    ],
    ['userinfo claims', plain('public', { claims: '{"userinfo":{}}' }), {}],
    ['no claims', plain('public', { claims: undefined }), {}],
  ])('%s', async (_, fields, sent) => {
    expect(await push(guard, fields, sent)).toBe(PASSED)
  })

  it.each([
    'application/x-www-form-urlencoded;charset=UTF-8',
    'Application/X-WWW-Form-URLEncoded ; Charset="utf-8"',
    'application/x-www-form-urlencoded; charset=ISO-8859-1',
    'application/x-www-form-urlencoded;',
    'application/x-www-form-urlencoded; charset=utf-8;',
    'application/x-www-form-urlencoded; charset=utf-8; x=y',
    'application/x-www-form-urlencoded; boundary=x',
  ])('a form of the type %s', async (contentType) => {
    expect(await push(guard, plain('public'), { contentType })).toBe(PASSED)
  })
})

/** What edge/forms.ts sends to the gateway, too, is tested there. */
describe('the guard refuses in a form', () => {
  it('bytes beyond ASCII in another charset than UTF-8', async () => {
    const contentType = 'application/x-www-form-urlencoded;charset=iso-8859-1'
    const answer = await push(guard, `${encodeForm(plain('public')).toString()}&x=é`, { contentType })
    expect(answer).toEqual(refusal(400, 'invalid_request', /UTF-8/))
  })

  const UUID = '9f2d6c1e-0b5a-4c1d-8f3e-2a6b7c8d9e0f'
  const PLAIN_UUID = UUID.replaceAll('-', '')
  const listed = guardOf({ signing: {}, [UUID]: {}, '0F0F0F0F0F0F0F0F0F0F0F0F0F0F0F0F': {} })

  it.each([
    'SIGNING',
    'Signing',
    'signing ',
    ' signing',
    'sign ing',
    UUID.toUpperCase(),
    PLAIN_UUID,
    `{${UUID}}`,
    `(${UUID})`,
    `urn:uuid:${UUID}`,
    `URN:UUID:{${PLAIN_UUID}}`,
    `${PLAIN_UUID.slice(0, 4)}-${PLAIN_UUID.slice(4)}`,
    '0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f',
  ])('the client_id %j, which a database may treat as a listed one', async (client) => {
    const words = /client_id is not spelt/
    expect(await push(listed, plain(client))).toEqual(refusal(400, 'invalid_request', words))
    const sent = { authorization: basic(client) }
    expect(await push(listed, plain('x', { client_id: undefined, request: 'x' }), sent)).toEqual(
      refusal(400, 'invalid_request', words),
    )
  })

  it.each([
    'signing\t',
    'signing\u007f',
    'ｓigning',
    'signing\u200b',
    'ſigning',
    'sígner',
    '\ufeffsigning',
    'x'.repeat(256),
    `\u0315\u0300`.repeat(10_000),
  ])('the client_id %j, which is not printable ASCII of 255 characters', async (client) => {
    const words = /printable ASCII/
    expect(await push(listed, plain(client))).toEqual(refusal(400, 'invalid_request', words))
    expect(
      await push(listed, plain('x', { client_id: undefined }), { authorization: basic(client) }),
    ).toEqual(refusal(400, 'invalid_request', words))
  })

  it.each(['x'.repeat(255), '~ !"#$%&/()=?', `${UUID}0`, UUID.replace('9', '8')])(
    'no other client_id: %j',
    async (client) => expect(await push(listed, plain(client))).toBe(PASSED),
  )

  it('no listed client whose id differs only in case', async () => {
    const both = guardOf({ case: {}, CASE: {} })
    expect(await push(both, plain('case'))).toBe(PASSED)
    expect(await push(both, plain('CASE'))).toBe(PASSED)
  })

  it.each([
    ['a parameter twice', { scope: ['openid', 'openid'] }, /parameter scope once/],
    ['a request_uri', { request_uri: 'urn:ietf:params:oauth:request_uri:x' }, /request_uri/],
    ['a request_uri without value, which a server may treat as given', { request_uri: '' }, /request_uri/],
    ['no client_id', { client_id: undefined }, /client_id is missing/],
    ['no scope', { scope: undefined }, /Send scope/],
    ['a scope without openid', { scope: 'openid2 id:openid' }, /openid/],
    ['no response_type', { response_type: '' }, /Send response_type/],
    ['no redirect_uri', { redirect_uri: undefined }, /Send redirect_uri/],
    ['claims that are not JSON', { claims: '{id_token:{}}' }, /claims/],
    ['claims that are a list', { claims: '[]' }, /claims/],
    ['claims that are null', { claims: 'null' }, /claims/],
    ['claims that ask for nothing known', { claims: '{"access_token":{}}' }, /claims/],
    ['claims with an id_token that is not an object', { claims: '{"id_token":"true"}' }, /claims/],
    ['claims with a userinfo that is a list', { claims: '{"id_token":{},"userinfo":[]}' }, /claims/],
    [
      'an assertion without its type',
      { ...assertion('public'), client_assertion_type: undefined },
      /client_assertion_type=/,
    ],
    [
      'an assertion of another type',
      {
        ...assertion('public'),
        client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:saml2-bearer',
      },
      /client_assertion_type=/,
    ],
    ['a type without its assertion', { client_assertion_type: ASSERTION_TYPE }, /Send both client_assertion/],
    ['a secret and an assertion', { ...assertion('public'), client_secret: 'x' }, /only one of/],
    ['an assertion of another client than the client_id', assertion('keyed'), /not the one in/],
    ['an assertion that is not a JWT', { ...assertion(''), client_assertion: 'x' }, NO_SUB],
    ['an assertion that is encrypted', { ...assertion(''), client_assertion: 'e30.e30.e30.e30.e30' }, NO_SUB],
    [
      'an assertion that others could read, with the sub of another',
      { ...assertion(''), client_assertion: `${encode({ alg: 'PS256' })}=.${encode({ sub: 'keyed' })}.AA` },
      NO_SUB,
    ],
    ['an assertion without a sub', assertion('', { sub: undefined }), NO_SUB],
    ['an assertion whose sub is a list', assertion('', { sub: ['public', 'unlisted'] }), NO_SUB],
  ])('%s', async (_, fields, words) => {
    for (const client of ['public', 'unlisted']) {
      expect(await push(guard, plain(client, fields))).toEqual(refusal(400, 'invalid_request', words))
    }
  })

  it.each([
    ['Basic and client_secret', { client_secret: 'x' }, basic('public'), /only one of/],
    ['Basic and an assertion', assertion('public'), basic('public'), /only one of/],
    ['two Authorization headers', {}, [basic('public'), basic('public')], /only one of/],
    ['Basic of another client than the client_id', {}, basic('secret'), /not the one in/],
    ['another scheme', {}, 'Bearer abc', /Authorization header/],
    ['Basic without a colon', {}, `Basic ${btoa('public')}`, /Authorization header/],
  ])('%s', async (_, fields, authorization, words) => {
    const answer = await push(guard, plain('public', fields), { authorization })
    expect(answer).toEqual(refusal(400, 'invalid_request', words))
  })

  it('a client_id that is only in the request object', async () => {
    const answer = await push(guard, { request: unsignedObject('public') })
    expect(answer).toEqual(refusal(400, 'invalid_request', /client_id is missing/))
  })

  it.each(['client_id', 'scope', 'response_type', 'redirect_uri'])(
    'a %s that is in the Authorization header or nowhere, if plain parameters are sent',
    async (name) => {
      const answer = await push(guard, plain('secret', { [name]: undefined }), asSecret)
      expect(answer).toEqual(refusal(400, 'invalid_request', new RegExp(`Send ${name}`)))
    },
  )

  it('its parameters, before it checks the client', async () => {
    const forged = assertion('keyed', {}, { key: OTHER_KEY })
    expect(await push(guard, { ...plain('keyed'), ...forged })).toMatchObject({ status: 401 })
    expect(await push(guard, { ...plain('keyed', { scope: 'x' }), ...forged })).toMatchObject({ status: 400 })
  })
})

describe('the guard refuses of a client', () => {
  it.each(['secret', 'keyed', 'signing', 'macs/with:key'])('no authentication of %s', async (client) => {
    const answer = await push(guard, plain(client))
    expect(answer).toEqual(
      refusal(400, 'invalid_request', /must authenticate by (?:client_secret|private_key)/),
    )
  })

  it('a secret instead of a signature, with a challenge if Basic was used', async () => {
    const words = /must authenticate by private_key_jwt/
    expect(await push(guard, plain('keyed', { client_secret: 'x' }))).toEqual(
      refusal(401, 'invalid_client', words),
    )
    expect(await push(guard, plain('keyed'), { authorization: basic('keyed') })).toEqual(
      refusal(401, 'invalid_client', words, challenge),
    )
  })

  it('an unlisted client under unknownClients: refuse', async () => {
    const closed = guardOf({ secret: {} }, { unknownClients: 'refuse' })
    const words = /not known/
    expect(await push(closed, plain('secret'), asSecret)).toBe(PASSED)
    expect(await push(closed, plain('other'))).toEqual(refusal(401, 'invalid_client', words))
    const answer = await push(closed, plain('unlisted'), { authorization: basic('unlisted') })
    expect(answer).toEqual(refusal(401, 'invalid_client', words, challenge))
  })

  it('its authentication, before it checks the request object', async () => {
    const bad = { request: 'nonsense' }
    expect(await push(guard, { ...bad, ...assertion('signing', { exp: 1 }) })).toMatchObject({ status: 401 })
    expect(await push(guard, { ...bad, ...assertion('signing') })).toMatchObject({
      status: 400,
      error: 'invalid_request_object',
    })
  })

  it('signing on and plain parameters', async () => {
    const answer = await push(guard, { ...plain('signing'), ...assertion('signing') })
    expect(answer).toEqual(refusal(400, 'invalid_request', /request object signed with PS256/))
    const empty = await push(guard, { ...plain('signing'), request: '', ...assertion('signing') })
    expect(empty).toEqual(answer)
  })
})

describe('the text of a refusal', () => {
  it('the text of a refusal is ASCII without quotes, and repeats neither secret nor assertion', async () => {
    const forged = assertion('keyed', {}, { key: OTHER_KEY })
    const answers = [
      await push(guard, { ...plain('keyed'), ...forged }),
      await push(guard, plain('keyed', { client_secret: 'hunter2' })),
      await push(guard, plain('keyed', { client_secret: ['hunter2', 'hunter2'] })),
      await push(guard, 'client_secret=hunter2%'),
      await push(guard, 'hunter"2=1'),
      await push(guard, plain('keyed'), { authorization: 'Basic hunter2!' }),
    ]
    for (const answer of answers) {
      const { description, headers } = answer as { description: string; headers: object }
      // RFC 6749 section 5.2.
      expect(description).toMatch(/^[ !#-[\]-~]+$/)
      expect(JSON.stringify([description, headers])).not.toContain('hunter')
      expect(description).not.toContain((forged['client_assertion'] as string).slice(0, 20))
    }
  })

  it('quotes a realm that is not valid in a header', async () => {
    const odd = guardOf({}, { unknownClients: 'refuse', issuer: 'https://é"\\.example/oidc' })
    expect(await push(odd, plain('x'), { authorization: basic('x') })).toMatchObject({
      headers: { 'WWW-Authenticate': 'Basic realm="https://.example/oidc"' },
    })
  })
})
