/** Kinds of services for which `init` writes a configuration; the first has access tokens, and is asked about them. */
export const KINDS = ['open-banking', 'api', 'api-keys'] as const
/** The identity providers of `init --provider`, whose settings of `tokens` it writes. */
export const PROVIDERS = [
  ...['auth0', 'okta', 'entra-id', 'cognito', 'keycloak', 'duende'],
  ...['ping', 'oidc-provider', 'hydra', 'forgerock', 'google', 'other'],
]
/** The formats of logs that `replay` reads. */
export const LOG_FORMATS = [
  ...(['auto', 'sluice', 'combined', 'caddy', 'traefik', 'envoy'] as const),
  ...(['kong', 'haproxy', 'alb', 'cloudfront', 'pino', 'json'] as const),
] as const
export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']
