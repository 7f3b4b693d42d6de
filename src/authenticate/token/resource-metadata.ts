const WELL_KNOWN = '/.well-known/oauth-protected-resource'

/**
 * Returns the path of the metadata of a protected resource (RFC 9728 section 3.1): the well-known
 * path, followed by that of the resource.
 */
export function metadataPath(resource: string): string {
  const { pathname } = new URL(resource)
  return pathname === '/' ? WELL_KNOWN : WELL_KNOWN + pathname
}

/** Returns the URL of the metadata of a protected resource. */
export const metadataUrl = (resource: string): string => new URL(resource).origin + metadataPath(resource)

/** Metadata of a protected resource (RFC 9728 section 2). Undefined and empty members are absent. */
export interface ResourceMetadata {
  readonly resource: string
  readonly authorization_servers: readonly string[] | undefined
  readonly bearer_methods_supported: readonly ['header']
  readonly scopes_supported: readonly string[] | undefined
  readonly dpop_signing_alg_values_supported: readonly string[] | undefined
  readonly dpop_bound_access_tokens_required: true | undefined
  readonly tls_client_certificate_bound_access_tokens: true | undefined
}
