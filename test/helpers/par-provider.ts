import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import type Provider from 'oidc-provider'
import type { ClientMetadata, Configuration } from 'oidc-provider'
import { vi } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import { createClientKeys } from '../../src/par/client-keys.ts'
import { createParGuard } from '../../src/par/guard.ts'
import { errorReply, speak } from '../../src/reply.ts'
import { makeKey } from './issuer.ts'

export const REDIRECT_URI = 'https://client.example.com/callback'
export const SECRET = 'a secret: with/some %signs + more'
export const SIGNING_KEY = makeKey('PS256')

/** A real OpenID Provider, with the guard before its PAR endpoint and without. */
export interface GuardedProvider {
  /** Where clients find it, behind the guard. */
  readonly issuer: string
  /** The PAR endpoint past the guard, under the same name. */
  readonly unguarded: string
  /** How many pushed requests came to the provider through the guard. */
  reached(): number
  close(): Promise<void>
}

const PAST = '/past-the-guard'

const authenticated = {
  grant_types: ['authorization_code'],
  response_types: ['code' as const],
  redirect_uris: [REDIRECT_URI],
}
const keyed = {
  ...authenticated,
  token_endpoint_auth_method: 'private_key_jwt' as const,
  jwks: { keys: [SIGNING_KEY.jwk] },
}
const CLIENTS: ClientMetadata[] = [
  { ...keyed, client_id: 'signing', request_object_signing_alg: 'PS256' },
  { ...keyed, client_id: 'keyed' },
  { ...authenticated, client_id: 'secret', client_secret: SECRET },
]

/** What an operator of the gateway knows of them. */
function settings(): Parameters<typeof createParGuard>[0]['clients'] {
  const keys = createClientKeys({ jwks: keyed.jwks }, { failed() {}, recovered() {} })
  return [
    { id: 'signing', authentication: 'private_key_jwt', requestObjectSigningAlg: 'PS256', keys },
    { id: 'keyed', authentication: 'private_key_jwt', requestObjectSigningAlg: 'none', keys },
    { id: 'secret', authentication: 'client_secret_basic', requestObjectSigningAlg: 'none' },
  ]
}

const COMMON = {
  clients: CLIENTS,
  routes: { authorization: '/auth', token: '/token', pushed_authorization_request: '/request' },
  pkce: { required: () => false },
}
const VERSIONS = {
  7: async (issuer: string): Promise<Provider> =>
    new (await import('oidc-provider7')).default(issuer, {
      ...COMMON,
      pkce: { ...COMMON.pkce, methods: ['S256'] },
      enabledJWA: { requestObjectSigningAlgValues: ['none', 'PS256', 'RS256'] },
      features: {
        devInteractions: { enabled: false },
        claimsParameter: { enabled: true },
        pushedAuthorizationRequests: { enabled: true },
        requestObjects: { request: true },
      },
    } as Configuration),
  9: async (issuer: string): Promise<Provider> =>
    new (await import('oidc-provider')).default(issuer, {
      ...COMMON,
      features: {
        devInteractions: { enabled: false },
        claimsParameter: { enabled: true },
        pushedAuthorizationRequests: { enabled: true },
        requestObjects: { enabled: true },
      },
    }),
}

/** Starts a provider of one generation on a free port, its issuer being the address of the guard before it. */
export async function startGuardedProvider(version: 7 | 9): Promise<GuardedProvider> {
  const front = createServer((request, response) => void serve(request, response))
  const base = await listen(front)
  const issuer = `${base}/oidc`
  const answer = await quietly(async () => (await VERSIONS[version](issuer)).callback())
  const provider = createServer((request, response) => {
    const url = request.url ?? '/'
    Object.assign(request, { originalUrl: url, url: url.replace(/^\/oidc/, '') })
    void answer(request, response)
  })
  const upstream = await listen(provider)
  const guard = createParGuard({
    issuer,
    audiences: [`${issuer}/token`, `${issuer}/request`],
    assertionAudience: 'compatible',
    leewayMs: 10_000,
    maxBody: 64 * 1024,
    unknownClients: 'forward',
    clients: settings(),
  })
  let reached = 0

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
    const body = Buffer.concat(chunks)
    if (request.url === '/oidc/request') {
      const { authorization } = request.headers
      const checked = await guard.check({
        method: request.method!,
        contentType: request.headers['content-type'],
        contentEncoding: request.headers['content-encoding'],
        authorization: authorization === undefined ? [] : [authorization],
        body,
      })
      if (checked instanceof GatewayError) {
        speak(response, errorReply(checked, 'oauth', 'request-id'))
        return
      }
      reached++
    }
    const forwarded = httpRequest(
      upstream + request.url!.replace(PAST, ''),
      { method: request.method!, headers: request.headers },
      (incoming) => {
        response.writeHead(incoming.statusCode!, incoming.headers)
        incoming.pipe(response)
      },
    )
    forwarded.end(body)
  }

  return {
    issuer,
    unguarded: `${base}${PAST}/oidc/request`,
    reached: () => reached,
    async close() {
      for (const server of [front, provider]) {
        server.closeAllConnections()
        await new Promise((resolve) => server.close(resolve))
      }
    },
  }
}

/** Without the provider's notices of what a test is for: storage in memory, made-up keys. */
async function quietly<T>(work: () => Promise<T>): Promise<T> {
  const spies = (['info', 'warn'] as const).map((level) => vi.spyOn(console, level).mockReturnValue())
  try {
    return await work()
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
}

async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
