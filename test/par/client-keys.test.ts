import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Guard } from '../../src/par/form.ts'
import { makeKey, startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import {
  assertion,
  clientKeys,
  guardOf,
  KEY,
  PASSED,
  plain,
  push,
  refusal,
  requestObject,
  unsignedObject,
} from '../helpers/par-request.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const unavailable = {
  status: 503,
  error: 'temporarily_unavailable',
  description: expect.stringMatching(/keys of this client cannot be read/),
  headers: { 'Retry-After': '1' },
}

describe('keys behind a jwksUri', () => {
  let publisher: TestIssuer
  let keys: ReturnType<typeof clientKeys>
  let guard: Guard

  beforeEach(async () => {
    publisher = await startIssuer({ algorithms: ['ES256'] })
    publisher.jwks = { keys: [KEY.jwk] }
  })
  afterEach(() => keys.close())
  const open = (options: Parameters<typeof clientKeys>[2] = {}): void => {
    keys = clientKeys(publisher.jwksUri, {}, options)
    guard = guardOf({ acme: { authentication: 'private_key_jwt', requestObjectSigningAlg: 'none', keys } })
  }
  const send = (fields: object = {}): Promise<unknown> => push(guard, { ...plain('acme'), ...fields })

  it('keys behind a jwksUri are waited for by the first request', async () => {
    open()
    expect(await send(assertion('acme'))).toBe(PASSED)
    expect(publisher.asked).toEqual({ jwks: 1, discovery: 0 })
  })

  it('keys behind a jwksUri that could not be loaded refuse every JWT that needs them', async () => {
    publisher.fault = 'error'
    open({ cooldownMs: 0 })
    expect(await send(assertion('acme'))).toEqual(unavailable)
    const plainly = guardOf({ acme: { keys } })
    const sendObject = (request: string) => push(plainly, { client_id: 'acme', request })
    expect(await sendObject(requestObject('acme'))).toEqual(unavailable)
    expect(await sendObject(unsignedObject('acme'))).toBe(PASSED)
    expect(await push(plainly, plain('acme'))).toBe(PASSED)

    publisher.fault = undefined
    expect(await send(assertion('acme'))).toBe(PASSED)
  })

  it('go on serving while they cannot be read again', async () => {
    open({ cooldownMs: 0, refreshMs: 0 })
    expect(await send(assertion('acme'))).toBe(PASSED)
    publisher.fault = 'down'
    // The client may have such a key by now.
    expect(await send(assertion('acme', {}, { header: { kid: 'unknown' } }))).toEqual(unavailable)
    expect(await send(assertion('acme'))).toBe(PASSED)
  })

  it('keys behind a jwksUri are read again for a key that is not known, and not for each', async () => {
    open({ cooldownMs: 100 })
    expect(await send(assertion('acme'))).toBe(PASSED)
    const next = makeKey('ES256')
    publisher.jwks = { keys: [KEY.jwk, next.jwk] }
    const sendNew = () => send(assertion('acme', {}, { key: next }))
    await until('the cool-down is over', async () => (await sendNew()) === PASSED)
    keys.close()
    for (let i = 0; i < 20; i++) {
      const key = makeKey('ES256')
      expect(await send(assertion('acme', {}, { key }))).toEqual(refusal(401, 'invalid_client', /kid/))
    }
    expect(publisher.asked.jwks).toBe(2)
  })

  it('keys behind a jwksUri are read when they are needed and old, once a cool-down, and never by themselves', async () => {
    open({ refreshMs: 50, cooldownMs: 60_000 })
    expect(await send()).toMatchObject({ status: 400 })
    expect(publisher.asked.jwks).toBe(0)
    expect(await send(assertion('acme'))).toBe(PASSED)
    await new Promise((resolve) => setTimeout(resolve, 100))
    // Old, and within the cool-down.
    for (let i = 0; i < 5; i++) expect(await send(assertion('acme'))).toBe(PASSED)
    expect(publisher.asked.jwks).toBe(1)
    keys = clientKeys(publisher.jwksUri, {}, { refreshMs: 0, cooldownMs: 0 })
    guard = guardOf({ acme: { keys } })
    for (let i = 0; i < 3; i++) expect(await send(assertion('acme'))).toBe(PASSED)
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(publisher.asked.jwks).toBe(4)
  })

  it('keys behind a jwksUri are not old by the time that the gateway has run before it read them', async () => {
    open({ refreshMs: 2 * performance.now(), cooldownMs: 0 })
    for (let i = 0; i < 2; i++) expect(await send(assertion('acme'))).toBe(PASSED)
    expect(publisher.asked.jwks).toBe(1)
  })

  it.each([
    ['of more than 256 kB', { keys: [KEY.jwk, { kty: 'x'.repeat(262_144) }] }, /larger than 262144 bytes/],
    ['of more than 20 keys', { keys: Array(21).fill(KEY.jwk) }, /over 20 keys for signatures/],
  ])('%s are not read', async (_, jwks, reason) => {
    publisher.jwks = jwks
    const reasons: string[] = []
    keys = clientKeys(publisher.jwksUri, { onDown: ({ message }) => reasons.push(message) })
    guard = guardOf({ acme: { keys } })
    expect(await send(assertion('acme'))).toEqual(unavailable)
    expect(reasons).toEqual([expect.stringMatching(reason)])
  })

  it('a set may have any keys in addition to the usable ones, as directories of organisations have', async () => {
    const { jwk } = KEY
    const others = [
      ...[
        null,
        'text',
        [],
        {},
        { ...jwk, use: 'enc' },
        { ...jwk, use: 'tls' },
        { ...jwk, key_ops: ['encrypt'] },
      ],
      ...[
        { kty: 'oct', k: 'AAAA' },
        { kty: 'AKP', alg: 'ML-DSA-44', pub: 'AAAA' },
        { ...jwk, d: 'AAAA' },
      ],
    ]
    const nulls = { use: null, alg: null, key_ops: null, x5c: null, d: null, p: null, q: null }
    publisher.jwks = { keys: [...others, ...others, ...others, ...others, { ...jwk, ...nulls }] }
    keys = clientKeys(publisher.jwksUri)
    guard = guardOf({ acme: { keys } })
    expect(await send(assertion('acme'))).toBe(PASSED)
  })
})

it('the keys of many clients are read 32 at a time, and each waits 3 s at most', async () => {
  const waiting: (() => void)[] = []
  let asked = 0
  let most = 0
  const slow = await startUpstream((_, response) => {
    asked++
    waiting.push(() => response.end(JSON.stringify({ keys: [KEY.jwk] })))
    most = Math.max(most, waiting.length)
  })
  const all = Array.from({ length: 100 }, () => clientKeys(slow.url))
  const first = Promise.all(all.slice(0, 40).map(async (keys) => keys.refresh()))
  await until('32 are asked for', () => waiting.length === 32)
  for (const answer of waiting.splice(0)) answer()
  await until('the others are asked for', () => waiting.length === 8)
  for (const answer of waiting.splice(0)) answer()
  expect((await first).every((keys) => keys!.keys.length === 1)).toBe(true)
  expect(most).toBe(32)
  const rest = Promise.all(all.slice(40).map(async (keys) => keys.refresh()))
  expect(await rest).toEqual(Array(60).fill(undefined))
  // The 28 that wait for a slot have the same deadline; a few get a slot just before it.
  expect(asked).toBeLessThan(100)
  await slow.close()
})

describe('keys in the configuration', () => {
  it('are waited for by the first request', async () => {
    const keys = clientKeys({ keys: [KEY.jwk] })
    expect(keys.current()).toBeUndefined()
    const guard = guardOf({ acme: { keys } })
    expect(await push(guard, { ...plain('acme'), ...assertion('acme') })).toBe(PASSED)
  })

  it('keys in the configuration that are malformed are reported, and verify nothing', async () => {
    const reasons: string[] = []
    const keys = clientKeys([], { onDown: ({ message: reason }) => reasons.push(reason) })
    const guard = guardOf({ acme: { keys } })
    const send = () => push(guard, { ...plain('acme'), ...assertion('acme') })
    expect(await send()).toEqual(unavailable)
    expect(await send()).toEqual(unavailable)
    keys.close()
    expect(reasons).toEqual(['jwks is not a JWK Set: it has no list "keys"'])
  })
})
