import { createServer, type IncomingMessage, request as httpRequest, type Server } from 'node:http'
import { createResponseFields } from '../../src/upstream/response-head.ts'
import { closeLater } from './closing.ts'
import type { AddressEvents } from '../../src/upstream/addresses.ts'
import type { UpstreamRequest } from '../../src/upstream/request.ts'
import { createForward, type Forward, type Upstream } from '../../src/upstream/upstream.ts'
import type { Outgoing } from '../../src/upstream/request-headers.ts'
import { textOf } from './fields.ts'
import { listenLocally } from './local-server.ts'
import { bodyLength } from '../../src/downstream/framing.ts'

/** Fields that the gateway, not the upstream, sets for the connection and the body. */
const FRAMING = new Set(['connection', 'content-length', 'transfer-encoding'])

export interface Front {
  readonly port: number
  readonly outcomes: UpstreamRequest[]
  readonly server: Server
  /** Number of received requests. */
  requests(): number
  /** Closes the connections to the upstream, as a reload that replaces the upstream does. */
  closeUpstream(): void
}

/** Starts a server that only runs `forward`, in front of an upstream. */
export async function startFront(
  url: string,
  upstream: Partial<Upstream> = {},
  outgoing: Partial<Outgoing> = {},
  eventsOf: AddressEvents = () => ({ onDown() {}, onUp() {} }),
): Promise<Front> {
  const forward: Forward = createForward(
    {
      name: 'data',
      origins: [url],
      timeoutMs: 5000,
      connectTimeoutMs: 2000,
      tls: undefined,
      maxConnections: 256,
      path: '',
      maxHeaderSize: 65_536,
      ...upstream,
    },
    eventsOf,
  )
  const outcomes: UpstreamRequest[] = []
  let requests = 0
  const server: Server = createServer((request, response) => {
    requests++
    const length = bodyLength(request)
    const complete: Outgoing = {
      target: request.url!,
      headers: textOf(
        Object.fromEntries(Object.entries(request.headers).filter(([name]) => !FRAMING.has(name))),
      ),
      bodyLength: typeof length === 'object' ? 0 : length,
      maxBody: 1e6,
      timeoutMs: undefined,
      rateLimit: undefined,
      requestId: 'an-id',
      responseFields: createResponseFields('X-Request-Id'),
      caller: String(request.headers['x-caller']),
      isHandshake: false,
      reader: undefined,
      ...outgoing,
    }
    forward(response, complete, (forwarded) => {
      outcomes.push(forwarded)
      if (forwarded.outcome === 'failed')
        response.writeHead(forwarded.error!.status).end(forwarded.error!.message)
    })
  })
  const { port } = await listenLocally(server)
  closeLater(forward.close)
  return { port, outcomes, server, requests: () => requests, closeUpstream: forward.close }
}

export interface Got {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  readonly rawHeaders: readonly string[]
  readonly body: string
  /** True if the response is complete. */
  readonly whole: boolean
}

/** Sends a request. Resolves with the response, complete or truncated. */
export function get(
  port: number,
  path = '/',
  options: Record<string, unknown> = {},
  body?: string,
): Promise<Got> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ port, path, agent: false, ...options }, (response) => {
      let text = ''
      response.on('data', (chunk: Buffer) => (text += chunk.toString()))
      response.on('error', () => {})
      response.on('close', () =>
        resolve({
          status: response.statusCode!,
          headers: response.headers,
          rawHeaders: response.rawHeaders,
          body: text,
          whole: response.complete,
        }),
      )
    })
    request.on('error', reject)
    request.end(body)
  })
}
