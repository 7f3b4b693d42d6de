import { vi } from 'vitest'
import type { AdminAccess } from '../../src/admin/access.ts'
import type { OperatorApi } from '../../src/admin/requests/operator-api.ts'
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
  tokens = [],
  onLoopback = true,
  hosts = [],
  operator = {},
  ...parts
}: Partial<AdminAccess & Omit<AdminParts, 'operator'>> & { readonly operator?: Partial<Recorded> } = {}) {
  const failed = vi.fn<AdminParts['failed']>()
  const asked: string[] = []
  const audited: Record<string, unknown>[] = []
  const counted = new Map<string, number>()
  /** Answers with what it was asked. */
  const operated: Recorded = {
    usage: async (caller) => {
      asked.push(formatCaller(caller))
      return { caller: showCaller(caller), limits: [], truncated: false }
    },
    findCaller: (shown) =>
      shown === 'header:x-api-key=abc1…5f2c9e1a' ? parseCaller('header:x-api-key=abc123') : undefined,
    setLimits: async (setting) => ({ ...setting, limits: [] }),
    overrides: async () => [{ caller: 'client:acme' }],
    explain: async (line) => line,
    reset: async (caller) => (asked.push(formatCaller(caller)), { caller: showCaller(caller), freed: 2 }),
    ...operator,
  }
  const server = createAdmin({
    notReadyReason: () => undefined,
    metrics: async () => '',
    access: () => ({ token, tokens, onLoopback, hosts }),
    audit: (fields) => void audited.push(fields as Record<string, unknown>),
    requests: {
      inc({ operation, result }, by = 1) {
        const series = `${operation} ${result}`
        counted.set(series, (counted.get(series) ?? 0) + by)
      },
    },
    overview: async () => ({ shown: true }),
    operator: () => operated as OperatorApi,
    hash: () => null,
    secrets: () => new Set(),
    failed,
    ...parts,
  })
  const { port } = await listenLocally(server)
  const ask = (path: string, more: Call = {}): Promise<Got> => call(port, { path, ...more })
  return { ask, asked, audited, counted, failed, port }
}
