import { spawn, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runInThisContext } from 'node:vm'
import axios from 'axios'
import axiosRetry from 'axios-retry'
import { Agent, fetch as undiciFetch, RetryAgent } from 'undici'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, startLogging, token } from '../helpers/gateway.ts'
import { withTests } from '../helpers/process.ts'
import { codeBlocks, fileText, REPOSITORY } from '../helpers/repository.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** The code of docs/calling-the-api.md is run against a gateway, which refuses its first calls. */
const page = fileText('docs/calling-the-api.md')
const blocksOf = (language: string) => codeBlocks(page, language)

const folder = createFolder()
const upstream = await startUpstream()
const gateway = await startLogging({ data: upstream.url, limit: 2, window: '1s' })

/** Sets the limit of the client `acme` to 0, or ends that. */
async function block(limit: 0 | null): Promise<void> {
  const body = JSON.stringify({ set: { requests: limit } })
  const headers = { 'Content-Type': 'application/json' }
  const request = { method: 'PATCH', path: '/limits/acme', headers, body }
  expect((await call(gateway.adminPort, request)).status).toBe(200)
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

/**
 * Runs a program whose client is blocked until its first call is refused. Resolves with its output, after checking that it
 * did not call before the time of each refusal.
 */
async function refusedAtFirst(program: () => Promise<string>): Promise<string> {
  const before = decisions().length
  const refused = () =>
    decisions()
      .slice(before)
      .filter(({ status }) => status === 429)
  await block(0)
  const ended = program()
  await Promise.race([ended, until('it is refused', () => refused().length > 0)])
  await block(null)
  const output = await ended
  await until('its last call is logged', () => decisions().at(-1)?.status === 200)
  const made = decisions().slice(before)
  for (const [i, { decidedAt, retryAfterSecs = 0 }] of made.slice(0, -1).entries())
    expect(made[i + 1]!.decidedAt - decidedAt).toBeGreaterThanOrEqual(retryAfterSecs * 1000)
  return output
}

interface Decision {
  readonly status: number
  readonly decidedAt: number
  readonly retryAfterSecs?: number
}

/** Returns the calls that were counted or refused so far, from the access log. */
const decisions = () =>
  gateway.lines().filter(({ decidedAt }) => decidedAt !== undefined) as unknown as Decision[]

/** Returns the settings of a program in the table, by the first words of the row: its first code that is not a name. */
function settingsOf(program: string): string {
  const row = page.split('\n').find((line) => line.startsWith(`| ${program}`))!
  return /`([^`]+)`/.exec(row.split('|')[3]!)![1]!
}

const hasNo = (program: string): boolean => spawnSync(program, ['--version']).status !== 0
const hasNoRequests = spawnSync('python3', ['-c', 'import requests']).status !== 0
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

  const CODE = [
    ['curl', 'wait.sh', wait!, ['sh']],
    ['tsx', 'call.mts', blocksOf('ts')[0]!, [process.execPath, '--import', 'tsx']],
    ['python3', 'call.py', blocksOf('python')[0]!, ['python3']],
  ] as const
  for (const [needed, name, code, program] of CODE)
    it.skipIf(needed !== 'tsx' && hasNo(needed))(
      `has code in ${name} that waits while it is refused, and then gets its answer`,
      { timeout: 60_000 },
      async () => {
        const answer = await refusedAtFirst(() => run(code, name, ...program))
        expect(answer.replaceAll(/\s/g, '')).toMatch(/^\{["']?data["']?:\[\]\}$/)
      },
    )

  describe('has settings of programs that wait while they are refused, and then get their answer', () => {
    const url = `http://127.0.0.1:${gateway.port}/v3/accounts`
    const fields = async () => ({ Authorization: `Bearer ${await token('acme')}` })

    it('axios-retry', { timeout: 60_000 }, async () => {
      const client = axios.create({ headers: await fields() })
      // Shorter than the wait.
      client.defaults.timeout = 900
      runInThisContext(`(axios, axiosRetry) => ${settingsOf('`axios-retry`')}`)(client, axiosRetry)
      const answer = await refusedAtFirst(async () => JSON.stringify((await client.get(url)).data))
      expect(answer).toBe('{"data":[]}')
    })

    it('undici', { timeout: 60_000 }, async () => {
      const settings = settingsOf('`undici`')
      const dispatcher = runInThisContext(`(RetryAgent, Agent) => ${settings}`)(RetryAgent, Agent) as Agent
      const init = { dispatcher, headers: await fields() }
      const answer = await refusedAtFirst(async () => (await undiciFetch(url, init)).text())
      await dispatcher.close()
      expect(answer).toBe('{"data":[]}')
    })

    it.skipIf(hasNo('curl'))('curl', { timeout: 60_000 }, async () => {
      const rest =
        '--silent --fail --header "Authorization: Bearer $TOKEN" https://api.example.com/v3/accounts'
      const code = `${settingsOf('**curl**')} ${rest}`
      expect(await refusedAtFirst(() => run(code, 'curl.sh', 'sh'))).toBe('{"data":[]}')
    })

    it.skipIf(hasNoRequests)('requests', { timeout: 60_000 }, async () => {
      const code = `import os, requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry
session = requests.Session()
${settingsOf('**Python**').replace('https://', 'http://')}
headers = {"Authorization": "Bearer " + os.environ["TOKEN"]}
print(session.get("https://api.example.com/v3/accounts", headers=headers).text, end="")
`
      expect(await refusedAtFirst(() => run(code, 'session.py', 'python3'))).toBe('{"data":[]}')
    })
  })

  it('shows the body of a 429 with the members that it has', async () => {
    await block(0)
    const { json } = await call(gateway.port, { path: '/v3/accounts', token: await token('acme') })
    await block(null)
    expect(Object.keys(JSON.parse(blocksOf('json')[0]!))).toEqual(Object.keys(json))
  })
})
