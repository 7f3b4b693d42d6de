import { spawn, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { withTests } from '../helpers/process.ts'
import { codeBlocks, fileText, REPOSITORY } from '../helpers/repository.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** The code of docs/calling-the-api.md is run against a gateway, which refuses its first calls. */
const page = fileText('docs/calling-the-api.md')
const blocksOf = (language: string) => codeBlocks(page, language)

const folder = createFolder()
const upstream = await startUpstream()
const gateway = await startGateway({ data: upstream.url, limit: 2, window: '1s' })

/** Sets the limit of the client `acme` to 0, or ends that. */
async function block(limit: 0 | null): Promise<void> {
  const body = JSON.stringify({ set: { requests: limit } })
  const headers = { 'Content-Type': 'application/json' }
  const request = { method: 'PATCH', path: '/limits/acme', headers, body }
  expect((await call(gateway.adminPort, request)).status).toBe(200)
}

/** Returns the number of calls that were refused so far. */
async function refused(): Promise<number> {
  const { body } = await call(gateway.adminPort, { path: '/metrics' })
  const counts = [...body.matchAll(/^sluice_http_requests_total\{.*code="429".*\} (\d+)$/gm)]
  return counts.reduce((sum, [, count]) => sum + Number(count), 0)
}

/** Runs a program with the code in a file, as its last argument. Resolves with its output; fails unless it exits with 0. */
async function run(code: string, name: string, ...program: readonly string[]): Promise<string> {
  const file = join(folder, name)
  writeFileSync(file, code.replaceAll('https://api.example.com', `http://127.0.0.1:${gateway.port}`))
  const env = { ...process.env, TOKEN: await token('acme') }
  const [command, ...args] = program
  const child = withTests(spawn(command!, [...args, file], { cwd: REPOSITORY, env }))
  let [output, errors] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()))
  const exit = await new Promise((resolve, reject) => child.once('close', resolve).once('error', reject))
  expect(exit, errors).toBe(0)
  return output
}

const hasNo = (program: string): boolean => spawnSync(program, ['--version']).status !== 0
const [show, wait] = blocksOf('sh')

describe('docs/calling-the-api.md', () => {
  it.skipIf(hasNo('curl'))('shows the fields of a response with curl', async () => {
    const output = await run(show!, 'show.sh', 'sh')
    for (const field of [
      'X-RateLimit-Limit: 2',
      'X-RateLimit-Remaining: 1',
      'X-RateLimit-Reset',
      'X-Request-Id',
    ])
      expect(output).toContain(field)
  })

  const CLIENTS = [
    ['curl', 'wait.sh', wait!, ['sh']],
    ['tsx', 'call.mts', blocksOf('ts')[0]!, [process.execPath, '--import', 'tsx']],
    ['python3', 'call.py', blocksOf('python')[0]!, ['python3']],
  ] as const
  for (const [needed, name, code, program] of CLIENTS)
    it.skipIf(needed !== 'tsx' && hasNo(needed))(
      `has code in ${name} that waits while it is refused, and then gets its answer`,
      { timeout: 60_000 },
      async () => {
        await block(0)
        const before = await refused()
        const ended = run(code, name, ...program)
        await Promise.race([ended, until('it is refused', async () => (await refused()) > before)])
        await block(null)
        expect((await ended).replaceAll(/\s/g, '')).toMatch(/^\{["']?data["']?:\[\]\}$/)
      },
    )

  it('shows the body of a 429 with the members that it has', async () => {
    await block(0)
    const { json } = await call(gateway.port, { path: '/v3/accounts', token: await token('acme') })
    await block(null)
    expect(Object.keys(JSON.parse(blocksOf('json')[0]!))).toEqual(Object.keys(json))
  })
})
