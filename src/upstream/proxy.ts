import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import util from 'node:util'
import type HttpProxy from 'http-proxy'
import type { BodyLength } from '../downstream/head.ts'

// http-proxy takes `util._extend` while it loads; calling Node's own one prints a deprecation warning.
Object.assign(util, { _extend: Object.assign })
const httpProxy = createRequire(import.meta.url)('http-proxy') as typeof HttpProxy

/** What is sent of a request. */
export interface Sent {
  /** The canonical path and the query. */
  readonly target: string
  readonly headers: Record<string, string | string[]>
  readonly bodyLength: BodyLength
  /** The whole body, where it was read before; else it is streamed. */
  readonly body?: Buffer | undefined
}

/**
 * Makes the request to the upstream, and tells `onRequest` of it at once: it is sent over the socket that it is given then.
 * `onError` is told what goes wrong with it. Throws where there is something in its head that cannot be sent.
 */
export type Send = (
  request: IncomingMessage,
  response: ServerResponse,
  sent: Sent,
  onRequest: (request: ClientRequest) => void,
  onError: (error: Error) => void,
) => void

/** Has http-proxy make requests, and nothing more: neither its sockets nor its paths nor its answers are of use. */
export function createSend(protocol: string): Send {
  let tell: (request: ClientRequest) => void = ignore
  const proxy = httpProxy.createProxyServer({
    // Only the protocol is of use: the sockets know where they lead.
    target: { protocol, host: 'upstream', port: 0 },
    // `http.Agent` works out a pool's name and merges options for every request; with one upstream there is nothing to work out.
    agent: {
      protocol,
      defaultPort: protocol === 'https:' ? 443 : 80,
      keepAlive: true,
      addRequest: (request: ClientRequest) => tell(request),
    },
    selfHandleResponse: true,
    // It joins slashes and rewrites `http:/` within a path: the one that was decided on is set below.
    ignorePath: true,
    // Else it would parse the path that it ignores.
    toProxy: true,
  })
  // This pass turns a chunked DELETE or OPTIONS into two requests (CVE-2026-29057).
  const passes = proxy as unknown as { webPasses: { name: string }[] }
  passes.webPasses = passes.webPasses.filter((pass) => pass.name !== 'deleteLength')
  // The caller has left; its answer says so as well.
  proxy.on('econnreset', ignore)

  return (request, response, sent, onRequest, onError) => {
    tell = (made) => {
      made.path = sent.target
      // Node would drop the fields beyond a count in silence; its bound of a head's size stands.
      made.maxHeadersCount = 0
      onRequest(made)
    }
    request.headers = sent.headers
    proxy.web(request, response, sourceOf(sent), onError)
  }
}

/** What http-proxy pipes into the upstream request in place of the caller's. */
const piping = (body?: Buffer): HttpProxy.ServerOptions => ({
  buffer: { pipe: (destination: ClientRequest) => destination.end(body) } as never,
})
const WITHOUT_BODY = piping()

function sourceOf({ bodyLength, body }: Sent): HttpProxy.ServerOptions {
  if (body !== undefined) return piping(body)
  return bodyLength === 0 ? WITHOUT_BODY : {}
}

function ignore(): void {}
