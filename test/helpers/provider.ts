import { createIdentity } from '../../src/commands/sandbox/backends.ts'
import { listenLocally } from './local-server.ts'
import { makeKey, type TestKey } from './issuer.ts'

export interface TestProvider {
  /** The URL at which it listens; callers use its issuer. */
  readonly url: string
  readonly issuer: string
  readonly audience: string
  /** Authenticates with `client_secret_basic`. */
  readonly basic: { readonly id: string; readonly secret: string }
  /** Authenticates with `private_key_jwt` and signs its request objects, with the same key. */
  readonly signing: { readonly id: string; readonly key: TestKey }
  /** The redirect URI of both clients. */
  readonly redirectUri: string
  close(): Promise<void>
}

/** Starts the sandbox's OpenID Provider with the clients of the tests, on a free port, with the issuer of a gateway. */
export async function startProvider({
  issuer,
  audience = 'https://api.example.com',
}: {
  readonly issuer: string
  readonly audience?: string
}): Promise<TestProvider> {
  const redirectUri = 'http://localhost:1/callback'
  const basic = { id: 'basic-client', secret: 'a secret: with/some %signs' }
  const signing = { id: 'signing-client', key: makeKey('PS256') }
  const common = {
    grant_types: ['client_credentials', 'authorization_code', 'refresh_token'],
    response_types: ['code' as const],
    redirect_uris: [redirectUri],
  }
  const server = await createIdentity({
    issuer,
    audience,
    clients: [
      {
        ...common,
        client_id: basic.id,
        client_secret: basic.secret,
        token_endpoint_auth_method: 'client_secret_basic',
      },
      {
        ...common,
        client_id: signing.id,
        token_endpoint_auth_method: 'private_key_jwt',
        token_endpoint_auth_signing_alg: 'PS256',
        request_object_signing_alg: 'PS256',
        jwks: { keys: [signing.key.jwk] },
      },
    ],
  })
  const { url, close } = await listenLocally(server)
  return { url, issuer, audience, basic, signing, redirectUri, close }
}
