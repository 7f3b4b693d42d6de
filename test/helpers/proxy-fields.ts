/** Request fields that only a proxy may set: addresses, hosts, schemes, client certificates, identities. */
export const FROM_PROXY = `
  forwarded forwarded-for x-forwarded x-forwarded-by x-forwarded-server x-forwarded-scheme x-forwarded-ssl
  x-forwarded-prefix x-forwarded-uri x-forwarded-user x-forwarded-client-cert x-forwarded-tls-client-cert
  x-host x-original-host x-original-for x-original-forwarded-for x-client-ip client-ip x-cluster-client-ip
  true-client-ip fastly-client-ip cf-connecting-ip cf-connecting-ipv6 x-azure-clientip
  x-envoy-external-address x-remote-ip x-remote-addr x-originating-ip client-cert client-cert-chain
  x-client-cert x-client-certificate x-client-verify x-client-dn x-ssl-cert x-ssl-client-cert
  x-ssl-client-verify x-ssl-client-s-dn ssl-client-cert x-tls-client-cert tls-client-certificate
  x-mtls-client x-arr-clientcert x-amzn-mtls-clientcert-leaf cf-client-cert-sha256 x-clientcert
  x-sslclientcert wl-proxy-client-cert wl-proxy-client-ip proxy-client-ip proxy-auth-cert proxy-ssl-id
  x-wso2-client-certificate $wscc $wsra x-certificate x-cert-subject x-peer-certificates x-x509-client
  x-client-s-dn x-client-subject x-client-fingerprint x-subject-dn x-amzn-tls-version x-arr-ssl
  fly-client-ip x-sucuri-clientip do-connecting-ip x-appengine-user-ip x-vercel-forwarded-for x-forward-for
  x-scheme x-url-scheme front-end-https x-http-host-override x-envoy-internal remote-user x-remote-user
  x-auth-request-email x-authenticated-userid x-ms-client-principal x-ms-client-principal-id
  x-goog-authenticated-user-email x-amzn-oidc-identity x-consumer-username x-sendfile-type x-accel-mapping
  impersonate-user impersonate-group impersonate-uid impersonate-extra-scopes x-webauth-user x-webauth-role
  remote-groups remote-name remote-email x-remote-groups x-authentik-username x-authentik-jwt oidc-claim-sub
  oidc-access-token x-credential-username x-credential-identifier x-userinfo x-jwt-assertion x-proxyuser-ip
  x-ip x-backend-host
`
  .trim()
  .split(/\s+/)
