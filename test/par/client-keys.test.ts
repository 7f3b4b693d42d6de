import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { ParGuard } from '../../src/par/guard.ts'
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
  let guard: ParGuard

  beforeEach(async () => {
    publisher = await startIssuer({ algorithms: ['ES256'] })
    publisher.jwks = { keys: [KEY.jwk] }
  })
  afterEach(async () => {
    keys.close()
    await publisher.close()
  })
  const open = (): void => {
    keys = clientKeys(publisher.jwksUri)
    guard = guardOf({ acme: { authentication: 'private_key_jwt', requestObjectSigningAlg: 'none', keys } })
  }
  const send = (fields: object = {}): Promise<unknown> => push(guard, { ...plain('acme'), ...fields })

  it('are waited for by the first request', async () => {
    open()
    expect(await send(assertion('acme'))).toBe(PASSED)
    expect(publisher.asked).toEqual({ jwks: 1, discovery: 0 })
  })

  it('while they could not be loaded, refuse every JWT that needs them', async () => {
    publisher.fault = 'error'
    open()
    expect(await send(assertion('acme'))).toEqual(unavailable)
    const plainly = guardOf({ acme: { keys } })
    const sendObject = (request: string) => push(plainly, { client_id: 'acme', request })
    expect(await sendObject(requestObject('acme'))).toEqual(unavailable)
    expect(await sendObject(unsignedObject('acme'))).toBe(PASSED)
    expect(await push(plainly, plain('acme'))).toBe(PASSED)

    publisher.fault = undefined
    await until('the keys are read', () => keys.current() !== undefined)
    expect(await send(assertion('acme'))).toBe(PASSED)
  })

  it('go on serving while they cannot be read again', async () => {
    open()
    await until('the keys are read', () => keys.current() !== undefined)
    publisher.fault = 'down'
    expect(await send(assertion('acme', {}, { header: { kid: 'unknown' } }))).toMatchObject({ status: 401 })
    expect(await send(assertion('acme'))).toBe(PASSED)
  })

  it('are read again for a key that is not known, and not for each', async () => {
    open()
    await until('the keys are read', () => keys.current() !== undefined)
    const next = makeKey('ES256')
    publisher.jwks = { keys: [KEY.jwk, next.jwk] }
    expect(await send(assertion('acme', {}, { key: next }))).toBe(PASSED)
    for (let i = 0; i < 20; i++) {
      const key = makeKey('ES256')
      expect(await send(assertion('acme', {}, { key }))).toEqual(refusal(401, 'invalid_client', /signature/))
    }
    expect(publisher.asked.jwks).toBe(2)
  })
})

describe('keys in the configuration', () => {
  it('are waited for by the first request', async () => {
    const keys = clientKeys({ keys: [KEY.jwk] })
    expect(keys.current()).toBeUndefined()
    const guard = guardOf({ acme: { keys } })
    expect(await push(guard, { ...plain('acme'), ...assertion('acme') })).toBe(PASSED)
  })

  it('that are malformed are reported, and verify nothing', async () => {
    const reasons: string[] = []
    const keys = clientKeys([], { onDown: ({ message: reason }) => reasons.push(reason) })
    const guard = guardOf({ acme: { keys } })
    const send = () => push(guard, { ...plain('acme'), ...assertion('acme') })
    expect(await send()).toEqual(unavailable)
    expect(await send()).toEqual(unavailable)
    keys.close()
    expect(reasons).toEqual(['jwks is no JWK Set: it has no list "keys"'])
  })
})
