import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { createFolder } from '../helpers/folder.ts'

const key = (client: string): string => `- { id: ${client}, sha256: "${'a'.repeat(64)}" }\n`

/** Returns the warnings about clients of a file whose clients are `Acme` and `globex`. */
async function warningsOf(keys: string, more = ''): Promise<readonly string[]> {
  const folder = createFolder()
  const file = join(folder, 'sluice.yaml')
  writeFileSync(join(folder, 'keys.yaml'), keys, { mode: 0o600 })
  writeFileSync(
    file,
    `store: memory
keys: { file: keys.yaml }
upstreams: { data: { url: "http://127.0.0.1:9" } }
clients: [{ id: Acme }, { id: globex }]
limits: { requests: { per: [client], limit: 5, window: 1m } }
routes: [{ match: "/*", upstream: data, authenticate: ${more === '' ? 'key' : '[bearer, key]'}, limits: [requests] }]
${more}`,
  )
  const { config } = await loadConfig({ file, env: {} })
  return config.warnings.filter(({ path }) => path.startsWith('clients')).map(({ message }) => message)
}

it('warns about a client without a key where callers have only keys', async () => {
  const unused = 'has no key, so that no call gets these settings'
  expect(await warningsOf(key('acme'))).toEqual([`${unused}; did you mean "acme"?`, unused])
  expect(await warningsOf(key('Acme') + key('globex').replace('aa', 'bb'))).toEqual([])
})

it('does not where none has a key yet, or callers may have tokens', async () => {
  expect(await warningsOf('[]\n')).toEqual([])
  const tokens =
    'tokens: { issuer: "https://identity.example.com/oidc", audience: "https://api.example.com" }\n'
  expect(await warningsOf(key('acme'), tokens)).toEqual([])
})
