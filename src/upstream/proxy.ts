import type { ClientRequest, ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import util from 'node:util'
import type HttpProxy from 'http-proxy'
import type { BodyLength } from '../downstream/body.ts'
import { appendFields } from '../runtime/rendered-head.ts'
import type { UpstreamRequest } from './request.ts'

// http-proxy takes `util._extend` while it loads; calling Node's own one prints a deprecation warning.
Object.assign(util, { _extend: Object.assign })
const httpProxy = createRequire(import.meta.url)('http-proxy') as typeof HttpProxy

export interface Outgoing {
  readonly target: string
  /** Its fields, without Content-Length, as text for `addFields`. */
  readonly headers: string
  readonly bodyLength: BodyLength
  /** The whole body, if it was read before; else it is streamed. */
  readonly body?: Buffer | undefined
  /** Most bytes of a body of unknown length. */
  readonly maxBody: number
  readonly timeoutMs: number | undefined
  /** The gateway's rate-limit fields, on a limited route. */
  readonly rateLimit: string | undefined
  /** The `X-Request-Id` of an answer that has none. */
  readonly requestId: string
  /** Whose sockets to the upstream it is counted among. */
  readonly caller: string
}

const WITH_BODY: ReadonlySet<string | undefined> = new Set(['POST', 'PUT', 'PATCH'])

const NO_FIELDS = {}
const OPEN = { destroyed: false }

/** What http-proxy sees of the caller's request: no fields, which it would copy, and no events, which are handled elsewhere. */
class RequestFacade {
  readonly headers = NO_FIELDS
  readonly url = '/'
  readonly socket = OPEN
  readonly method: string | undefined
  readonly upstreamRequest: UpstreamRequest

  constructor(upstreamRequest: UpstreamRequest) {
    this.upstreamRequest = upstreamRequest
    this.method = upstreamRequest.request.method
  }

  on(): void {}

  pipe(sent: ClientRequest): void {
    const { request, streamed, body } = this.upstreamRequest
    if (streamed) request.pipe(sent)
    else sent.end(body)
  }
}

/** What it sees of the response: nothing to do. */
const RESPONSE_FACADE = { finished: true } as ServerResponse

/** Options that http-proxy sets to no effect, as the sockets know where they go; not enumerable, so that Node does not copy them. */
const UNUSED = Object.fromEntries(
  'port host hostname socketPath localAddress pfx key passphrase cert ca ciphers secureProtocol rejectUnauthorized'
    .split(' ')
    .map((name) => [name, { value: undefined, writable: true }]),
)

const onError = (error: Error, { upstreamRequest }: RequestFacade): void => upstreamRequest.onError(error)

/**
 * Returns the fields that announce a body. This is not left to Node, which sends bodies without any for some methods, and announces
 * chunks for a body of none for others.
 */
function framingOf({ request, outgoing: { bodyLength } }: UpstreamRequest): string[] {
  if (bodyLength === undefined) return ['transfer-encoding', 'chunked']
  const isAnnounced = request.headers['content-length'] !== undefined || WITH_BODY.has(request.method)
  return isAnnounced ? ['content-length', String(bodyLength)] : []
}

/** Has http-proxy make the requests to an upstream. */
export function createSend(protocol: string): (request: UpstreamRequest) => void {
  let current: UpstreamRequest
  let framing: string[]
  // http-proxy writes each request's options into this object, which Node copies twice. `path` is a getter, since http-proxy
  // joins slashes and rewrites `http:/`; `headers` is one, since Node copies an object again, and writes a list as it is.
  const options = Object.defineProperties(
    {},
    {
      ...UNUSED,
      path: { get: () => current.outgoing.target, set() {}, enumerable: true },
      headers: { get: () => framing, set() {}, enumerable: true },
      // Overrides `--insecure-http-parser`.
      insecureHTTPParser: { value: false, enumerable: true },
    },
  )
  const proxy = httpProxy.createProxyServer({
    // Only the protocol matters.
    target: { protocol, host: 'upstream', port: 0 },
    // `http.Agent` builds a pool's name and merges options for every request; one upstream needs neither.
    agent: {
      protocol,
      defaultPort: protocol === 'https:' ? 443 : 80,
      keepAlive: true,
      addRequest(sent: ClientRequest) {
        // Node would drop the fields beyond a count in silence; its bound of a head's size stands.
        sent.maxHeadersCount = 0
        appendFields(sent, current.outgoing.headers)
        current.onRequest(sent)
      },
    },
    ssl: options,
    selfHandleResponse: true,
    ignorePath: true,
    // Else it would parse the path that it ignores.
    toProxy: true,
  })
  // This pass turns a chunked DELETE or OPTIONS into two requests (CVE-2026-29057).
  const passes = proxy as unknown as { webPasses: { name: string }[] }
  passes.webPasses = passes.webPasses.filter((pass) => pass.name !== 'deleteLength')

  return (sent) => {
    current = sent
    framing = framingOf(sent)
    try {
      // Without options of its own, so that http-proxy copies none.
      proxy.web(new RequestFacade(sent) as never, RESPONSE_FACADE, onError as never)
    } catch (error) {
      // There is something in the head that cannot be sent.
      sent.failGateway(error as Error)
    }
  }
}
