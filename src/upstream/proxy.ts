import type { ClientRequest } from 'node:http'
import { createRequire } from 'node:module'
import util from 'node:util'
import type HttpProxy from 'http-proxy'
import type { BodyLength } from '../downstream/body.ts'
import type { UpstreamRequest } from './request.ts'

// http-proxy takes `util._extend` while it loads; calling Node's own one prints a deprecation warning.
Object.assign(util, { _extend: Object.assign })
const httpProxy = createRequire(import.meta.url)('http-proxy') as typeof HttpProxy

export interface Outgoing {
  readonly target: string
  /** A flat list of names and values. */
  readonly headers: string[]
  readonly bodyLength: BodyLength
  /** The whole body, if it was read before; else it is streamed. */
  readonly body?: Buffer | undefined
  /** Most bytes of a body of unknown length. */
  readonly maxBody: number
  readonly timeoutMs: number | undefined
  /** The gateway's rate-limit fields, as a flat list, on a limited route. */
  readonly rateLimit: readonly string[] | undefined
  /** Whose sockets to the upstream it is counted among. */
  readonly caller: string
}

const WITH_BODY: ReadonlySet<string | undefined> = new Set(['POST', 'PUT', 'PATCH'])

/** Has http-proxy make the requests to an upstream. */
export function createSend(protocol: string): (request: UpstreamRequest) => void {
  let current: UpstreamRequest
  const proxy = httpProxy.createProxyServer({
    // Only the protocol matters: the sockets know where they lead.
    target: { protocol, host: 'upstream', port: 0 },
    // `http.Agent` builds a pool's name and merges options for every request; one upstream needs neither.
    agent: {
      protocol,
      defaultPort: protocol === 'https:' ? 443 : 80,
      keepAlive: true,
      addRequest(sent: ClientRequest) {
        // Node would drop the fields beyond a count in silence; its bound of a head's size stands.
        sent.maxHeadersCount = 0
        current.onRequest(sent)
      },
    },
    // The options of the request are written into this object. http-proxy's own path has its slashes joined and `http:/`
    // rewritten, and its own fields are an object, which Node copies twice; a list it writes as it is.
    ssl: {
      get path() {
        return current.outgoing.target
      },
      set path(_: string) {},
      get headers() {
        return current.outgoing.headers
      },
      set headers(_: unknown) {},
    },
    selfHandleResponse: true,
    ignorePath: true,
    // Else it would parse the path that it ignores.
    toProxy: true,
  })
  // This pass turns a chunked DELETE or OPTIONS into two requests (CVE-2026-29057).
  const passes = proxy as unknown as { webPasses: { name: string }[] }
  passes.webPasses = passes.webPasses.filter((pass) => pass.name !== 'deleteLength')
  // The caller has left, which its response reports too.
  proxy.on('econnreset', () => {})

  return (sent) => {
    current = sent
    const { request, response } = sent
    const { bodyLength, headers, body } = sent.outgoing
    // Node would announce chunks for a body of none.
    const isUnannounced = bodyLength !== undefined && request.headers['content-length'] === undefined
    if (isUnannounced && WITH_BODY.has(request.method)) headers.push('content-length', String(bodyLength))
    const source = body !== undefined ? piping(body) : bodyLength === 0 ? WITHOUT_BODY : STREAMED
    try {
      proxy.web(request, response, source, (error) => sent.onError(error))
    } catch (error) {
      // There is something in the head that cannot be sent.
      sent.failGateway(error as Error)
    }
  }
}

/** What http-proxy pipes into the upstream request instead of the caller's. */
const piping = (body?: Buffer): HttpProxy.ServerOptions => ({
  buffer: { pipe: (destination: ClientRequest) => destination.end(body) } as never,
})
const WITHOUT_BODY = piping()
const STREAMED: HttpProxy.ServerOptions = {}
