import { describe, expect, it, vi } from 'vitest'
import { createAuthorizationGuard } from '../../src/par/authorization.ts'
import type { ParClient } from '../../src/par/clients.ts'
import type { Body } from '../../src/par/form.ts'
import {
  encodeForm,
  guardOptions,
  KEYS,
  NOW,
  OTHER_KEY,
  plain,
  requestObject,
  unsignedObject,
} from '../helpers/par-request.ts'

const URN = 'urn:ietf:params:oauth:request_uri:a-1'
const CLIENTS: Readonly<Record<string, Omit<ParClient, 'id'>>> = {
  signing: { requestObjectSigningAlg: 'PS256', keys: KEYS },
  pushing: { pushed: 'required', requestObjectSigningAlg: 'none' },
  both: { pushed: 'required', requestObjectSigningAlg: 'PS256', keys: KEYS },
  none: { requestObjectSigningAlg: 'none' },
  'of-limits': {},
}
const guard = createAuthorizationGuard(guardOptions(CLIENTS))

type Members = Readonly<Record<string, unknown>>
const encoded = (fields: Members | string): string =>
  typeof fields === 'string' ? fields : encodeForm(fields).toString()

/** Checks as of `NOW`; returns the message of the refusal, or `passed`. */
async function checked(query: string, form?: Body): Promise<string> {
  vi.setSystemTime(NOW * 1000)
  const refusal = await guard(`?${query}`, form).finally(() => vi.useRealTimers())
  if (refusal === undefined) return 'passed'
  expect([refusal.status, refusal.headers]).toEqual([400, {}])
  return refusal.message
}
const get = (fields: Members | string) => checked(encoded(fields))
const post = (fields: Members | string, query = '', contentType = 'application/x-www-form-urlencoded') =>
  checked(query, { contentType, body: Buffer.from(encoded(fields)) })

const signed = { client_id: 'signing', request: requestObject('signing') }

describe.each([
  ['a query', get],
  ['a form', (fields: Members | string) => post(fields)],
])('in %s', (_, send) => {
  it.each<[string, Members]>([
    ['a pushed request', { client_id: 'signing', request_uri: URN }],
    ['a signed request object', signed],
    ['a signed request object and other parameters', { ...plain('signing'), ...signed }],
    ['a signed request object and an empty request_uri', { ...signed, request_uri: '' }],
    ['a pushed request of one that must push', { client_id: 'pushing', request_uri: URN, state: 's' }],
    ['a pushed request of one that must push and sign', { client_id: 'both', request_uri: URN }],
    [
      'what ASP.NET Core, Auth0 and others add',
      {
        ...{ client_id: 'pushing', request_uri: URN, 'x-client-SKU': 'ID_NET9_0', 'x-client-ver': '8.0.1.0' },
        ...{ 'client-request-id': 'a', auth0Client: 'b', 'ext-amount': '1', dealerId: '2', 'a.b': 'c' },
      },
    ],
    ['plain parameters of one that need not sign', plain('none')],
    ['plain parameters of one that is listed for its limits', plain('of-limits')],
    ['an address of one that need not sign', { client_id: 'none', request_uri: 'https://a.example/r' }],
    [
      'what an unlisted client sends',
      { ...plain('other'), request: 'x', request_uri: 'https://a', scope: ['a', 'b'] },
    ],
    ['unnamed parameters', { state: 's' }],
    ['100 parameters', { state: Array(100).fill('s') }],
    ['a pushed request without a name', { request_uri: URN }],
    ['nothing', {}],
  ])('passes %s', async (__, fields) => {
    expect(await send(fields)).toBe('passed')
  })

  it.each<[string, Members | string, RegExp]>([
    ['plain parameters', plain('signing'), /must send a request object signed with PS256/],
    ['101 parameters', { state: Array(101).fill('s') }, /at most 100 parameters/],
    ['an unsigned object', { ...signed, request: unsignedObject('signing') }, /must be signed with PS256/],
    [
      'an object of a foreign key',
      { ...signed, request: requestObject('signing', {}, { key: OTHER_KEY }) },
      /not by a key/,
    ],
    [
      'an object for another audience',
      { ...signed, request: requestObject('signing', { aud: 'x' }) },
      /another audience/,
    ],
    ['an expired object', { ...signed, request: requestObject('signing', { exp: NOW - 60 }) }, /expired/],
    ['the object of another client', { ...signed, request: requestObject('both') }, /client_id as iss/],
    ['an https: request_uri', { client_id: 'signing', request_uri: 'https://a.example/r' }, /must push/],
    ['a request_uri in another case', { client_id: 'signing', request_uri: URN.toUpperCase() }, /must push/],
    ['an empty client_id in another spelling', { ...signed, clientid: '' }, /malformed name/],
    ['an object and a request_uri', { ...signed, request_uri: URN }, /not both/],
    [
      'a signed object of one that must push',
      { client_id: 'both', request: requestObject('both') },
      /must push/,
    ],
    ['plain parameters of one that must push', plain('pushing'), /must push/],
    ['a parameter twice', { client_id: 'signing', request_uri: [URN, URN] }, /request_uri once/],
    ['two clients', { client_id: ['other', 'signing'], request_uri: URN }, /client_id once/],
    ['one client twice', { client_id: ['other', 'other'] }, /client_id once/],
    ['two clients, one in another case', `client_id=other&Client_ID=signing`, /client_id once/],
    ['two clients, split by a semicolon', `client_id=other;client_id=signing`, /client_id once/],
    ['a client in brackets', `client_id%5B%5D=signing&scope=openid`, /malformed name/],
    ['a client with an index', `client_id[0]=signing&scope=openid`, /malformed name/],
    ['two clients, one with an index', `client_id=other&client_id[0]=signing`, /client_id once/],
    ['a client wholly in brackets', `[client_id]=signing&scope=openid`, /malformed name/],
    ['a name that PHP ends at a NUL', `client_id%00b=signing&scope=openid`, /malformed name/],
    ['two clients, one before a NUL', `client_id=other&client_id%00=signing`, /malformed name/],
    ['many blanks before a client', `${'+'.repeat(200)}client_id=signing&scope=openid`, /malformed name/],
    ['a client in another case', `CLIENT_ID=signing&scope=openid`, /malformed name/],
    ['a semicolon', `client_id=signing&request_uri=${URN};x`, /semicolon/],
    ['a request_uri that is malformed', `client_id=signing&request_uri=${URN}%zz`, /malformed/],
    ['a request_uri in another spelling', `client_id=signing&Request-URI=${URN}`, /malformed name/],
    [
      'a second request_uri in brackets',
      `client_id=signing&request_uri=${URN}&request_uri[]=x`,
      /malformed name/,
    ],
    [
      'an empty request_uri that PHP ends at a NUL',
      `client_id=signing&request_uri=${URN}&request_uri%00=`,
      /malformed name/,
    ],
    [
      'a request_uri behind a semicolon',
      `client_id=signing&request_uri=${URN}&x=a;request_uri=https://a`,
      /semicolon/,
    ],
    ['an object behind a semicolon', `client_id=signing&request_uri=${URN}&x=a;request=b`, /semicolon/],
    ['another parameter twice', { client_id: 'signing', request_uri: URN, state: ['a', 'b'] }, /state once/],
    [
      'the prefix of another server',
      { client_id: 'pushing', request_uri: 'urn:ietf:params:oauth:par:request_uri:a' },
      /must push/,
    ],
    ['a look-alike', plain('SIGNING'), /not spelt/],
    ['a client_id that is malformed', 'client_id=signin%67%ff', /printable ASCII/],
    ['a client_id that is too long', plain('x'.repeat(256)), /printable ASCII/],
    ['an object without a client_id parameter', { request: signed.request }, /client_id is missing/],
    [
      'an address without a client_id parameter',
      { request_uri: 'https://a.example/r' },
      /client_id is missing/,
    ],
  ])('refuses %s', async (__, fields, words) => {
    expect(await send(fields)).toMatch(words)
  })
})

it.each([
  [plain('signing'), `request_uri=${URN}`],
  [{ request_uri: URN }, 'client_id=signing'],
  [{ client_id: 'signing', request_uri: URN }, 'x=1'],
])('refuses %j in the form with %s in the query', async (fields, query) => {
  expect(await post(fields, query)).toMatch(/not in both/)
})

it('refuses two clients, one in the query and one in the form', async () => {
  expect(await post(plain('other'), 'client_id=signing')).toMatch(/client_id once/)
})

it('passes what an unlisted client sends in both, and a POST without a body', async () => {
  expect(await post(plain('other'), 'x=1')).toBe('passed')
  expect(await post('', encoded(plain('other')), '')).toBe('passed')
  expect(await post('', `client_id=signing&request_uri=${URN}`, '')).toBe('passed')
})

it.each(['application/json', 'multipart/form-data; boundary=x', ''])(
  'refuses a body of the type %j',
  async (type) => {
    expect(await post(plain('other'), '', type)).toMatch(/x-www-form-urlencoded/)
  },
)

it('passes a malformed value or a semicolon of a parameter that decides nothing', async () => {
  expect(await get(`client_id=pushing&request_uri=${URN}&x=%zz`)).toBe('passed')
  expect(await get(`client_id=pushing&x=a;b;c&request_uri=${URN}`)).toBe('passed')
  expect(await get(`client_id=pushing&request_uri=${URN}&resource=a&resource=b`)).toBe('passed')
})

it('names the client for the log, also if it then refuses it', async () => {
  const claimed: string[] = []
  await guard(`?${encoded(plain('signing'))}`, undefined, (id) => claimed.push(id))
  await guard(`?${encoded(plain('other'))}`, undefined, (id) => claimed.push(id))
  await guard(`?${encoded(plain('x'.repeat(256)))}`, undefined, (id) => claimed.push(id))
  expect(claimed).toEqual(['signing', 'other'])
})
