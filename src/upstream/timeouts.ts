import { Refusal } from '../errors.ts'
import type { UpstreamRequest } from './request.ts'

/** A timeout comes late by as much at most. */
const TICK_MS = 40

/** Bounds the silence of all requests to an upstream with one timer, which runs while there are any. */
export class Timeouts {
  readonly #requests = new Set<UpstreamRequest>()
  #timer: NodeJS.Timeout | undefined

  add(request: UpstreamRequest): void {
    this.#requests.add(request)
    this.#timer ??= setInterval(() => this.#sweep(), TICK_MS)
  }

  delete(request: UpstreamRequest): void {
    this.#requests.delete(request)
  }

  #sweep(): void {
    const now = performance.now()
    for (const request of this.#requests) {
      if (now - request.silentSince < request.timeoutMs) continue
      request.silentSince = now
      onSilence(request)
    }
    if (this.#requests.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}

/** Ends a request unless the silence is the caller's. */
function onSilence(silent: UpstreamRequest): void {
  const { request, response, sent, claimed, timeoutMs, backend } = silent
  // A caller that is still sending is bounded by `listen.requestTimeout`.
  const waitsForCaller = silent.streamed && !request.complete && sent?.writableNeedDrain !== true
  if (silent.headAt === undefined && waitsForCaller) return
  // What has come from the upstream waits for a caller that reads none of it, or too little for the system to report.
  if (response.headersSent && (response.writableNeedDrain || response.writableEnded)) {
    silent.unreadMs += timeoutMs
    if (silent.unreadMs < backend.readMs) return
    silent.givenUp = `the caller read too little for ${silent.unreadMs} ms`
    silent.settle('left')
  } else if (claimed && !silent.holds) silent.failBusy()
  else if (claimed && !sent?.socket) {
    silent.failUnreachable(new Error(`no connection within ${timeoutMs} ms`))
  } else {
    silent.failAddress(new Error(`silent for ${timeoutMs} ms`))
    const cause = `${backend.name} was silent for ${timeoutMs} ms`
    silent.fail(new Refusal('GatewayTimeout', 'The upstream did not answer in time.', { cause }))
  }
}
