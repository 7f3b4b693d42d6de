import { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { setImmediate as nextIteration } from 'node:timers/promises'
import { describe, expect, it, vi } from 'vitest'
import { abortBody } from '../../src/downstream/body.ts'
import { Refusal } from '../../src/errors.ts'
import { createResponseFields } from '../../src/upstream/response-head.ts'
import { type Backend, UpstreamRequest } from '../../src/upstream/request.ts'
import { streamResponse } from '../../src/upstream/response.ts'
import { until } from '../helpers/wait.ts'

const OUTGOING = {
  requestId: 'one',
  rateLimit: undefined,
  responseFields: createResponseFields('X-Request-Id'),
}

it('a caller that reads again counts as progress: the upstream has its whole timeout for the next bytes', async () => {
  const unread: (() => void)[] = []
  /** A caller's socket, which takes bytes when they are read. */
  const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => void unread.push(done) })
  const request = new IncomingMessage(socket as Socket)
  request.complete = true
  const response = new ServerResponse(request)
  response.assignSocket(socket as Socket)
  // As Node's server does.
  socket.on('drain', () => response.emit('drain'))
  const incoming = new IncomingMessage(new Socket())
  Object.assign(incoming, { statusCode: 200, httpVersionMajor: 1 })
  const onProgress = vi.fn()
  const upstreamRequest = {
    ...{ request, response, outgoing: OUTGOING, onHead() {}, onError() {} },
    set silentSince(_at: number) {
      onProgress()
    },
  }
  streamResponse(incoming, upstreamRequest as unknown as UpstreamRequest)
  incoming.push(Buffer.alloc(100_000))
  await until('the caller is waited for', () => incoming.isPaused())
  expect(onProgress).toHaveBeenCalledTimes(1)
  await until('it has read all', () => {
    for (const read of unread.splice(0)) read()
    return !incoming.isPaused()
  })
  expect(onProgress).toHaveBeenCalledTimes(2)
})

describe('a body that breaks off', () => {
  const backend = Object.fromEntries(
    ['send', 'acquire', 'uploaded', 'leave', 'release'].map((name) => [name, () => {}]),
  )

  it.each([
    ['fails a request whose response is not complete', false, 'failed'],
    ['does not cut a response that has come whole', true, undefined],
  ])('%s', async (_, complete, outcome) => {
    const request = new IncomingMessage(new Socket())
    const upstreamRequest = new UpstreamRequest(
      {
        ...backend,
        name: 'data',
        timeoutMs: 1000,
        timeouts: { add() {}, delete() {} },
      } as unknown as Backend,
      new ServerResponse(request),
      { ...OUTGOING, ...{ target: '/', headers: {}, bodyLength: undefined, maxBody: 1e6 } } as never,
      () => {},
    )
    await nextIteration()
    upstreamRequest.address = { health: { succeeded() {} } } as never
    const incoming = new IncomingMessage(new Socket())
    incoming.complete = complete
    upstreamRequest.onHead(incoming, undefined)
    abortBody(request, new Refusal('BadRequest', 'It broke off.'))
    expect(upstreamRequest.outcome).toBe(outcome)
  })
})
