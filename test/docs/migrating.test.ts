import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readAccessLine } from '../../src/commands/replay/logs.ts'
import { loadConfig } from '../../src/config/load.ts'

const doc = readFileSync(join(import.meta.dirname, '../../docs/migrating.md'), 'utf8')

describe('docs/migrating.md', () => {
  const blocks = [...doc.matchAll(/^( *)```yaml\n([\s\S]*?)^ *```/gm)].map(([, indent, block]) =>
    block!.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  )

  it('shows configurations that load, for each peer and for a trial', async () => {
    expect(blocks).toHaveLength(5)
    const folder = mkdtempSync(join(tmpdir(), 'sluice-migrating-'))
    for (const [i, block] of blocks.entries()) {
      const file = join(folder, `${i}.yaml`)
      writeFileSync(file, block)
      const { config } = await loadConfig({ file, env: {} })
      expect(config.limits.length, block).toBeGreaterThan(0)
    }
    rmSync(folder, { recursive: true })
  })

  it('shows an nginx log format that replay reads', () => {
    const [, ...parts] = /log_format sluice escape=json '(.*)'\n *'(.*)';/.exec(doc)!
    const values: Record<string, string> = {
      ...{ time_iso8601: '2026-11-22T14:09:58+00:00', request_method: 'GET', host: 'api.example.com' },
      ...{ uri: '/v3/accounts', client_id: 'acme', remote_addr: '192.0.2.1', status: '429' },
      now_ms: '1795356598276',
    }
    const line = parts.join('').replaceAll(/\$(\w+)/g, (_, name: string) => values[name]!)
    expect(readAccessLine(line)).toMatchObject({
      ...{ method: 'GET', host: 'api.example.com', path: '/v3/accounts', client: 'acme', ip: '192.0.2.1' },
      ...{ arrived: true, decidedAt: 1795356598276 },
    })
  })
})
