import { createRequire } from 'node:module'
import util from 'node:util'
import type HttpProxy from 'http-proxy'

// http-proxy takes `util._extend` while it loads; calling Node's own prints a deprecation warning on Node 22 and newer.
Object.assign(util, { _extend: Object.assign })
const httpProxy = createRequire(import.meta.url)('http-proxy') as typeof HttpProxy

/**
 * Creates a proxy server of http-proxy without its pass `deleteLength`, which turns a chunked DELETE or OPTIONS into two requests
 * (CVE-2026-29057). Throws if a version of http-proxy has no such pass: its passes must be read again then.
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
