import { certificatesOf, endsSoon, invalidity, remaining } from '../../config/certificates.ts'
import type { Config } from '../../config/schema.ts'
import { createAddresses } from '../../upstream/addresses.ts'
import { createConnect } from '../../upstream/connect.ts'
import type { Upstream } from '../../upstream/upstream.ts'

/** What became of one thing that a configuration names. */
export interface Finding {
  readonly state: 'ok' | 'warning' | 'failed'
  readonly what: string
  /** What was found and, where it failed, what to do. */
  readonly message: string
  /** How long it took. */
  readonly ms?: number
}

/** Tries something, within a bounded time; never rejects. */
export type Probe = () => Promise<readonly Finding[]>

/** Longest wait for one answer. */
export const TIMEOUT_MS = 3000

/** Connects to each address of the upstreams, over TLS as for a call. */
export function upstreamProbes({ upstreams }: Config): readonly Probe[] {
  return upstreams.flatMap((upstream) => {
    const { all } = createAddresses(upstream.origins, () => {})
    return all.map((address) => async () => [await connect(upstream, address)])
  })
}

/** Words what OpenSSL says of a server without TLS, and of another failure of TLS; undefined for what is none. */
function noTls({ message }: Error): string | undefined {
  if (message.includes('wrong version number'))
    return 'does not speak TLS; write http:// in place of https://'
  const [, reason] = /:SSL routines:[^:]*:([^:]+):/.exec(message) ?? []
  return reason && `TLS fails: ${reason}; correct its certificate or its tls`
}

type Address = ReturnType<typeof createAddresses>['all'][number]

function connect({ name, connectTimeoutMs, tls }: Upstream, address: Address): Promise<Finding> {
  const isTls = address.origin.startsWith('https:')
  const what = `upstream ${name} at ${address.origin}`
  const open = createConnect(Math.min(connectTimeoutMs, TIMEOUT_MS), isTls ? (tls ?? {}) : undefined)
  return new Promise((resolve) => {
    const socket = open(address, (failure) => {
      socket.destroy()
      if (failure === undefined)
        resolve({ state: 'ok', what, message: isTls ? 'connected by TLS' : 'connected' })
      else {
        const advice = `start it, or correct upstreams.${name}${isTls ? ', with its tls' : ''}`
        resolve({ state: 'failed', what, message: noTls(failure) ?? `${failure.message}; ${advice}` })
      }
    })
    socket.on('error', () => {})
  })
}

/** Says how long the certificates of each file are valid, at an instant in epoch milliseconds. */
export function certificateFindings(config: Config, nowMs: number): readonly Finding[] {
  return certificatesOf(config).map((one) => {
    const what = `certificate ${one.path.join('.')}`
    const message = invalidity(one, nowMs)
    // Of authorities, an old one may be left beside its successor.
    if (message !== undefined)
      return { state: one.path.at(-1) === 'cert' ? 'failed' : 'warning', what, message }
    const words = `is valid for ${remaining(one, nowMs)}`
    return { state: endsSoon(one, nowMs) ? 'warning' : 'ok', what, message: words }
  })
}
