import { spawnSync } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { yaml } from '../helpers/gateway.ts'
import { BIN } from '../helpers/process.ts'
import { codeBlocks, fileText } from '../helpers/repository.ts'

/** The commands of docs/choosing-a-limit.md are run in a shell; test/regimes plays its recipes. */
const [replay, percentiles, callers] = codeBlocks(fileText('docs/choosing-a-limit.md'), 'sh')

const folder = createFolder()
const program = join(folder, 'sluice')
writeFileSync(program, `#!/bin/sh\nexec ${process.execPath} ${BIN} "$@"\n`)
chmodSync(program, 0o755)
writeFileSync(join(folder, 'sluice.yaml'), yaml({ data: 'http://127.0.0.1:1', limit: 2 }))

/** Returns the keys of an entry of a section, from the JSON Schema of the file. */
function propertiesOf(section: string): object {
  const schema = JSON.parse(fileText('config/sluice.schema.json')) as Schema
  return schema.properties![section]!.additionalProperties!.properties!
}
interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>
  readonly additionalProperties?: Schema
}

const start = Date.parse('2026-03-02T09:00:00Z')
/** Returns the log line of a call of a client, some seconds after the start. */
const line = (client: string, ip: string, secs: number): string =>
  `${JSON.stringify({
    ...{ msg: 'request', time: new Date(start + secs * 1000).toISOString(), client, caller: `ip:${ip}`, ip },
    ...{ method: 'GET', host: 'api.example.com', path: '/v3/accounts', status: 200, source: 'upstream' },
    ...{ decision: 'admitted', decidedAt: start + secs * 1000, durationMs: 1 },
  })}\n`
const calls = (client: string, ip: string, ...secs: readonly number[]): string =>
  secs.map((at) => line(client, ip, at)).join('')
writeFileSync(join(folder, 'access.log.1.gz'), gzipSync(calls('acme', '192.0.2.7', 0, 1)))
writeFileSync(
  join(folder, 'access.log'),
  calls('acme', '192.0.2.7', 30, 65) + calls('blue', '192.0.2.8', 70) + calls('coal', '192.0.2.9', 80, 81),
)

function run(block: string): string {
  const env = { ...process.env, PATH: `${folder}${delimiter}${process.env['PATH']}` }
  const { status, stdout, stderr } = spawnSync('sh', ['-ec', block], { cwd: folder, env, encoding: 'utf8' })
  expect(status, stderr).toBe(0)
  return stdout
}
const hasNoJq = spawnSync('jq', ['--version']).status !== 0

it('docs/choosing-a-limit.md shows whom a limit would have refused, and the busiest minute', () => {
  const output = run(replay!)
  expect(output).toMatch(/^acme +- +4 +3 +0 -> 1 +requests 1 +3 from 2026-03-02T09:00:00\.000Z +-$/m)
  expect(output).toMatch(/^blue +- +1 +1 +0 +- +1 from/m)
})

it.skipIf(hasNoJq)(
  'docs/choosing-a-limit.md has commands for percentiles, and for callers as limits count them',
  () => {
    expect(JSON.parse(run(percentiles!))).toEqual({ half: 2, most: 2, all: 2 })
    expect(run(callers!)).toMatch(/^ +2 ip:192\.0\.2\.9 29540\d+$/m)
  },
)

it('docs/choosing-a-limit.md compares the keys that begin alike, in a table and a file with all of them', () => {
  const [, section = ''] = fileText('docs/choosing-a-limit.md').split(/^## 3\. .*$/m)
  const table = [...section.split('```')[0]!.matchAll(/^\| .*? \| `(\w+): /gm)].map(([, key]) => key!)
  const alike = Object.keys(propertiesOf('limits')).filter((key) => /^(?:co|to)/.test(key))
  expect(table.toSorted()).toEqual([...alike, 'cost'].toSorted())
  const [file = ''] = codeBlocks(section, 'yaml')
  for (const key of table) expect(file).toContain(` ${key}: `)
})
