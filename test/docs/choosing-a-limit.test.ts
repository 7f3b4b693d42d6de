import { spawnSync } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { yaml } from '../helpers/gateway.ts'
import { BIN } from '../helpers/process.ts'
import { codeBlocks, fileText } from '../helpers/repository.ts'

/** The commands of docs/choosing-a-limit.md are run in a shell; test/regimes plays its recipes. */
const page = fileText('docs/choosing-a-limit.md')
const [trial, headRoom, replay, percentiles, callers, planned] = codeBlocks(page, 'sh')

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

function run(block: string, cwd = folder): string {
  const env = { ...process.env, PATH: `${folder}${delimiter}${process.env['PATH']}` }
  const { status, stdout, stderr } = spawnSync('sh', ['-ec', block], { cwd, env, encoding: 'utf8' })
  expect(status, stderr).toBe(0)
  return stdout
}
const hasNoJq = spawnSync('jq', ['--version']).status !== 0

describe('docs/choosing-a-limit.md, from the log of nginx', () => {
  const of = (ip: string, minute: number, calls: number) =>
    Array.from(
      { length: calls },
      () => `${ip} - - [20/Nov/2026:09:0${minute}:00 +0000] "GET /v1 HTTP/1.1" 200 5 "-" "-"\n`,
    ).join('')
  const beside = createFolder()
  writeFileSync(join(beside, 'trial.yaml'), codeBlocks(page, 'yaml')[0]!)
  writeFileSync(join(beside, 'access.log.2.gz'), gzipSync(of('192.0.2.10', 1, 60)))
  writeFileSync(join(beside, 'access.log.1'), of('192.0.2.10', 2, 90))
  writeFileSync(join(beside, 'access.log'), of('192.0.2.10', 3, 101) + of('198.51.100.7', 4, 30))

  it('shows which addresses a limit would have refused', () => {
    const output = run(trial!, beside)
    expect(output).toMatch(
      /^ip:192\.0\.2\.10 +- +251 +250 +0 -> 1 +requests 1 +101 from 2026-11-20T09:03:00/m,
    )
    expect(output).toMatch(/^ip:198\.51\.100\.7 +- +30 +30 +0 /m)
  })

  it.skipIf(hasNoJq)('computes a limit with head-room', () => {
    expect(JSON.parse(run(headRoom!, beside))).toEqual({ most: 101, limit: 202 })
  })
})

it('docs/choosing-a-limit.md shows whom a limit would have refused, and the busiest minute', () => {
  const output = run(replay!)
  expect(output).toMatch(/^acme +- +4 +3 +0 -> 1 +requests 1 +3 from 2026-03-02T09:00:00\.000Z +-$/m)
  expect(output).toMatch(/^blue +- +1 +1 +0 +- +1 from/m)
})

it('docs/choosing-a-limit.md shows what another plan would do to a client', () => {
  const withPlans = createFolder()
  writeFileSync(join(withPlans, 'access.log'), calls('acme', '192.0.2.7', 30, 65))
  const more = {
    plans: { free: { requests: 1 }, pro: { requests: 9 } },
    clients: [{ id: 'acme', plan: 'pro' }],
  }
  writeFileSync(join(withPlans, 'sluice.yaml'), yaml({ data: 'http://127.0.0.1:1', limit: 2, more }))
  const output = run(planned!, withPlans)
  expect(output).toMatch(/^acme +- +2 +1 +0 -> 1 +requests 1 /m)
  expect(output).toMatch(/^acme +pro -> free +2$/m)
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
