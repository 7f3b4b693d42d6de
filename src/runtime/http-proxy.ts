import { createRequire } from 'node:module'
import type { RequestOptions } from 'node:http'
import util from 'node:util'
import type HttpProxy from 'http-proxy'

// http-proxy takes `util._extend` while it loads; calling Node's own prints a deprecation warning on Node 22 and newer.
Object.assign(util, { _extend: Object.assign })
const require = createRequire(import.meta.url)
const httpProxy = require('http-proxy') as typeof HttpProxy
const common = require('http-proxy/lib/http-proxy/common.js') as { setupOutgoing: unknown }

/**
 * Returns the options for Node's `request`, in place of http-proxy's function, which copies the
 * fields into an object, rewrites the path and sets 14 options of a target that the agent does not
 * need. With the head as text: -3 % processor time (`npm run bench:gate`; 15 rounds, whose bounds
 * are -20 and +5 %).
 */
function requestOptions(_: unknown, { agent }: RequestOptions, { method, headers }: RequestOptions) {
  // The first overrides `--insecure-http-parser`. `headers` frame the body, as a list, which Node.js renders at once.
  return { insecureHTTPParser: false, setHost: false, agent, method, headers }
}
common.setupOutgoing = requestOptions

/**
 * Creates a proxy server of http-proxy without its pass `deleteLength`, which turns a chunked
 * DELETE or OPTIONS into two requests (CVE-2026-29057). Its target is only where the agent
 * connects. Throws if a version of http-proxy has no such pass: its passes must be read again then.
 */
export function createProxyServer(options: HttpProxy.ServerOptions): HttpProxy {
  const proxy = httpProxy.createProxyServer(options)
  const server = proxy as unknown as { webPasses: { name: string }[] }
  const passes = server.webPasses.filter((pass) => pass.name !== 'deleteLength')
  if (passes.length !== server.webPasses.length - 1)
    throw new Error('http-proxy has other passes than 1.18.1')
  server.webPasses = passes
  return proxy
}
