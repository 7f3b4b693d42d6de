import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { createFolder } from '../helpers/folder.ts'

it.each([
  ['hashes', 0o644, true],
  ['hashes', 0o660, true],
  ['hashes', 0o604, true],
  ['hashes', 0o640, false],
  ['hashes', 0o440, false],
  ['no keys', 0o644, false],
  ['no keys', 0o666, true],
] as const)('a file with %s and the mode %o is warned of: %s', async (content, mode, isWarned) => {
  const folder = createFolder()
  const [file, config] = [join(folder, 'keys.yaml'), join(folder, 'sluice.yaml')]
  writeFileSync(file, content === 'hashes' ? `- { id: acme, sha256: "${'a'.repeat(64)}" }\n` : '[]\n')
  chmodSync(file, mode)
  writeFileSync(
    config,
    `store: memory
keys: { file: keys.yaml }
upstreams: { data: { url: http://127.0.0.1:4000 } }
limits: { requests: { per: [client], limit: 1, window: 1m } }
routes: [{ match: "/*", upstream: data, authenticate: key, limits: [requests] }]
`,
  )
  const message = `names ${file}, which others may read or change (mode ${mode.toString(8)}); run chmod g-w,o= on it`
  const warning = { where: `${config}:2:15`, path: 'keys.file', message }
  expect((await loadConfig({ file: config })).config.warnings).toEqual(isWarned ? [warning] : [])
})
