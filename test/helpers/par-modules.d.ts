/** The generation of the provider that behaves as the documented service does; its types are near enough. */
declare module 'oidc-provider7' {
  import Provider from 'oidc-provider'
  export default Provider
}
