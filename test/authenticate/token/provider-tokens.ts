/** The tokens of identity providers, by their documented claims, as test data and for docs. */

type Claims = Readonly<Record<string, unknown>>

/** A token of one provider and kind. */
export interface ProviderToken {
  readonly kind: string
  /** Adds to or replaces `typ: JWT`; undefined removes it. */
  readonly header?: Claims
  /** Besides `iss`, `iat` and `exp`, which it may replace. */
  readonly claims: Claims
  /** The client that calls if the token is accepted, or the text of the refusal. */
  readonly client?: string
  readonly refused?: string
  /** True for an opaque token: `claims` is the introspection response, without `active`. */
  readonly opaque?: boolean
  /** True if it has the scope `accounts:read`. */
  readonly scope?: boolean
}

export interface Provider {
  readonly name: string
  /** The settings of `tokens`, as in docs; tests add `jwks`, or replace the endpoint of introspection. */
  readonly settings: Claims
  readonly tokens: readonly ProviderToken[]
}

const API = 'https://api.example.com'
const OTHER_API = 'https://other.example.com'
const AUDIENCE = 'The access token is for another audience.'
const KIND = 'The token is not an access token.'
const ISSUER = 'The issuer is not trusted here.'
const CLIENT = 'The access token does not name a client.'
const AT_JWT = { typ: 'at+jwt' }
const INTROSPECTION = { clientId: 'sluice', clientSecret: '${SLUICE_INTROSPECTION_SECRET}' }

const auth0: Claims = {
  sub: 'auth0|5f7c',
  aud: [API, 'https://acme.eu.auth0.com/userinfo'],
  azp: 'app',
  scope: 'openid accounts:read',
}
const okta: Claims = {
  ver: 1,
  jti: 'AT.x',
  sub: 'joe@example.com',
  aud: API,
  cid: 'app',
  uid: '00u1',
  scp: ['openid', 'accounts:read'],
}
const entraV1: Claims = {
  aud: `api://sluice`,
  appid: 'app',
  appidacr: '1',
  oid: 'o1',
  sub: 's1',
  tid: 't1',
  ver: '1.0',
  uti: 'u',
}
const entraV2: Claims = {
  aud: '11111111-api',
  azp: 'app',
  azpacr: '1',
  oid: 'o1',
  sub: 's1',
  tid: 't1',
  ver: '2.0',
  uti: 'u',
}
const cognito: Claims = {
  sub: 'u1',
  client_id: 'app',
  origin_jti: 'o',
  token_use: 'access',
  auth_time: 1,
  version: 2,
  jti: 'j',
  username: 'joe',
  scope: 'openid accounts:read',
}
const keycloak: Claims = {
  jti: 'j',
  sub: 'u1',
  typ: 'Bearer',
  azp: 'app',
  sid: 's',
  acr: '1',
  realm_access: { roles: ['user'] },
  scope: 'openid accounts:read',
}
const duende: Claims = { nbf: 1, client_id: 'app', sub: 'u1', auth_time: 1, idp: 'local', jti: 'j', sid: 's' }
const hydra: Claims = { client_id: 'app', ext: {}, jti: 'j', nbf: 1, sub: 'u1', scp: ['accounts:read'] }
const opaqueApp: Claims = { client_id: 'app', token_type: 'Bearer', scope: 'accounts:read' }

const OTHER_AUDIENCE = { refused: AUDIENCE }

export const PROVIDERS: readonly Provider[] = [
  {
    name: 'Auth0',
    settings: { issuer: 'https://acme.eu.auth0.com/', audience: API, clientClaim: 'azp' },
    tokens: [
      { kind: 'access token of a user', claims: auth0, client: 'app', scope: true },
      {
        kind: 'access token of an application',
        claims: {
          sub: 'app@clients',
          aud: API,
          azp: 'app',
          gty: 'client-credentials',
          scope: 'accounts:read',
        },
        client: 'app',
        scope: true,
      },
      { kind: 'access token of another API', claims: { ...auth0, aud: [OTHER_API] }, ...OTHER_AUDIENCE },
      {
        kind: 'ID token',
        claims: { sub: 'auth0|5f7c', aud: 'app', nonce: 'n', sid: 's' },
        ...OTHER_AUDIENCE,
      },
      {
        kind: 'logout token',
        header: { typ: 'logout+jwt' },
        claims: { sub: 'auth0|5f7c', aud: API, azp: 'app', events: {} },
        refused: KIND,
      },
    ],
  },
  {
    name: 'Auth0 with the profile of RFC 9068',
    settings: { issuer: 'https://acme.eu.auth0.com/', audience: API, type: 'strict' },
    tokens: [
      {
        kind: 'access token',
        header: AT_JWT,
        claims: { sub: 'auth0|5f7c', aud: API, client_id: 'app', jti: 'j', scope: 'accounts:read' },
        client: 'app',
        scope: true,
      },
      { kind: 'access token of the other profile', claims: { ...auth0, client_id: 'app' }, refused: KIND },
    ],
  },
  {
    name: 'Auth0 with a custom domain',
    settings: {
      issuer: ['https://login.example.com/', 'https://acme.eu.auth0.com/'],
      audience: API,
      clientClaim: 'azp',
    },
    tokens: [
      { kind: 'access token by the custom domain', claims: auth0, client: 'app', scope: true },
      {
        kind: 'access token by the domain of the tenant',
        claims: { ...auth0, iss: 'https://acme.eu.auth0.com/' },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token of another tenant',
        claims: { ...auth0, iss: 'https://mallory.eu.auth0.com/' },
        refused: ISSUER,
      },
    ],
  },
  {
    name: 'Okta',
    settings: { issuer: 'https://acme.okta.com/oauth2/default', audience: API, clientClaim: 'cid' },
    tokens: [
      { kind: 'access token of a user', claims: okta, client: 'app', scope: true },
      {
        kind: 'access token of a service',
        claims: { ...okta, uid: undefined, sub: 'app' },
        client: 'app',
        scope: true,
      },
      { kind: 'access token without the scope', claims: { ...okta, scp: ['openid'] }, client: 'app' },
      { kind: 'access token of another API', claims: { ...okta, aud: OTHER_API }, ...OTHER_AUDIENCE },
      {
        kind: 'ID token',
        claims: { ver: 1, jti: 'ID.x', sub: 'u', aud: 'app', amr: ['pwd'], idp: 'i', at_hash: 'h' },
        ...OTHER_AUDIENCE,
      },
    ],
  },
  {
    name: 'Microsoft Entra ID, v2.0',
    settings: {
      issuer: 'https://login.microsoftonline.com/TENANT/v2.0',
      audience: '11111111-api',
      clientClaim: 'azp',
    },
    tokens: [
      {
        kind: 'access token of a user',
        claims: { ...entraV2, scp: 'User.Read accounts:read' },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token of an application',
        claims: { ...entraV2, idtyp: 'app', roles: ['Accounts.Read'] },
        client: 'app',
      },
      {
        kind: 'ID token of another application',
        claims: { ...entraV2, aud: 'app', azp: undefined, nonce: 'n' },
        ...OTHER_AUDIENCE,
      },
      {
        kind: 'ID token of the same application',
        claims: { ...entraV2, azp: undefined, nonce: 'n' },
        refused: KIND,
      },
      {
        kind: 'access token of another tenant',
        claims: { ...entraV2, iss: 'https://login.microsoftonline.com/OTHER/v2.0' },
        refused: ISSUER,
      },
    ],
  },
  {
    name: 'Microsoft Entra ID, v1.0',
    settings: { issuer: 'https://sts.windows.net/TENANT/', audience: 'api://sluice', clientClaim: 'appid' },
    tokens: [
      {
        kind: 'access token of a user',
        claims: { ...entraV1, scp: 'accounts:read', amr: ['pwd'] },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token of an application',
        claims: { ...entraV1, idtyp: 'app', roles: ['Accounts.Read'] },
        client: 'app',
      },
      {
        kind: 'access token for Microsoft Graph',
        claims: { ...entraV1, aud: 'https://graph.microsoft.com' },
        ...OTHER_AUDIENCE,
      },
    ],
  },
  {
    name: 'Amazon Cognito',
    settings: {
      issuer: 'https://cognito-idp.eu-central-1.amazonaws.com/POOL',
      audience: API,
      audienceOptional: true,
    },
    tokens: [
      {
        kind: 'access token of a user',
        header: { typ: undefined },
        claims: cognito,
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token of an application',
        header: { typ: undefined },
        claims: { ...cognito, sub: 'app', username: undefined },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token for a resource',
        header: { typ: undefined },
        claims: { ...cognito, aud: API },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token for another resource',
        header: { typ: undefined },
        claims: { ...cognito, aud: OTHER_API },
        ...OTHER_AUDIENCE,
      },
      {
        kind: 'ID token',
        header: { typ: undefined },
        claims: { sub: 'u1', aud: 'app', token_use: 'id', auth_time: 1, 'cognito:username': 'joe' },
        ...OTHER_AUDIENCE,
      },
      {
        kind: 'ID token without audience',
        header: { typ: undefined },
        claims: { ...cognito, token_use: 'id' },
        refused: KIND,
      },
    ],
  },
  {
    name: 'Keycloak',
    settings: { issuer: 'https://id.example.com/realms/acme', audience: API, clientClaim: 'azp' },
    tokens: [
      {
        kind: 'access token, with an audience mapper',
        claims: { ...keycloak, aud: [API, 'account'] },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token before Keycloak 25',
        claims: { ...keycloak, aud: API, nonce: 'n', session_state: 's' },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token of a service account',
        claims: {
          ...keycloak,
          aud: API,
          sid: undefined,
          clientHost: '192.0.2.1',
          preferred_username: 'service-account-app',
        },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token without an audience mapper',
        claims: { ...keycloak, aud: 'account' },
        ...OTHER_AUDIENCE,
      },
      {
        kind: 'ID token',
        claims: { ...keycloak, typ: 'ID', aud: [API, 'app'], nonce: 'n', at_hash: 'h' },
        refused: KIND,
      },
      { kind: 'refresh token', claims: { ...keycloak, typ: 'Refresh', aud: [API] }, refused: KIND },
      { kind: 'offline token', claims: { ...keycloak, typ: 'Offline', aud: [API] }, refused: KIND },
      { kind: 'logout token', claims: { ...keycloak, typ: 'Logout', aud: API, events: {} }, refused: KIND },
    ],
  },
  {
    name: 'Keycloak, lightweight access tokens',
    settings: {
      issuer: 'https://id.example.com/realms/acme',
      audience: API,
      audienceOptional: true,
      clientClaim: 'azp',
    },
    tokens: [
      {
        kind: 'access token',
        claims: { jti: 'j', typ: 'Bearer', azp: 'app', sid: 's', scope: 'accounts:read' },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token of another API',
        claims: { jti: 'j', typ: 'Bearer', azp: 'app', aud: 'account' },
        ...OTHER_AUDIENCE,
      },
      {
        kind: 'refresh token',
        claims: { jti: 'j', typ: 'Refresh', azp: 'app', aud: 'https://id.example.com/realms/acme' },
        ...OTHER_AUDIENCE,
      },
      {
        kind: 'refresh token without audience',
        claims: { jti: 'j', typ: 'Refresh', azp: 'app' },
        refused: KIND,
      },
      {
        kind: 'authorisation response',
        claims: { iss: 'https://id.example.com/realms/acme', azp: 'app', code: 'c', state: 's' },
        refused: KIND,
      },
    ],
  },
  {
    name: 'Duende IdentityServer',
    settings: { issuer: 'https://id.example.com', audience: API, type: 'strict' },
    tokens: [
      {
        kind: 'access token for an API resource, with a list of scopes',
        header: AT_JWT,
        claims: { ...duende, aud: API, scope: ['openid', 'accounts:read'] },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token for an API resource, with scopes as a text',
        header: AT_JWT,
        claims: { ...duende, aud: API, scope: 'openid accounts:read' },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token of scopes alone',
        header: AT_JWT,
        claims: { ...duende, scope: ['accounts:read'] },
        ...OTHER_AUDIENCE,
      },
      { kind: 'ID token', claims: { ...duende, aud: API, nonce: 'n', at_hash: 'h' }, refused: KIND },
    ],
  },
  {
    name: 'Duende IdentityServer, scopes alone',
    settings: { issuer: 'https://id.example.com', audience: API, audienceOptional: true, type: 'strict' },
    tokens: [
      {
        kind: 'access token',
        header: AT_JWT,
        claims: { ...duende, scope: ['accounts:read'] },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token of another API',
        header: AT_JWT,
        claims: { ...duende, aud: [OTHER_API], scope: ['accounts:read'] },
        ...OTHER_AUDIENCE,
      },
    ],
  },
  {
    name: 'PingFederate and PingOne',
    settings: { algorithms: ['RS256'], issuer: 'https://auth.pingone.eu/ENV/as', audience: API },
    tokens: [
      {
        kind: 'access token',
        claims: {
          client_id: 'app',
          jti: 'j',
          sub: 'u1',
          aud: [API],
          scope: 'accounts:read',
          env: 'ENV',
          org: 'o',
        },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token for userinfo',
        claims: { client_id: 'app', sub: 'u1', aud: ['https://api.pingone.eu'] },
        ...OTHER_AUDIENCE,
      },
      { kind: 'ID token', claims: { sub: 'u1', aud: 'app', at_hash: 'h', nonce: 'n' }, ...OTHER_AUDIENCE },
    ],
  },
  {
    name: 'oidc-provider',
    settings: { issuer: 'https://id.example.com/oidc', audience: API, type: 'strict' },
    tokens: [
      {
        kind: 'access token for a resource',
        header: AT_JWT,
        claims: { jti: 'j', sub: 'u1', client_id: 'app', aud: API, scope: 'accounts:read' },
        client: 'app',
        scope: true,
      },
      { kind: 'ID token', claims: { sub: 'u1', aud: 'app', at_hash: 'h' }, refused: KIND },
    ],
  },
  {
    name: 'oidc-provider, opaque tokens',
    settings: {
      type: 'strict',
      issuer: 'https://id.example.com/oidc',
      audience: API,
      introspection: { url: 'https://id.example.com/oidc/token/introspection', ...INTROSPECTION },
    },
    tokens: [
      { kind: 'access token', opaque: true, claims: opaqueApp, client: 'app', scope: true },
      {
        kind: 'access token for a resource',
        opaque: true,
        claims: { ...opaqueApp, aud: API },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token for another resource',
        opaque: true,
        claims: { ...opaqueApp, aud: OTHER_API },
        ...OTHER_AUDIENCE,
      },
      {
        kind: 'refresh token',
        opaque: true,
        claims: { client_id: 'app', sub: 'u1', scope: 'accounts:read' },
        refused: KIND,
      },
    ],
  },
  {
    name: 'Ory Hydra',
    settings: { issuer: 'https://id.example.com/', audience: API, audienceOptional: true },
    tokens: [
      { kind: 'access token without audience', claims: { ...hydra, aud: [] }, client: 'app', scope: true },
      { kind: 'access token for the API', claims: { ...hydra, aud: [API] }, client: 'app', scope: true },
      { kind: 'access token of another API', claims: { ...hydra, aud: [OTHER_API] }, ...OTHER_AUDIENCE },
      {
        kind: 'ID token',
        claims: { aud: ['app'], sub: 'u1', at_hash: 'h', nonce: 'n', sid: 's' },
        ...OTHER_AUDIENCE,
      },
    ],
  },
  {
    name: 'Ory Hydra, opaque tokens',
    settings: {
      audienceOptional: true,
      issuer: 'https://id.example.com/',
      audience: API,
      introspection: { url: 'http://hydra:4445/admin/oauth2/introspect', ...INTROSPECTION },
    },
    tokens: [
      {
        kind: 'access token',
        opaque: true,
        claims: { ...opaqueApp, aud: [], ext: null, nbf: 1, token_use: 'access_token' },
        client: 'app',
        scope: true,
      },
      {
        kind: 'refresh token',
        opaque: true,
        claims: { client_id: 'app', aud: null, sub: 'u1', token_use: 'refresh_token' },
        refused: KIND,
      },
    ],
  },
  {
    name: 'ForgeRock',
    settings: { issuer: 'https://am.example.com/am/oauth2', audience: ['app', 'batch'], clientClaim: 'aud' },
    tokens: [
      {
        kind: 'access token',
        claims: {
          sub: 'u1',
          cts: 'OAUTH2_STATELESS_GRANT',
          auditTrackingId: 'a',
          subname: 'u1',
          tokenName: 'access_token',
          token_type: 'Bearer',
          aud: 'app',
          grant_type: 'client_credentials',
          scope: ['accounts:read'],
        },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token of a client that is not listed',
        claims: { sub: 'u1', tokenName: 'access_token', token_type: 'Bearer', aud: 'other' },
        ...OTHER_AUDIENCE,
      },
      {
        kind: 'ID token',
        claims: { sub: 'u1', tokenName: 'id_token', tokenType: 'JWTToken', aud: 'app', azp: 'app' },
        refused: KIND,
      },
    ],
  },
  {
    name: 'FusionAuth',
    settings: {
      issuer: 'acme.com',
      audience: ['app'],
      clientClaim: 'aud',
      jwks: 'https://id.example.com/.well-known/jwks.json',
    },
    tokens: [
      {
        kind: 'access token',
        claims: {
          aud: 'app',
          sub: 'u1',
          jti: 'j',
          authenticationType: 'PASSWORD',
          applicationId: 'app',
          roles: ['user'],
          scope: 'accounts:read',
        },
        client: 'app',
        scope: true,
      },
      { kind: 'access token of another application', claims: { aud: 'other', sub: 'u1' }, ...OTHER_AUDIENCE },
      { kind: 'ID token', claims: { aud: 'app', sub: 'u1', at_hash: 'h', nonce: 'n' }, refused: KIND },
      {
        kind: 'access token of an issuer with a longer name',
        claims: { iss: 'acme.com.mallory.example', aud: 'app', sub: 'u1' },
        refused: ISSUER,
      },
    ],
  },
  {
    name: 'Google, ID tokens of service accounts',
    settings: {
      issuer: ['https://accounts.google.com', 'accounts.google.com'],
      audience: API,
      clientClaim: 'azp',
    },
    tokens: [
      {
        kind: 'token of a service account',
        claims: {
          aud: API,
          azp: '1077',
          email: 'svc@acme.iam.gserviceaccount.com',
          email_verified: true,
          sub: '1077',
        },
        client: '1077',
      },
      {
        kind: 'token by the short name',
        claims: { iss: 'accounts.google.com', aud: API, azp: '1077', sub: '1077' },
        client: '1077',
      },
      {
        kind: 'ID token of a user',
        claims: { aud: 'app.apps.googleusercontent.com', azp: 'app', sub: '1', at_hash: 'h', nonce: 'n' },
        ...OTHER_AUDIENCE,
      },
    ],
  },
  {
    name: 'Salesforce',
    settings: { issuer: 'https://acme.my.salesforce.com', audience: 'https://acme.my.salesforce.com' },
    tokens: [
      {
        kind: 'access token',
        claims: {
          scp: 'accounts:read openid',
          aud: ['https://acme.my.salesforce.com'],
          sub: 'uid:005',
          nbf: 1,
          mty: 'oauth',
          sfi: 's',
          roles: [],
          client_id: 'app',
          sfap_op: 'x',
        },
        client: 'app',
        scope: true,
      },
      {
        kind: 'ID token',
        claims: { aud: 'app', sub: 'https://login.salesforce.com/id/1', at_hash: 'h' },
        ...OTHER_AUDIENCE,
      },
    ],
  },
  {
    name: 'Curity',
    settings: { issuer: 'https://id.example.com/oauth/v2/oauth-anonymous', audience: API },
    tokens: [
      {
        kind: 'access token',
        claims: {
          jti: 'j',
          delegationId: 'd',
          scope: 'accounts:read',
          aud: API,
          azp: 'app',
          client_id: 'app',
          sub: 'u1',
          nbf: 1,
          purpose: 'access_token',
        },
        client: 'app',
        scope: true,
      },
      {
        kind: 'ID token',
        claims: { aud: 'app', azp: 'app', at_hash: 'h', sub: 'u1', purpose: 'id' },
        ...OTHER_AUDIENCE,
      },
    ],
  },
  {
    name: 'Cloud Foundry UAA and SAP XSUAA',
    settings: {
      issuer: 'https://acme.authentication.eu10.hana.ondemand.com/oauth/token',
      audience: 'sluice',
    },
    tokens: [
      {
        kind: 'access token',
        claims: {
          jti: 'j',
          sub: 'app',
          authorities: ['accounts:read'],
          scope: ['openid', 'accounts:read'],
          client_id: 'app',
          cid: 'app',
          azp: 'app',
          grant_type: 'client_credentials',
          zid: 'z',
          aud: ['sluice', 'app'],
        },
        client: 'app',
        scope: true,
      },
      {
        kind: 'refresh token',
        header: { kid: undefined },
        claims: { jti: 'j-r', sub: 'u1', client_id: 'app', cid: 'app', aud: ['uaa'] },
        ...OTHER_AUDIENCE,
      },
    ],
  },
  {
    name: 'Supabase',
    settings: { issuer: 'https://acme.supabase.co/auth/v1', audience: 'authenticated', clientClaim: 'aud' },
    tokens: [
      {
        kind: 'access token of a user',
        claims: {
          aud: 'authenticated',
          sub: 'u1',
          role: 'authenticated',
          aal: 'aal1',
          session_id: 's',
          is_anonymous: false,
        },
        client: 'authenticated',
      },
      { kind: 'token of the anonymous role', claims: { aud: 'anon', role: 'anon' }, ...OTHER_AUDIENCE },
    ],
  },
  {
    name: 'WSO2, opaque tokens',
    settings: {
      issuer: 'https://id.example.com/oauth2/token',
      audience: API,
      introspection: {
        url: 'https://id.example.com/oauth2/introspect',
        authentication: 'post',
        ...INTROSPECTION,
      },
    },
    tokens: [
      {
        kind: 'access token',
        opaque: true,
        claims: { ...opaqueApp, username: 'joe', nbf: 1 },
        client: 'app',
        scope: true,
      },
      {
        kind: 'access token without a client',
        opaque: true,
        claims: { token_type: 'Bearer', username: 'joe' },
        refused: CLIENT,
      },
    ],
  },
]
