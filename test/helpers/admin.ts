import { vi } from 'vitest'
import type { AdminAccess } from '../../src/admin/access.ts'
import { type AdminParts, createAdmin } from '../../src/admin/server.ts'
import { formatCaller, parseCaller, showCaller } from '../../src/policy/counted.ts'
import { call, type Call, type Got } from './gateway.ts'
import { listenLocally } from './local-server.ts'

/** Starts a real admin listener with parts that record the requested callers. */
export async function startAdmin({
  token,
  onLoopback = true,
  hosts = [],
  ...parts
}: Partial<AdminAccess & AdminParts> = {}) {
  const failed = vi.fn<AdminParts['failed']>()
  const asked: string[] = []
  const server = createAdmin({
    notReadyReason: () => undefined,
    metrics: async () => '',
    metricsType: 'text/plain',
    access: () => ({ token, onLoopback, hosts }),
    usage: async (caller) => {
      asked.push(formatCaller(caller))
      return { caller: showCaller(caller), limits: [], truncated: false }
    },
    findCaller: (shown) =>
      shown === 'header:x-api-key=abc1…5f2c9e1a' ? parseCaller('header:x-api-key=abc123') : undefined,
    overview: async () => ({ shown: true }),
    setLimits: async (setting) => setting,
    overrides: async () => [{ caller: 'client:acme' }],
    explain: async (question) => question,
    reset: async (caller) => (asked.push(formatCaller(caller)), { caller: showCaller(caller), freed: 2 }),
    failed,
    ...parts,
  })
  const { port } = await listenLocally(server)
  const ask = (path: string, more: Call = {}): Promise<Got> => call(port, { path, ...more })
  return { ask, asked, failed, port }
}
