import { beforeAll, describe, expect, it, vi } from 'vitest'
import { parse } from 'yaml'
import { PROVIDERS } from '../../src/commands/choices.ts'
import { loadConfig } from '../../src/config/load.ts'
import { sluice } from '../commands/run.ts'
import { call, startGateway } from '../helpers/gateway.ts'
import { startIntrospection } from '../helpers/introspection-server.ts'
import { startIssuer } from '../helpers/issuer.ts'
import { codeBlocks, fileText } from '../helpers/repository.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** The lines of docs/identity-providers.md must accept the tokens that it describes, and refuse those that it says are refused. */
const page = fileText('docs/identity-providers.md')
const API = 'https://api.example.com'
const CLIENT = 'client-of-the-page'

interface Block {
  readonly tokens: {
    readonly issuer: string
    readonly audience: string | readonly string[]
    readonly introspection?: object
  }
}

/** A JWT: its claims except `iss`, `iat` and `exp`, and the `typ` of its header. */
interface Jwt {
  readonly typ?: string
  readonly claims: Readonly<Record<string, unknown>>
}

interface Provider {
  readonly title: string
  /** Tokens by their description. */
  readonly accepted: Readonly<Record<string, Jwt>>
  readonly refused: Readonly<Record<string, Jwt>>
  /** Introspection responses without `active`, `iss` and `exp`. */
  readonly introspected?: Readonly<Record<'accepted' | 'refused', Readonly<Record<string, unknown>>>>
  /** Its tokens have no scope. */
  readonly path?: string
}

const ofClient = { aud: CLIENT, at_hash: 'x', nonce: 'n', sub: 'user', auth_time: 1 }
const OTHER_API = 'https://other.example.com'
const ENTRA_API = '66666666-7777-8888-9999-000000000000'

/** The claims as the providers document them. */
const DOCUMENTED: Readonly<Record<string, Provider>> = {
  auth0: {
    title: 'Auth0',
    accepted: {
      'of a user': {
        typ: 'JWT',
        claims: {
          ...{ sub: 'auth0|1', aud: [API, 'https://example.eu.auth0.com/userinfo'] },
          ...{ azp: CLIENT, scope: 'openid read', permissions: ['read'] },
        },
      },
      'of a machine': {
        typ: 'JWT',
        claims: { sub: `${CLIENT}@clients`, aud: API, azp: CLIENT, scope: 'read', gty: 'client-credentials' },
      },
    },
    refused: {
      'ID token': { typ: 'JWT', claims: { ...ofClient, sid: 's' } },
      'token of another API': {
        typ: 'JWT',
        claims: { sub: 'u', aud: OTHER_API, azp: CLIENT, scope: 'read' },
      },
    },
  },
  okta: {
    title: 'Okta',
    accepted: {
      'of a user': {
        claims: {
          ...{ ver: 1, jti: 'AT.1', aud: 'api://default', cid: CLIENT, uid: '00u1' },
          ...{ scp: ['openid', 'read'], sub: 'user@example.com' },
        },
      },
    },
    refused: {
      'ID token': { claims: { ...ofClient, ver: 1, jti: 'ID.1', amr: ['pwd'], idp: '00o1' } },
      'token of the org authorization server': {
        typ: 'application/okta-internal-at+jwt',
        claims: { ver: 1, aud: 'https://example.okta.com', cid: CLIENT, scp: ['openid'], sub: 'u' },
      },
    },
  },
  'entra-id': {
    title: 'Microsoft Entra ID',
    accepted: {
      'of a user': {
        typ: 'JWT',
        claims: {
          aud: ENTRA_API,
          azp: CLIENT,
          azpacr: '1',
          oid: 'o',
          scp: 'read write',
          sub: 's',
          tid: 't',
          ver: '2.0',
        },
      },
    },
    refused: {
      'ID token of a client that is the API': {
        typ: 'JWT',
        claims: { aud: ENTRA_API, oid: 'o', sub: 's', tid: 't', ver: '2.0', uti: 'u', rh: 'r' },
      },
      'token for Microsoft Graph': {
        typ: 'JWT',
        claims: { aud: '00000003-0000-0000-c000-000000000000', azp: CLIENT, scp: 'User.Read', sub: 's' },
      },
    },
  },
  cognito: {
    title: 'Amazon Cognito',
    accepted: {
      'of a user': {
        claims: {
          sub: 'u',
          client_id: CLIENT,
          token_use: 'access',
          scope: 'openid read',
          username: 'u',
          auth_time: 1,
        },
      },
      'for a resource': {
        claims: { sub: 'u', aud: API, client_id: CLIENT, token_use: 'access', scope: 'read' },
      },
    },
    refused: {
      'ID token': {
        claims: { sub: 'u', aud: CLIENT, token_use: 'id', 'cognito:username': 'u', auth_time: 1 },
      },
      'token of another API': {
        claims: { sub: 'u', aud: OTHER_API, client_id: CLIENT, token_use: 'access', scope: 'read' },
      },
    },
  },
  keycloak: {
    title: 'Keycloak',
    accepted: {
      'of a user': {
        typ: 'JWT',
        claims: {
          ...{ typ: 'Bearer', aud: [API, 'account'], azp: CLIENT, sub: 'u', sid: 's', acr: '1' },
          ...{ scope: 'openid read', realm_access: { roles: ['offline_access'] } },
        },
      },
      'of a user before 25': {
        typ: 'JWT',
        claims: {
          typ: 'Bearer',
          aud: API,
          azp: CLIENT,
          sub: 'u',
          nonce: 'n',
          session_state: 's',
          scope: 'read',
        },
      },
    },
    refused: {
      'ID token with the audience of the API': {
        typ: 'JWT',
        claims: { typ: 'ID', aud: [CLIENT, API], azp: CLIENT, sub: 'u' },
      },
      'refresh token': { typ: 'JWT', claims: { typ: 'Refresh', aud: API, azp: CLIENT, sub: 'u' } },
      'token without the audience mapper': {
        typ: 'JWT',
        claims: { typ: 'Bearer', aud: 'account', azp: CLIENT, sub: 'u', scope: 'read' },
      },
    },
  },
  duende: {
    title: 'Duende IdentityServer',
    accepted: {
      'of a user': {
        typ: 'at+jwt',
        claims: {
          aud: API,
          client_id: CLIENT,
          scope: ['openid', 'read'],
          sub: 'u',
          idp: 'local',
          amr: ['pwd'],
        },
      },
    },
    refused: {
      'ID token with the audience of the API': {
        typ: 'JWT',
        claims: { aud: API, client_id: CLIENT, sub: 'u' },
      },
    },
  },
  ping: {
    title: 'Ping',
    accepted: {
      'of a machine': { claims: { aud: [API], client_id: CLIENT, scope: 'read', env: 'e', org: 'o' } },
    },
    refused: {
      'ID token': { claims: { ...ofClient, env: 'e', org: 'o' } },
      'token for PingOne itself': {
        claims: { aud: ['https://api.pingone.eu'], client_id: CLIENT, scope: 'read', env: 'e', org: 'o' },
      },
    },
  },
  'oidc-provider': {
    title: 'oidc-provider',
    accepted: {
      'for a resource': {
        typ: 'at+jwt',
        claims: { aud: API, client_id: CLIENT, scope: 'read', sub: 'u', jti: 'j' },
      },
    },
    refused: {
      'ID token with the audience of the API': {
        typ: 'JWT',
        claims: { aud: API, client_id: CLIENT, sub: 'u' },
      },
    },
    introspected: {
      accepted: { client_id: CLIENT, iat: 1, scope: 'read', token_type: 'Bearer' },
      refused: { client_id: CLIENT, iat: 1, scope: 'read', sub: 'u' },
    },
  },
  hydra: {
    title: 'Ory Hydra',
    accepted: {
      'without audience': {
        typ: 'JWT',
        claims: { aud: [], client_id: CLIENT, ext: {}, jti: 'j', nbf: 1, scp: ['read'], sub: 'u' },
      },
    },
    refused: {
      'ID token': { typ: 'JWT', claims: { ...ofClient, aud: [CLIENT], rat: 1, sid: 's' } },
      'token of another API': {
        typ: 'JWT',
        claims: { aud: [OTHER_API], client_id: CLIENT, scp: ['read'], sub: 'u' },
      },
    },
    introspected: {
      accepted: {
        client_id: CLIENT,
        aud: [],
        scope: 'read',
        sub: 'u',
        token_type: 'Bearer',
        token_use: 'access_token',
      },
      refused: {
        client_id: CLIENT,
        aud: [],
        scope: 'read',
        sub: 'u',
        token_type: 'Bearer',
        token_use: 'refresh_token',
      },
    },
  },
  forgerock: {
    title: 'ForgeRock',
    accepted: {
      'of a user': {
        typ: 'JWT',
        claims: {
          ...{ aud: 'app-1', sub: 'u', tokenName: 'access_token', token_type: 'Bearer', realm: '/alpha' },
          ...{ scope: ['openid', 'read'], grant_type: 'authorization_code', cts: 'OAUTH2_STATELESS_GRANT' },
        },
      },
    },
    refused: {
      'ID token': {
        typ: 'JWT',
        claims: {
          aud: 'app-1',
          azp: 'app-1',
          sub: 'u',
          tokenName: 'id_token',
          tokenType: 'JWTToken',
          realm: '/alpha',
        },
      },
      'refresh token': {
        typ: 'JWT',
        claims: { aud: 'app-1', sub: 'u', tokenName: 'refresh_token', scope: ['read'] },
      },
      'token of a client that is not listed': {
        typ: 'JWT',
        claims: { aud: 'app-3', sub: 'u', tokenName: 'access_token', scope: ['read'] },
      },
    },
  },
  google: {
    title: 'Google',
    path: '/any',
    accepted: {
      'of a service account': {
        typ: 'JWT',
        claims: {
          aud: API,
          azp: CLIENT,
          email: 's@example.iam.gserviceaccount.com',
          email_verified: true,
          sub: '1',
        },
      },
    },
    refused: {
      'ID token of a person': {
        typ: 'JWT',
        claims: { aud: CLIENT, azp: CLIENT, at_hash: 'x', sub: '1', hd: 'example.com' },
      },
    },
  },
}

/** Returns the lines of a provider's section. */
function blockOf(title: string): { readonly text: string; readonly block: Block } {
  const section = page.split(/^## /m).find((one) => one.startsWith(`${title}\n`))!
  const [text = ''] = codeBlocks(section, 'yml')
  return { text, block: parse(text) as Block }
}

const SERVICE = `store: memory
upstreams: { data: { url: "http://data.internal:4000" } }
routes: [{ match: "/*", upstream: data, authenticate: bearer }]
`
const [issuer, introspection, upstream] = await Promise.all([
  startIssuer({ algorithms: ['RS256'] }),
  startIntrospection(),
  startUpstream(),
])
const env = { INTROSPECTION_SECRET: 'secret-of-the-page' }

it('docs/identity-providers.md has a section and a row for each provider that init knows', () => {
  expect(Object.keys(DOCUMENTED)).toEqual(PROVIDERS.filter((name) => name !== 'other'))
  for (const [name, { title }] of Object.entries(DOCUMENTED)) {
    expect(page).toContain(`\n## ${title}\n`)
    expect(page).toMatch(new RegExp(`^\\| \\[${title}\\]\\(#[a-z0-9-]+\\) \\| \`${name}\` \\|`, 'm'))
  }
  for (const page of ['README.md', 'docs/troubleshooting.md'])
    expect(fileText(page)).toContain('identity-providers.md')
})

describe.each(Object.entries(DOCUMENTED))('the lines of tokens for %s', (name, provider) => {
  const { title, accepted, refused, introspected, path = '/read' } = provider
  const { text, block } = blockOf(title)
  // Where the client is in `aud`, the page lists clients.
  const { audience } = block.tokens
  const client = typeof audience === 'string' ? CLIENT : audience[0]!
  let port: number
  beforeAll(async () => {
    const { introspection: endpoint, ...tokens } = block.tokens
    const replaced = {
      ...tokens,
      ...{ issuer: issuer.issuer, jwks: issuer.jwksUri },
      ...(endpoint && { introspection: { ...endpoint, url: introspection.url } }),
    }
    vi.stubEnv('INTROSPECTION_SECRET', env.INTROSPECTION_SECRET)
    const gateway = await startGateway({
      data: upstream.url,
      tokens: replaced,
      limits: { requests: { per: ['client'], limit: 1000, window: '1m' } },
      routes: [
        { match: '/read', upstream: 'data', authenticate: 'bearer', scope: ['read'], limits: ['requests'] },
        { match: '/any', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
      ],
      more: { clients: [{ id: client, limits: { requests: { limit: 7000 } } }] },
    })
    port = gateway.port
    vi.unstubAllEnvs()
  })

  const send = async (token: string) => {
    const { status, headers } = await call(port, { path, token })
    return `${status} ${String(headers['x-ratelimit-limit'] ?? '')}`.trim()
  }
  const signed = ({ typ, claims }: Jwt) =>
    issuer.token({ aud: undefined, client_id: undefined, ...claims }, { header: { typ } })

  it('are at most ten, load without a warning, and are those of init --provider', async () => {
    expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(11)
    const shown = await loadConfig({ file: '-', text: text + SERVICE, env })
    expect(shown.config.warnings).toEqual([])
    const { introspection: _, ...tokens } = shown.config.tokens[0]!
    const [audience = ''] = tokens.audience
    const flags = [
      '--issuer',
      tokens.issuer,
      '--audience',
      audience,
      '--api',
      API,
      '--data',
      'http://d.internal',
    ]
    const { code, stdout } = await sluice([
      'init',
      '--provider',
      name,
      ...flags,
      '--redis',
      'memory',
      '--output',
      '-',
    ])
    expect(code).toBe(0)
    const { config } = await loadConfig({ file: '-', text: stdout })
    expect(config.tokens).toEqual([{ ...tokens, audience: [audience] }])
    expect(/# introspection:/.test(stdout)).toBe(block.tokens.introspection !== undefined)
  })

  it.each(Object.entries(accepted))('accept a token %s', async (_, token) => {
    expect(await send(signed(token))).toBe('200 7000')
  })

  it.each(Object.entries(refused))('refuse: %s', async (_, token) => {
    expect(await send(signed(token))).toBe('401')
  })

  if (introspected === undefined) return
  it('accept an opaque access token, and refuse a refresh token', async () => {
    const common = { active: true, iss: issuer.issuer, exp: Math.floor(Date.now() / 1000) + 60 }
    introspection.answer = { ...common, ...introspected.accepted }
    expect(await send('an-access-token')).toBe('200 7000')
    introspection.answer = { ...common, ...introspected.refused }
    expect(await send('a-refresh-token')).toBe('401')
  })
})
