import type { ClientRequest, IncomingMessage } from 'node:http'
import { createRequire } from 'node:module'
import util from 'node:util'

/** A request as http-proxy forwards it, with only the parts that it uses. */
export interface Proxied<Owner> {
  readonly method: string | undefined
  /** The fields that frame the body, as a list, which Node.js renders at once. */
  readonly headers: readonly string[]
  /** Handed on to the agent. */
  readonly owner: Owner
  /** http-proxy drops an ECONNRESET if it is destroyed. */
  readonly socket: { readonly destroyed: boolean }
  /** http-proxy listens for errors and the end of the request. */
  on(): void
  pipe(clientRequest: ClientRequest): void
}

/** The options of http-proxy that are used here. */
interface ProxyOptions<Owner> {
  /** http-proxy reads only the protocol: the agent has the address. */
  readonly target: { readonly protocol: string; readonly host: string; readonly port: number }
  /** The part of `http.Agent` that Node's `request` calls. */
  readonly agent: {
    readonly protocol: string
    readonly keepAlive: boolean
    addRequest(clientRequest: ClientRequest, options: { readonly owner: Owner }): void
  }
  /** True if http-proxy does not write the response. */
  readonly selfHandleResponse: true
  /** Maximum bytes of the head of a response. */
  readonly maxHeaderSize: number
}

/** The functions of a proxy that are used here; the types of http-proxy demand whole messages of Node.js. */
interface Proxy<Owner> {
  web(request: Proxied<Owner>, response: { readonly finished: boolean }): void
  on(event: 'proxyRes', listener: (incoming: IncomingMessage, request: Proxied<Owner>) => void): void
  on(event: 'error', listener: (error: Error, request: Proxied<Owner>) => void): void
}

interface HttpProxy {
  createProxyServer<Owner>(options: ProxyOptions<Owner>): Proxy<Owner>
}

// http-proxy takes `util._extend` while it loads; calling Node's own prints a deprecation warning on Node 22 and newer.
Object.assign(util, { _extend: Object.assign })
const require = createRequire(import.meta.url)
const common = require('http-proxy/lib/http-proxy/common.js') as { setupOutgoing: unknown }
export const { createProxyServer } = require('http-proxy') as HttpProxy

/**
 * Returns the options for Node's `request`, in place of http-proxy's function, which copies the
 * fields into an object, rewrites the path and sets 14 options of a target that the agent does not
 * need. With the head as text: -3 % processor time (`npm run bench:gate`; 15 rounds, whose bounds
 * are -20 and +5 %). http-proxy's step `deleteLength`, which turns a chunked DELETE or OPTIONS into
 * two requests (CVE-2026-29057), finds no fields in `headers`.
 */
function requestOptions<Owner>(
  _: unknown,
  { agent, maxHeaderSize }: ProxyOptions<Owner>,
  request: Proxied<Owner>,
) {
  const { method, headers, owner } = request
  // The first overrides `--insecure-http-parser`.
  return { insecureHTTPParser: false, setHost: false, agent, maxHeaderSize, method, headers, owner }
}
common.setupOutgoing = requestOptions
