import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GatewayError } from '../src/errors.ts'
import { createIssuers, type Issuers } from '../src/issuers.ts'
import { createLog } from '../src/observe/log.ts'
import { settingsOf } from './authenticate/trust.ts'
import { startIssuer, type TestIssuer } from './helpers/issuer.ts'

const output = await createLog('silent', 'json')
let first: TestIssuer
let second: TestIssuer
let issuers: Issuers

beforeAll(async () => {
  ;[first, second] = await Promise.all([
    startIssuer({ algorithms: ['ES256'] }),
    startIssuer({ algorithms: ['ES256'] }),
  ])
  issuers = createIssuers(output.log)
})
afterAll(async () => {
  issuers.end()
  await Promise.all([first.close(), second.close(), output.close()])
})

/** The client of a fresh token, or the status of its refusal. */
async function answerOf(
  authenticate: ReturnType<Issuers['authenticate']>,
  issuer: TestIssuer,
): Promise<string | number> {
  const identity = await authenticate([`Bearer ${issuer.token()}`])
  if (identity instanceof GatewayError) return identity.status
  return 'prove' in identity ? 'bound' : identity.client
}

describe('the issuers of a configuration', () => {
  it('keep their keys when others join them, or hosts change, while they are down', async () => {
    const before = issuers.authenticate([settingsOf(first)], ['a.example.com'])
    issuers.endUnused()
    expect(await answerOf(before, first)).toBe('client-1')
    expect(await answerOf(before, second)).toBe(401)
    first.fault = 'down'
    const after = issuers.authenticate([settingsOf(second), settingsOf(first)], ['b.example.com'])
    issuers.endUnused()
    expect(await answerOf(after, first)).toBe('client-1')
    expect(await answerOf(after, second)).toBe('client-1')
  })

  it('are one and the same where nothing about them changed', () => {
    const now = () => issuers.authenticate([settingsOf(second), settingsOf(first)], ['b.example.com'])
    expect(now()).toBe(now())
    issuers.endUnused()
  })

  it('are let go when none is left, and then nobody is authenticated', async () => {
    const none = issuers.authenticate([], [])
    issuers.endUnused()
    expect(await answerOf(none, second)).toBe(503)
    const again = issuers.authenticate([settingsOf(first)], [])
    // Its keys were let go, and it is down.
    expect(await answerOf(again, first)).toBe(503)
  })
})
