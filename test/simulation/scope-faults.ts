import type { Gateway } from './gateway.ts'
import { TIMEOUT_MS } from './gateway.ts'
import type { Action } from './history.ts'
import type { Deployment, Server } from './deployment.ts'
import type { createQueues, Queue } from './scope-queues.ts'
import type { World } from './time.ts'

/** Faults of a message, of a gateway and of Redis. */
const MESSAGE_FAULTS = ['request lost', 'request late', 'answer lost', 'answer late'] as const
const GATEWAY_FAULTS = ['cut, requests lost', 'cut, requests arrive', 'suspended'] as const
const REDIS_FAULTS = [
  ...(['restart', 'restart without data', 'failover'] as const),
  ...(['scripts lost', 'full', 'stalled'] as const),
] as const
export const FAULTS = [...MESSAGE_FAULTS, ...GATEWAY_FAULTS, ...REDIS_FAULTS] as const
export type Fault = (typeof FAULTS)[number]

const includes = (faults: readonly Fault[], fault: Fault): boolean => faults.includes(fault)
export const isOfMessage = (fault: Fault): boolean => includes(MESSAGE_FAULTS, fault)
export const isOfRedis = (fault: Fault): boolean => includes(REDIS_FAULTS, fault)
/** Returns true if a fault ends connections, which are open again after a pause. */
export const disconnects = (fault: Fault): boolean => /^(?:cut|restart|failover)/.test(fault)

/** The one fault of an order. */
export interface Begun {
  readonly kind: Fault
  /** Undefined if it is Redis's. */
  readonly gateway: number | undefined
  readonly atMs: number
  isOver: boolean
}

/** Begins a fault; `queue` is that of the lost or late message. */
export function beginFault(
  kind: Fault,
  gateway: number,
  queue: Queue | undefined,
  { world, gateways, deployment, queues, open }: FaultySystem,
): Begun {
  const { model } = deployment.masters[0]
  const cut = (i: number, losesRequests: boolean): void => {
    gateways[i]!.client.cut(losesRequests)
    queues.lose(i, losesRequests)
  }
  if (queue !== undefined) queue.fault = kind.endsWith('late') ? 'late' : 'lost'
  if (queue?.fault === 'lost') queue.messages.length = 0
  else if (kind === 'suspended') gateways[gateway]!.loop.stall(1.5 * TIMEOUT_MS)
  else if (kind === 'scripts lost') model.flushScripts()
  else if (kind === 'full') model.isFull = true
  else if (kind.startsWith('cut')) cut(gateway, kind === 'cut, requests lost')
  else if (disconnects(kind)) {
    const data = kind === 'restart without data' ? undefined : model.snapshot()
    const server = kind === 'failover' ? open() : deployment.masters[0]
    deployment.masters[0] = deployment.masters[1] = server
    server.model.restart(data)
    data?.release()
    for (const i of gateways.keys()) cut(i, true)
  }
  return {
    kind,
    gateway: isOfRedis(kind) ? undefined : gateway,
    atMs: world.now(),
    isOver: kind !== 'full' && kind !== 'stalled',
  }
}

interface FaultySystem {
  readonly world: World
  readonly gateways: readonly Gateway[]
  readonly deployment: Deployment
  readonly queues: ReturnType<typeof createQueues>
  /** Starts a server. */
  readonly open: () => Server
}

/** Returns the fault of an order as one of a history. */
export function actionsOf(begun: Begun | undefined): readonly Action[] {
  if (begun === undefined) return []
  const { kind, atMs, gateway = 0 } = begun
  const base = { number: 0, atMs, ms: 0, gateway, half: 0 } as const
  if (kind === 'suspended') return [{ ...base, kind: 'suspend', ms: 400 }]
  if (kind.startsWith('restart'))
    return [{ ...base, kind: 'restart', keepsData: kind !== 'restart without data' }]
  if (kind === 'failover') return [{ ...base, kind, lagMs: 0 }]
  if (kind === 'scripts lost') return [{ ...base, kind: 'flush' }]
  if (kind === 'full') return [{ ...base, kind, ms: LONGEST_MS }]
  if (kind === 'stalled') return [{ ...base, kind: 'stall', ms: LONGEST_MS }]
  return [{ ...base, kind: 'cut', losesRequests: true, ms: LONGEST_MS }]
}

/** Longest time that a fault lasts. */
const LONGEST_MS = 1000
