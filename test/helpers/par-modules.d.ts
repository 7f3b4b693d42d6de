/** The major version of the provider that behaves like the documented service. */
declare module 'oidc-provider6' {
  import type Provider from 'oidc-provider'
  export default class {
    constructor(issuer: string, configuration: object)
    readonly callback: ReturnType<Provider['callback']>
  }
}
