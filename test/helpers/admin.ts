import { vi } from 'vitest'
import type { AdminAccess } from '../../src/admin/access.ts'
import type { OperatorApi } from '../../src/admin/operator-api.ts'
import { type AdminParts, createAdmin } from '../../src/admin/server.ts'
import { formatCaller, parseCaller, showCaller } from '../../src/policy/counted-caller.ts'
import { call, type Call, type Got } from './gateway.ts'
import { listenLocally } from './local-server.ts'

type Names = 'usage' | 'reset' | 'findCaller' | 'setLimits' | 'overrides' | 'explain'
/** Functions of the gateway, with results that the listener only serialises. */
type Recorded = { [Name in Names]: (...args: Parameters<OperatorApi[Name]>) => unknown }

/** Starts a real admin listener with parts that record the requested callers. */
export async function startAdmin({
  token,
  onLoopback = true,
  hosts = [],
  operator = {},
  ...parts
}: Partial<AdminAccess & Omit<AdminParts, 'operator'>> & { readonly operator?: Partial<Recorded> } = {}) {
  const failed = vi.fn<AdminParts['failed']>()
  const asked: string[] = []
  /** Answers with what it was asked. */
  const operated: Recorded = {
    usage: async (caller) => {
      asked.push(formatCaller(caller))
      return { caller: showCaller(caller), limits: [], truncated: false }
    },
    findCaller: (shown) =>
      shown === 'header:x-api-key=abc1…5f2c9e1a' ? parseCaller('header:x-api-key=abc123') : undefined,
    setLimits: async (setting) => setting,
    overrides: async () => [{ caller: 'client:acme' }],
    explain: async (line) => line,
    reset: async (caller) => (asked.push(formatCaller(caller)), { caller: showCaller(caller), freed: 2 }),
    ...operator,
  }
  const server = createAdmin({
    notReadyReason: () => undefined,
    metrics: async () => '',
    access: () => ({ token, onLoopback, hosts }),
    overview: async () => ({ shown: true }),
    operator: () => operated as OperatorApi,
    hash: () => null,
    failed,
    ...parts,
  })
  const { port } = await listenLocally(server)
  const ask = (path: string, more: Call = {}): Promise<Got> => call(port, { path, ...more })
  return { ask, asked, failed, port }
}
