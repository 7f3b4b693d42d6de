import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { completed, mistakesIn } from '../../config/load-text.ts'
import { call, type LoggingGateway, startLogging, untilReady } from '../../helpers/gateway.ts'
import { startIntrospection } from '../../helpers/introspection-server.ts'
import { startIssuer } from '../../helpers/issuer.ts'
import { codeBlocks, fileText } from '../../helpers/repository.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'
import { type Provider, PROVIDERS, type ProviderToken } from './provider-tokens.ts'

const [issuer, introspection, data] = await Promise.all([
  startIssuer({ algorithms: ['RS256'] }),
  startIntrospection(),
  startUpstream(),
])
const rows = PROVIDERS.flatMap((provider) =>
  provider.tokens.map((row) => [`${provider.name}: ${row.kind}`, provider, row] as const),
)

/** Starts a gateway with the settings of a provider, which reads the keys and the tokens of this test. */
async function gatewayOf({ name, settings }: Provider): Promise<[string, LoggingGateway]> {
  const endpoint = { url: introspection.url, clientSecret: 'secret' }
  const own = { ...settings, jwks: issuer.jwksUri }
  const introspected = settings['introspection'] as object | undefined
  const tokens = introspected ? { ...own, introspection: { ...introspected, ...endpoint } } : own
  const gateway = await startLogging({
    data: data.url,
    tokens,
    limits: { requests: { per: ['client'], limit: 100, window: '1h' } },
    routes: [
      {
        match: '/accounts/:id',
        upstream: 'data',
        authenticate: 'bearer',
        limits: ['requests'],
        scope: ['accounts:read'],
      },
      { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
    ],
  })
  await untilReady(gateway)
  return [name, gateway]
}
const gateways = new Map(await Promise.all(PROVIDERS.map(gatewayOf)))

/** The introspection responses of the opaque tokens. */
const responses = new Map<string, object>()
introspection.answer = (response, { form }) =>
  response.end(JSON.stringify(responses.get(form['token']!) ?? { active: false }))

/** Returns a token as the provider issues it. */
function tokenOf({ settings }: Provider, { claims, header, opaque: isOpaque }: ProviderToken): string {
  const iss = [settings['issuer']].flat()[0]
  if (!isOpaque)
    return issuer.token(
      { aud: undefined, client_id: undefined, iss, ...claims },
      { header: { typ: 'JWT', ...header } },
    )
  const token = `opaque-${responses.size}`
  responses.set(token, { active: true, iss, exp: Math.floor(Date.now() / 1000) + 300, ...claims })
  return token
}

let paths = 0
async function send(gateway: LoggingGateway, token: string, folder: string) {
  const path = `${folder}/${++paths}`
  const { status, json } = await call(gateway.port, { path, token })
  const line = () => gateway.lines().find((logged) => logged['path'] === path)
  await until('the log', () => line() !== undefined)
  return { status, text: (json as { detail?: string } | undefined)?.detail, logged: line()! }
}

describe('the tokens of identity providers', () => {
  // Concurrently, because the log is written with a delay.
  it.concurrent.each(rows)('%s', async (_, provider, row) => {
    const gateway = gateways.get(provider.name)!
    const token = tokenOf(provider, row)
    const { status, text, logged } = await send(gateway, token, '/any')
    if (row.refused !== undefined) {
      expect([status, text]).toEqual([401, row.refused])
      // The log says which claim is not accepted, and nothing that could be sent again.
      expect(logged['cause']).toMatch(/accepted|claim|introspection response/)
      expect(JSON.stringify(logged)).not.toContain(token.split('.').at(-1))
      return
    }
    expect([status, logged['client']]).toEqual([200, row.client])
    expect((await send(gateway, token, '/accounts')).status).toBe(row.scope ? 200 : 403)
  })

  it('the tokens of identity providers are accepted, or refused by a text, in at least 40 rows', () => {
    expect(rows.length).toBeGreaterThan(60)
    for (const [name, , row] of rows)
      expect([name, (row.client === undefined) !== (row.refused === undefined)]).toEqual([name, true])
    for (const { name, tokens } of PROVIDERS)
      expect([name, tokens.some(({ client }) => client), tokens.some(({ refused }) => refused)]).toEqual([
        name,
        true,
        true,
      ])
  })

  it.each(PROVIDERS)('the settings for $name load as they are written', async ({ settings }) => {
    const text = completed(`tokens: ${JSON.stringify(settings)}`)
    expect(await mistakesIn(text, { SLUICE_INTROSPECTION_SECRET: 'secret' })).toEqual([])
  })
})

type Settings = Readonly<Record<string, unknown>>

/** Returns the settings that do not depend on the tenant and the API. */
function rulesOf(settings: Settings) {
  const { authentication = 'basic' } = (settings['introspection'] ?? {}) as { authentication?: string }
  const introspection = 'introspection' in settings ? authentication : 'none'
  return { ...settings, issuer: '', audience: '', jwks: '', introspection }
}

describe('docs/identity-providers.md', () => {
  const sections = fileText('docs/identity-providers.md').split(/^## /m).slice(1)
  const blocks = sections.flatMap((section) =>
    codeBlocks(section, 'yml').map((block) => {
      const { tokens } = parse(block) as { tokens: Settings | readonly Settings[] }
      return [section.split('\n')[0]!, [tokens].flat()] as const
    }),
  )

  it.each(blocks)(
    'the settings for %s are those of rows that the gateway was tried with',
    (title, tokens) => {
      const [word = ''] = title.split(/[ ,]/)
      const named = PROVIDERS.filter(({ name }) => name.includes(word)).map(({ settings }) =>
        rulesOf(settings),
      )
      for (const settings of tokens) expect(named).toContainEqual(rulesOf(settings))
    },
  )

  it('has the settings of at least eleven providers', () => {
    expect(blocks.length).toBeGreaterThanOrEqual(11)
  })
})
