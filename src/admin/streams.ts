import type { ServerResponse } from 'node:http'
import { type AdminResponse, problem } from './access.ts'

const EVERY_MS = 1000
const MAX_STREAMS = 20
/** Events that a reader may miss in a row before its stream is closed. */
const MAX_MISSED = 30

/** Creates the streams of server-sent events (WHATWG HTML section 9.2): each gets the result of `read` once a second. */
export function createStreams(read: () => Promise<object>) {
  /** Events that each stream has missed in a row. */
  const streams = new Map<ServerResponse, number>()
  let timer: NodeJS.Timeout | undefined
  let reading: Promise<string | undefined> | undefined
  let ended = false

  /** Returns the next event, shared by all streams that wait for it; undefined if `read` fails. */
  function next(): Promise<string | undefined> {
    reading ??= read()
      .then(
        (value) => `data: ${JSON.stringify(value)}\n\n`,
        () => undefined,
      )
      .finally(() => (reading = undefined))
    return reading
  }

  async function sendAll(): Promise<void> {
    // A read that takes longer than a second is sent once.
    if (reading !== undefined) return
    const event = await next()
    for (const response of streams.keys()) send(response, event)
  }

  function send(response: ServerResponse, event: string | undefined): void {
    const missed = streams.get(response)
    if (event === undefined || missed === undefined) return
    const isFull = response.writableNeedDrain
    streams.set(response, isFull ? missed + 1 : 0)
    if (!isFull) response.write(event)
    else if (missed === MAX_MISSED) response.destroy()
  }

  return {
    /** Answers with a stream; returns a refusal if there are too many. */
    open(response: ServerResponse): AdminResponse | undefined {
      if (ended || streams.size >= MAX_STREAMS) {
        const why = ended ? 'The gateway is shutting down.' : `${MAX_STREAMS} consoles are open already.`
        return problem(503, why, { 'Retry-After': '5' })
      }
      response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' })
      response.flushHeaders()
      if (streams.size === 0) timer = setInterval(() => void sendAll(), EVERY_MS)
      streams.set(response, 0)
      response.once('close', () => {
        streams.delete(response)
        if (streams.size === 0) clearInterval(timer)
      })
      void next().then((event) => send(response, event))
      return undefined
    },
    /** Ends all streams, and opens no more. */
    end(): void {
      ended = true
      for (const response of streams.keys()) response.end()
    },
  }
}
