import { memoize } from '../runtime/memoize.ts'

/** Returns the set of the names in a text. */
export const nameSet = (list: string): ReadonlySet<string> => new Set(list.trim().split(/\s+/))

/** Hop-by-hop fields (RFC 9110 section 7.6.1), and `Expect` and `Trailer`, which the gateway handles itself. */
export const HOP_BY_HOP = nameSet(`
  connection expect http2-settings keep-alive proxy-authenticate proxy-authentication-info
  proxy-authorization proxy-connection te trailer transfer-encoding upgrade
`)

/** Fields that the gateway has checked: `Connection` cannot remove them, and other spellings of them are dropped. */
const CHECKED = nameSet(`
  authorization content-encoding content-length content-type cookie dpop host traceparent tracestate
`)

/** Fields that the gateway sets itself; `X-Sluice-Client` for the backends of a proxy that asks. */
const OWN = nameSet('content-length x-forwarded-for x-real-ip x-sluice-client')

/**
 * Fields that rewrite the method, the target (WSGI: `Script-Name`), or where a CGI program sends
 * (`Proxy`).
 */
const REWRITING = nameSet(`
  path-info proxy request-uri script-name x-envoy-original-path x-http-method
  x-http-method-override x-http-path-override x-method-override x-original-method x-original-path
  x-original-uri x-original-url x-override-url x-path-info x-replaced-path x-request-uri
  x-rewrite-url x-script-name
`)

/** Fields that name the client, as gateways set them. */
const CLIENT_FIELDS = nameSet('x-client-id x-clientid')

/**
 * Fields that only a proxy may set, a paragraph each: the address, host and scheme (RFC 7239), the
 * certificate of a TLS client (RFC 9440; WebSphere's `$WSCC` is normalised to `-wscc`), the identity,
 * the files that a response may name (Rack::Sendfile).
 */
const PROXY_FIELDS = nameSet(String.raw`
  \bforward(?:ed)?\b
  \b(?:client|connecting|originating|peer|proxyuser|real|remote|socket|source|user)-?(?:ip(?:v[46])?|addr(?:ess)?|port)$
  ^x-ip$ ^(?:x-)?real-host$ ^x-(?:http-|backend-)?host(?:-override)?$ ^x-original-(?:for|host|proto)$
  ^x-(?:url-)?scheme$ ^front-end-https$ ^x-envoy-

  client-?cert \b(?:client|peer|user)?cert(?:s|ificates?)?\b \bx-?509\b \bm?(?:ssl|tls)\b \bdn\b
  \bclient-(?:chain|cn|fingerprint|issuer|san|serial|subject|thumbprint|verif(?:y|ied))\b
  ^(?:wl-)?proxy- ^-ws[a-z]{2}$

  ^(?:x-)?remote- ^(?:impersonate|oidc)- ^x-(?:userinfo|jwt-assertion)$
  ^x-(?:auth-request|authenticated|authentik|consumer|credential|goog-authenticated)\b
  ^x-(?:ms-client-principal|amzn-oidc|webauth)\b

  ^x-(?:sendfile-type|accel-mapping)$
`)
const FROM_PROXY = new RegExp([...PROXY_FIELDS].join('|'))

/** Certificate fields that API clients send themselves, such as `TPP-Signature-Certificate` (Berlin Group). */
const OF_CLIENTS = /^tpp-(?:signature-|signing-)?certificate$/

/**
 * The action for a request field: `checked` is forwarded although `Connection` names it,
 * `from-proxy` only if a trusted proxy sent it. `replace` drops a field whose sender does not miss
 * it: it ends at each hop, or the gateway sets it.
 */
export type Action = 'keep' | 'checked' | 'from-proxy' | 'replace' | 'drop'

/** The fields that have a meaning in the configuration, in lower case. */
export interface FieldRules {
  /** The field of the request id, which the gateway sets. */
  readonly requestId: string
  /** The field of API keys, in lower case, and whether the upstream gets it; undefined without keys. */
  readonly key?: { readonly field: string; readonly forward: boolean } | undefined
  /** The fields that limits count by, or that their conditions read. */
  readonly counted: readonly string[]
  /** The fields in which a trusted proxy identifies the caller to the upstream. */
  readonly identity: readonly string[]
  /** Fields of callers that would be dropped otherwise. */
  readonly callers: readonly string[]
  /** The Host that the upstream gets; undefined for the caller's. */
  readonly host?: string | undefined
  /** The Host that the upstream gets if the request has none (HTTP/1.0). */
  readonly ownHost?: string | undefined
  /** Called with the lower-case name of a caller's field that the upstream does not get. */
  onDrop?(name: string): void
}

/** Decides about the fields of a request, for the limits that read them and for the upstream. */
export interface RequestFields {
  /** Returns the action for a lower-case field. */
  actionOf(name: string): Action
  /** The Host that the upstream gets; undefined for the caller's. */
  readonly host: string | undefined
  /** The Host that the upstream gets if the request has none (HTTP/1.0). */
  readonly ownHost: string | undefined
  /** Reports that a caller's field was dropped. */
  onDrop(name: string): void
  /**
   * Returns the values of a field that limits read, one for each line; undefined if the upstream
   * gets none: if there is none, or only a trusted proxy may send it. `rawHeaders` is a flat list,
   * as Node has it; `name` is in lower case.
   */
  read(rawHeaders: readonly string[], name: string, trusted: boolean): readonly string[] | undefined
  /**
   * Returns the first field of a flat list that is another spelling of a field with a meaning, or
   * of `X-Sluice-Client`: `X_Api_Key` if limits count by `x-api-key`.
   */
  findRespelled(rawHeaders: readonly string[]): string | undefined
}

/**
 * Decides about the fields of a request to one upstream: what limits read is what the upstream
 * gets, from the same sender. A field with a meaning has one spelling: backends may take
 * `X_API_KEY` and `X.API.KEY` for `X-Api-Key`, so all others are dropped.
 */
export function createRequestFields(rules: FieldRules): RequestFields {
  const { requestId, key, counted, identity, callers, host, ownHost, onDrop = () => {} } = rules
  const meaningful = [...counted, ...identity, ...callers, ...(key === undefined ? [] : [key.field])]
  const spellings = new Map(meaningful.map((name) => [normalizeFieldName(name), name]))
  const known = new Map([...spellings, ['x-sluice-client', 'x-sluice-client']])
  const fromProxy = new Set(identity)
  const idSpelling = normalizeFieldName(requestId)

  /** A reader without a cache takes 2.2 us more a request; `npm run bench:micro -- request-fields`. */
  const actionOf = memoize(decide, 1000, 64)

  function decide(name: string): Action {
    const normalized = normalizeFieldName(name)
    const spelling = spellings.get(normalized)
    if (normalized === idSpelling) return 'replace'
    if (spelling !== undefined && spelling !== name) return 'drop'
    if (name === key?.field) return key.forward ? 'checked' : 'replace'
    if (fromProxy.has(name)) return 'from-proxy'
    return spelling === undefined ? decideAction(name) : 'checked'
  }

  return {
    actionOf,
    host,
    ownHost,
    onDrop,
    read(rawHeaders, name, trusted) {
      if (actionOf(name) === 'from-proxy' && !trusted) return undefined
      const values = rawHeaders.filter((_, i) => i % 2 === 1 && isField(rawHeaders[i - 1]!, name))
      return values.length === 0 ? undefined : values
    },
    findRespelled: (rawHeaders) =>
      rawHeaders.find((field, i) => {
        if (i % 2 === 1) return false
        const name = field.toLowerCase()
        return (known.get(normalizeFieldName(name)) ?? name) !== name
      }),
  }
}

const isField = (field: string, name: string): boolean =>
  field.length === name.length && field.toLowerCase() === name

/**
 * Normalises a lower-case field name: each character but letters and digits becomes `-`, as in CGI
 * (RFC 3875 section 4.1.18).
 */
export const normalizeFieldName = (name: string): string => name.replaceAll(/[^a-z0-9]/g, '-')

/**
 * Framing and routing fields by their letters: servers may accept `Transfer--Encoding` or
 * `ContentLength` as the field.
 */
const FRAMING: ReadonlyMap<string, string> = new Map(
  ['transfer-encoding', 'content-length', 'host'].map((name) => [name.replaceAll('-', ''), name]),
)

/**
 * Decides the action for a field. Other spellings of framing, checked and proxy fields are dropped,
 * but those of Apache and WebSphere.
 */
export function decideAction(name: string): Action {
  const normalized = normalizeFieldName(name)
  const framing = FRAMING.get(name.replaceAll(/[^a-z]/g, ''))
  if (framing !== undefined && framing !== name) return 'drop'
  if (HOP_BY_HOP.has(normalized) || OWN.has(normalized)) return 'replace'
  if (REWRITING.has(normalized) || CLIENT_FIELDS.has(normalized)) return 'drop'
  if (CHECKED.has(normalized)) return normalized === name ? 'checked' : 'drop'
  if (OF_CLIENTS.test(normalized) || !FROM_PROXY.test(normalized)) return 'keep'
  // A proxy that sets one spelling may forward the caller's other one. Apache sets
  // `SSL_CLIENT_CERT` and `OIDC_CLAIM_sub`, WebSphere `$WSCC`.
  return normalized === name || /^(?:ssl_|oidc_|\$ws)/.test(name) ? 'from-proxy' : 'drop'
}

/** Fields that the gateway reads from trusted proxies, or sets. */
const OF_CONNECTION = /^(?:x-forwarded-|forwarded$|client-cert$)/

/**
 * True for a lower-case field that is dropped from callers unless `callerHeaders` lists it: one that
 * neither decides about the request, nor is set by the gateway.
 */
export function isCallerField(name: string): boolean {
  if (normalizeFieldName(name) !== name || REWRITING.has(name) || OF_CONNECTION.test(name)) return false
  const action = decideAction(name)
  return action === 'drop' || action === 'from-proxy'
}

/**
 * Returns the fields that `Connection` removes (RFC 9110 section 7.6.1); undefined for the usual
 * options, `keep-alive` and `close`.
 */
export function namedByConnection(connection: string): ReadonlySet<string> | undefined {
  const lower = connection.toLowerCase()
  if (lower === '' || lower === 'keep-alive' || lower === 'close') return undefined
  const options = lower.split(',').map((option) => option.trim())
  return new Set(options.filter((option) => !CHECKED.has(option)))
}
