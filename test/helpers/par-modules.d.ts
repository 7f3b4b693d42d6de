/** The generation of the provider that behaves as the documented service does. */
declare module 'oidc-provider6' {
  import type Provider from 'oidc-provider'
  export default class {
    constructor(issuer: string, configuration: object)
    readonly callback: ReturnType<Provider['callback']>
  }
}
