import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import { createIssuers, type Issuers } from '../../src/process/open-issuers.ts'
import { createLog } from '../../src/observe/log.ts'
import { settingsOf } from '../helpers/trust.ts'
import { startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { until } from '../helpers/wait.ts'

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
  if (identity instanceof Refusal) return identity.status
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
    expect(await answerOf(after, first)).toBe(`client-1@${first.issuer}`)
    expect(await answerOf(after, second)).toBe('client-1')
  })

  it('keep their keys when any other setting of theirs changes, while they are down', async () => {
    const changed = settingsOf(first, { leewayMs: 6000, clientClaim: 'azp', audience: ['x', first.audience] })
    await issuers.load([changed, settingsOf(second)])
    const after = issuers.authenticate([changed, settingsOf(second)], [])
    issuers.endUnused()
    const identity = await after([`Bearer ${first.token({ azp: 'party' })}`])
    expect(identity).toMatchObject({ client: 'party' })
  })

  it('are not replaced by what gives no keys, and are by what does', async () => {
    const before = issuers.authenticate([settingsOf(second)], [])
    const moved = settingsOf(second, { jwks: { url: first.jwksUri } })
    await expect(issuers.load([moved])).rejects.toThrow(
      `the keys of the issuer ${second.issuer} cannot be read: ${first.jwksUri} cannot be read`,
    )
    expect(await answerOf(before, second)).toBe('client-1')
    first.fault = undefined
    const published = first.jwks
    first.jwks = { keys: [] }
    await expect(issuers.load([moved])).rejects.toThrow('holds no key')
    first.jwks = second.jwks
    await issuers.load([moved])
    const after = issuers.authenticate([moved], [])
    issuers.endUnused()
    // The keys are here already.
    expect(after([`Bearer ${second.token()}`])).toMatchObject({ client: 'client-1' })
    first.jwks = published
    first.fault = 'down'
  })

  it('are awaited at a start, by name, until their keys are here or were tried for ten seconds', async () => {
    const fresh = createIssuers(output.log)
    const up = settingsOf(second)
    const down = settingsOf(first)
    fresh.authenticate([up, down], [])
    await until('the keys of one', () => fresh.awaited() === first.issuer)
    expect(fresh.ages()[0]!.ageSeconds).toBeLessThan(9)
    const now = performance.now()
    const clock = vi.spyOn(performance, 'now').mockReturnValue(now + 10_000)
    expect(fresh.awaited()).toBeUndefined()
    expect(fresh.ages()).toMatchObject([{ issuer: second.issuer }, { issuer: first.issuer }])
    for (const one of fresh.ages()) expect(one.ageSeconds).toBeGreaterThanOrEqual(9)
    clock.mockRestore()
    first.fault = undefined
    await until('the keys of the other', () => fresh.awaited() === undefined)
    first.fault = 'down'
    fresh.end()
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
