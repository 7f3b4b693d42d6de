import { Refusal, serviceUnavailable } from '../errors.ts'

/** 503: every socket to the upstream is taken, or as many as the caller may have, and so is every place in the queue. */
export const busy = (): Refusal => serviceUnavailable('The upstream is busy.')

/** 504: the upstream was asked, and silent for so long. */
export function silent(upstream: string, forMs: number): Refusal {
  return new Refusal('GatewayTimeout', 'The upstream did not answer in time.', {
    cause: `${upstream} was silent for ${forMs} ms`,
  })
}

/** 502: no address of the upstream took the connection. */
export const unreachable = (upstream: string, cause: unknown): Refusal =>
  badGateway('The upstream cannot be reached.', upstream, cause)

/** 502: the upstream was asked, and what came back is no answer. */
export const broken = (upstream: string, cause: unknown): Refusal =>
  badGateway('The upstream broke off.', upstream, cause)

function badGateway(message: string, upstream: string, cause: unknown): Refusal {
  const words = `${upstream}: ${cause instanceof Error ? cause.message : String(cause)}`
  return new Refusal('BadGateway', message, { cause: new Error(words, { cause }) })
}
