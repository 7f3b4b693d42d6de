import { afterAll, describe, expect, it, vi } from 'vitest'
import type { Client, Config, Tokens } from '../../src/config/config.ts'
import { Refusal } from '../../src/errors.ts'
import type { Log } from '../../src/observe/log.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import { createGuards } from '../../src/process/open-guards.ts'
import { createIssuers } from '../../src/process/open-issuers.ts'
import { createResources } from '../../src/process/resources.ts'
import { startIntrospection } from '../helpers/introspection-server.ts'
import { startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { assertion, ISSUER, PASSED, plain, push, refusal } from '../helpers/par-request.ts'
import { settingsOf } from '../helpers/trust.ts'
import { until } from '../helpers/wait.ts'

const lines: (readonly [message: string, fields: object])[] = []
const write = (level: string) => (fields: object, message: string) =>
  lines.push([`${level}: ${message}`, fields])
const metrics = createMetrics()
const log = { warn: write('warn'), info: write('info') } as unknown as Log

const [first, second, introspection] = await Promise.all([
  startIssuer({ algorithms: ['ES256'] }),
  startIssuer({ algorithms: ['ES256'] }),
  startIntrospection(),
])

type Issuers = ReturnType<ReturnType<typeof createIssuers>['openIssuers']>

const configOf = (some: object): Config => some as Config

/** Returns the value of a counter's series. */
async function counted(series: string): Promise<number> {
  const line = (await metrics.text()).split('\n').find((line) => line.startsWith(`${series} `))
  return Number(line?.slice(series.length))
}

/** Opens one configuration after another, as the process does. */
function configurations() {
  const resources = createResources()
  const issuers = createIssuers(resources, log, metrics)
  const openGuards = createGuards(resources, log)
  return {
    end: resources.close,
    openIssuers: (tokens: readonly Tokens[], hosts: readonly string[] = []): Issuers =>
      resources.replace(() => issuers.openIssuers(configOf({ tokens, limits: [], listen: { hosts } }))),
    /** Opens issuers after reading their keys. */
    async reload(tokens: readonly Tokens[]): Promise<Issuers> {
      const keys = await issuers.loadIssuerKeys(configOf({ tokens }))
      return resources.replace(() =>
        issuers.openIssuers(configOf({ tokens, limits: [], listen: { hosts: [] } }), keys),
      )
    },
    openGuard: (clients: readonly Client[], par: Config['par'] | null = PAR) =>
      resources.replace(() => openGuards(configOf({ par: par ?? undefined, clients, tokens: [] }))?.par),
  }
}

/** Returns the client of a fresh token, or the status of its refusal. */
async function answerOf({ authenticate }: Issuers, issuer: TestIssuer): Promise<string | number> {
  const identity = await authenticate([`Bearer ${issuer.token()}`])
  if (identity instanceof Refusal) return identity.status
  return 'prove' in identity ? 'bound' : identity.client
}

const PAR: NonNullable<Config['par']> = {
  issuer: ISSUER,
  audiences: [],
  requestUri: 'urn:ietf:params:oauth:request_uri:',
  assertionAudience: 'compatible',
  leewayMs: 0,
  maxBody: 65_536,
  unknownClients: 'forward',
}
const client = (id: string, more: Partial<Client> = {}): Client => ({
  ...{ id, folded: id, issuer: undefined, caller: id, name: undefined, jwks: undefined },
  ...{ authentication: undefined, requestObjectSigningAlg: undefined },
  ...more,
})

describe('the issuers of a configuration', () => {
  const { openIssuers, reload, end } = configurations()
  afterAll(end)

  it('keep their keys while they are down, if issuers are added or hosts change', async () => {
    const before = openIssuers([settingsOf(first)], ['a.example.com'])
    expect(await answerOf(before, first)).toBe('client-1')
    expect(await answerOf(before, second)).toBe(401)
    first.fault = 'down'
    const after = openIssuers([settingsOf(second), settingsOf(first)], ['b.example.com'])
    expect(await answerOf(after, first)).toBe(`client-1@${first.issuer}`)
    expect(await answerOf(after, second)).toBe('client-1')
  })

  it('keep their keys while they are down, if other settings of theirs change', async () => {
    const changed = settingsOf(first, { leewayMs: 6000, clientClaim: 'azp', audience: ['x', first.audience] })
    const { authenticate } = await reload([changed, settingsOf(second)])
    const identity = await authenticate([`Bearer ${first.token({ azp: 'party' })}`])
    expect(identity).toMatchObject({ client: 'party' })
  })

  it('the issuers of a configuration are replaced only by issuers whose keys can be loaded', async () => {
    const before = openIssuers([settingsOf(second)])
    const moved = settingsOf(second, { jwks: { url: first.jwksUri } })
    await expect(reload([moved])).rejects.toThrow(
      `cannot read the keys of ${second.issuer}: ${first.jwksUri} cannot be read`,
    )
    expect(await answerOf(before, second)).toBe('client-1')
    first.fault = undefined
    const published = first.jwks
    first.jwks = { keys: [] }
    await expect(reload([moved])).rejects.toThrow('holds no key')
    first.jwks = second.jwks
    const { authenticate } = await reload([moved])
    // Returned without a promise: the keys are loaded already.
    expect(authenticate([`Bearer ${second.token()}`])).toMatchObject({ client: 'client-1' })
    first.jwks = published
    first.fault = 'down'
  })

  it('the issuers of a configuration are awaited at the start, by name, until their keys are loaded or ten seconds have passed', async () => {
    const fresh = configurations()
    const opened = fresh.openIssuers([settingsOf(second), settingsOf(first)])
    await until('the keys of one', () => opened.withoutKeys() === first.issuer)
    expect(opened.status()[0]!.ageSeconds).toBeLessThan(9)
    const now = performance.now()
    const clock = vi.spyOn(performance, 'now').mockReturnValue(now + 10_000)
    expect(opened.withoutKeys()).toBeUndefined()
    const issuers = opened.status()
    expect(issuers.map(({ issuer }) => issuer)).toEqual([second.issuer, first.issuer])
    for (const { ageSeconds } of issuers) expect(ageSeconds).toBeGreaterThanOrEqual(9)
    clock.mockRestore()
    first.fault = undefined
    await until('the keys of the other', () => opened.withoutKeys() === undefined)
    first.fault = 'down'
    fresh.end()
  })

  it('the issuers of a configuration are reused if they did not change', () => {
    const open = () => openIssuers([settingsOf(second), settingsOf(first)], ['b.example.com']).authenticate
    expect(open()).toBe(open())
  })

  it('the issuers of a configuration are closed when all are removed, and then no caller is authenticated', async () => {
    expect(await answerOf(openIssuers([]), second)).toBe(503)
    // The keys were dropped, and the issuer is down.
    expect(await answerOf(openIssuers([settingsOf(first)]), first)).toBe(503)
    first.fault = undefined
  })
})

describe('the clients of the PAR endpoint', () => {
  it('the clients of the PAR endpoint are the clients of its issuer and those without an issuer, which have lower priority', async () => {
    const unnamed = { requestObjectSigningAlg: 'PS256' } as const
    const named = (issuer: string) => ({ issuer, requestObjectSigningAlg: 'ES256' }) as const
    const guard = configurations().openGuard([
      ...[client('both', named(ISSUER)), client('both', unnamed), client('unnamed', unnamed)],
      client('foreign', named('https://other.example.com')),
    ])!
    const send = (id: string) => push(guard, plain(id))
    expect(await send('both')).toEqual(refusal(400, 'invalid_request', /signed with ES256/))
    expect(await send('unnamed')).toEqual(refusal(400, 'invalid_request', /signed with PS256/))
    expect(await send('foreign')).toBe(PASSED)
  })

  it('keep their open keys over a reload that does not change them', async () => {
    const { openGuard, end } = configurations()
    const remote = client('remote', { jwks: { url: second.jwksUri } })
    const ask = (guard: NonNullable<ReturnType<typeof openGuard>>) =>
      push(guard, plain('remote', assertion('remote')))
    const opened = refusal(401, 'invalid_client', /./)
    expect(await ask(openGuard([remote])!)).toEqual(opened)
    second.fault = 'down'
    const unavailable = { status: 503 }
    expect(await ask(openGuard([{ ...remote, name: 'Remote' }, client('other')])!)).toEqual(opened)
    expect(openGuard([remote], null)).toBeUndefined()
    expect(await ask(openGuard([remote])!)).toMatchObject(unavailable)
    second.fault = undefined
    end()
  })
})

describe('the start and the end of an outage are logged once:', () => {
  const expectLogged = (messages: readonly string[], fields: object) => {
    expect(lines.map(([message]) => message)).toEqual(messages)
    for (const line of lines.splice(0)) expect(line[1]).toMatchObject(fields)
  }

  it('for the keys of an issuer, with its name', async () => {
    lines.length = 0
    first.fault = 'error'
    const { openIssuers, end } = configurations()
    openIssuers([settingsOf(first)])
    const failures = () => counted(`sluice_issuer_keys_failures_total{issuer="${first.issuer}"}`)
    const before = await failures()
    await until('the outage is logged', () => lines.length > 0)
    await until('each failure is counted', async () => (await failures()) >= before + 2)
    first.fault = undefined
    await until('its end is logged', () => lines.length > 1)
    expectLogged(['warn: JWKS fetch failed; retrying', 'info: JWKS fetch works again'], {
      issuer: first.issuer,
    })
    end()
  })

  it('for the introspection of opaque tokens, without the token', async () => {
    const { openIssuers, end } = configurations()
    const endpoint = {
      ...{
        url: `${introspection.url}?apikey=hunter2`,
        authentication: 'basic' as const,
        clientId: 'sluice',
        clientSecret: 's3cret',
      },
      ...{ timeoutMs: 3000, maxAgeMs: 0 },
    }
    const { authenticate, status } = openIssuers([
      settingsOf(first, { introspection: endpoint }),
      settingsOf(second),
    ])
    const { issuer } = first
    const results = () =>
      Promise.all(
        ['active', 'inactive', 'failed'].map((result) =>
          counted(`sluice_introspection_requests_total{issuer="${issuer}",result="${result}"}`),
        ),
      )
    const introspectionUp = () => status().map((one) => one.introspectionUp)
    await authenticate([`Bearer ${first.token()}`])
    expect(await results()).toEqual([0, 0, 0])
    introspection.answer = { active: true, aud: first.audience, client_id: 'client-1' }
    await authenticate(['Bearer opaque-active'])
    expect(introspectionUp()).toEqual([true, null])
    introspection.answer = (response) => response.writeHead(500).end()
    let asked = 0
    const ask = () => authenticate([`Bearer opaque-${asked++}`])
    await until('the outage is logged', async () => (await ask(), lines.length > 0))
    expect(introspectionUp()).toEqual([false, null])
    const failed = asked
    expect(await results()).toEqual([1, 0, failed])
    introspection.answer = { active: false }
    await until('its end is logged', async () => (await ask(), lines.length > 1))
    expect(introspectionUp()).toEqual([true, null])
    await authenticate(['Bearer opaque-inactive'])
    const [, inactive] = await results()
    expect(inactive).toBeGreaterThan(0)
    expect(JSON.stringify(lines)).not.toMatch(/opaque-|s3cret|hunter2/)
    expectLogged(['warn: token introspection failed; retrying', 'info: token introspection works again'], {})
    end()
  })

  it('for the keys of a client, with its id', async () => {
    const { openGuard, end } = configurations()
    first.fault = 'error'
    const guard = openGuard([client('remote', { jwks: { url: first.jwksUri } })])!
    expect(lines).toEqual([])
    expect(await push(guard, plain('remote', assertion('remote')))).toMatchObject({ status: 503 })
    first.fault = undefined
    await until('its end is logged', async () => {
      await push(guard, plain('remote', assertion('remote')))
      return lines.length > 1
    })
    const messages = ['warn: client JWKS fetch failed; retrying', 'info: client JWKS fetch works again']
    expectLogged(messages, { client: 'remote' })
    end()
  })
})
