import type { ServerResponse } from 'node:http'
import { type AdminResponse, problem } from './access.ts'

const EVERY_MS = 1000
const MAX_STREAMS = 20
/** Events that a reader may miss in a row; one that reads none for so long is gone. */
const MAX_MISSED = 30

/** Creates the streams of server-sent events (WHATWG HTML section 9.2): each gets what `read` returns once a second. */
export function createStreams(read: () => Promise<object>) {
  /** How many events each has missed in a row. */
  const streams = new Map<ServerResponse, number>()
  let timer: NodeJS.Timeout | undefined
  let reading: Promise<string | undefined> | undefined
  let ended = false

  /** One answer serves all who ask while it is made; undefined if there is none. */
  function next(): Promise<string | undefined> {
    reading ??= read()
      .then(
        (value) => `data: ${JSON.stringify(value)}\n\n`,
        () => undefined,
      )
      .finally(() => (reading = undefined))
    return reading
  }

  function send(response: ServerResponse, event: string): void {
    if (!response.writableNeedDrain) {
      response.write(event)
      streams.set(response, 0)
      return
    }
    const missed = streams.get(response)! + 1
    streams.set(response, missed)
    if (missed > MAX_MISSED) response.destroy()
  }

  async function tick(): Promise<void> {
    // One that takes longer than a second is sent once.
    if (reading !== undefined) return
    const event = await next()
    if (event !== undefined) for (const response of streams.keys()) send(response, event)
  }

  function close(response: ServerResponse): void {
    streams.delete(response)
    if (streams.size === 0) clearInterval(timer)
  }

  return {
    /** Answers with a stream; returns a refusal if there are too many. */
    open(response: ServerResponse): AdminResponse | undefined {
      if (ended || streams.size >= MAX_STREAMS) {
        const why = ended ? 'The gateway ends.' : `${MAX_STREAMS} consoles are open, and no more can be.`
        return problem(503, why, { 'Retry-After': '5' })
      }
      response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' })
      response.flushHeaders()
      if (streams.size === 0) timer = setInterval(() => void tick(), EVERY_MS)
      streams.set(response, 0)
      response.once('close', () => close(response))
      void next().then((event) => {
        if (event !== undefined && streams.has(response)) send(response, event)
      })
      return undefined
    },
    /** Ends all streams for good. */
    end(): void {
      ended = true
      for (const response of streams.keys()) response.end()
    },
  }
}
