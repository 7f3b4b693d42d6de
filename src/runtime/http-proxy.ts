import { createRequire } from 'node:module'
import type { RequestOptions } from 'node:http'
import util from 'node:util'
import type HttpProxy from 'http-proxy'

// http-proxy takes `util._extend` while it loads; calling Node's own prints a deprecation warning on Node 22 and newer.
Object.assign(util, { _extend: Object.assign })
const require = createRequire(import.meta.url)
const common = require('http-proxy/lib/http-proxy/common.js') as { setupOutgoing: unknown }
export const { createProxyServer } = require('http-proxy') as typeof HttpProxy

/** What `createProxyServer` was given, as far as it is used here; `maxHeaderSize` bounds heads of responses. */
type ServerOptions = Pick<RequestOptions, 'agent'> & { readonly maxHeaderSize?: number }

/** A request as http-proxy forwards it: its `headers` frame the body, and `owner` is for the agent. */
type Proxied = Readonly<Record<'method' | 'headers' | 'owner', unknown>>

/**
 * Returns the options for Node's `request`, in place of http-proxy's function, which copies the
 * fields into an object, rewrites the path and sets 14 options of a target that the agent does not
 * need. With the head as text: -3 % processor time (`npm run bench:gate`; 15 rounds, whose bounds
 * are -20 and +5 %). `headers` are a list, which Node.js renders at once. http-proxy's step
 * `deleteLength`, which turns a chunked DELETE or OPTIONS into two requests (CVE-2026-29057), finds
 * no fields in it.
 */
function requestOptions(_: unknown, { agent, maxHeaderSize }: ServerOptions, request: Proxied) {
  const { method, headers, owner } = request
  // The first overrides `--insecure-http-parser`.
  return { insecureHTTPParser: false, setHost: false, agent, maxHeaderSize, method, headers, owner }
}
common.setupOutgoing = requestOptions
