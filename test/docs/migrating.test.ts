import { spawnSync } from 'node:child_process'
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readAccessLine } from '../../src/commands/replay/formats/sluice.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, startLogging, written } from '../helpers/gateway.ts'
import { withOwnFolders } from '../helpers/nginx.ts'
import { codeBlocks, fileText, REPOSITORY } from '../helpers/repository.ts'
import { startUpstream } from '../helpers/upstream.ts'

const index = fileText('docs/migrating.md')
const pages = readdirSync(join(REPOSITORY, 'docs/migrating'))

const folder = createFolder()

async function limitsOf(text: string) {
  const file = join(folder, 'sluice.yaml')
  writeFileSync(file, text)
  return (await loadConfig({ file, env: {}, offline: true })).config.limits
}

describe.each(pages)('docs/migrating/%s', (name) => {
  const text = fileText(`docs/migrating/${name}`)

  it('is in the index', () => expect(index).toContain(`](migrating/${name})`))

  it('shows files of the peer, each followed by a Sluice file that loads and limits', async () => {
    const languages = [...text.matchAll(/^```(\w+)$/gm)].map(([, language]) => language)
    expect(languages.join(' ')).toMatch(/^(?:yml|nginx|js) yaml(?: (?:yml|nginx|js) yaml)*$/)
    for (const file of codeBlocks(text, 'yaml')) expect((await limitsOf(file)).length).toBeGreaterThan(0)
  })

  it('says that a peer was read about only, unless it was run', () => {
    const wasRun = /nginx|express/.test(name)
    expect(/checked only against .*documentation/.test(text.replaceAll('\n', ' '))).toBe(!wasRun)
  })
})

it('from-express-rate-limit.md counts only failed logins, and calls by key or else by address', async () => {
  const upstream = await startUpstream((request, response) => {
    const hasFailed = request.headers['x-password'] === 'wrong'
    response.writeHead(hasFailed ? 401 : 200, { 'X-Login-Cost': hasFailed ? '1' : '0' }).end()
  })
  const [, , after] = codeBlocks(fileText('docs/migrating/from-express-rate-limit.md'), 'yaml')
  const text = after!.replace('http://127.0.0.1:3000', upstream.url).replaceAll('limit: 100', 'limit: 2')
  const { port } = await startLogging(
    written(`listen: { host: 127.0.0.1, port: 0 }\nadmin: { port: 0 }\n${text}`),
  )
  const statuses: number[] = []
  const send = async (path: string, headers: Record<string, string>, method = 'GET') =>
    void statuses.push((await call(port, { method, path, headers })).status)
  const login = async (password: string) => await send('/login', { 'X-Password': password }, 'POST')
  for (let i = 0; i < 6; i++) await login('right')
  for (let i = 0; i < 6; i++) await login('wrong')
  expect(statuses.splice(0)).toEqual([...Array(6).fill(200), ...Array(5).fill(401), 429])
  for (let i = 0; i < 3; i++) await send('/api/a', { 'X-Api-Key': 'one' })
  for (let i = 0; i < 3; i++) await send('/api/a', {})
  await send('/api/a', { 'X-Api-Key': 'two' })
  for (let i = 0; i < 3; i++) await send('/api/health', {})
  await send('/login', {})
  expect(statuses).toEqual([200, 200, 429, 200, 200, 429, 200, 200, 200, 200, 200])
})

describe('docs/migrating.md', () => {
  it('shows a configuration for a trial that loads', async () => {
    const [trial] = codeBlocks(index, 'yaml')
    expect((await limitsOf(trial!)).map(({ shadow }) => shadow)).toEqual([false, true])
  })

  it('shows a configuration with points and calls at once that loads', async () => {
    const [, points, ...more] = codeBlocks(index, 'yaml')
    expect(more).toEqual([])
    expect(await limitsOf(points!)).toMatchObject([
      { name: 'points', limit: 900, inPoints: true },
      { name: 'calls', limit: 100, isConcurrent: true },
    ])
  })

  it('shows nginx files that nginx accepts', () => {
    const shown = [index, fileText('docs/migrating/from-nginx.md')]
    for (const [i, text] of shown.flatMap((page) => codeBlocks(page, 'nginx')).entries()) {
      const file = join(folder, `${i}.conf`)
      const local = text.replaceAll('data.internal', '127.0.0.1').replaceAll('/var/log/nginx', folder)
      const conf = `pid ${folder}/nginx.pid;\nevents {}\nhttp {\naccess_log off;\n${local}}\n`
      writeFileSync(file, withOwnFolders(conf))
      const { status, stderr, error } = spawnSync('nginx', ['-p', folder, '-t', '-c', file, '-e', 'stderr'], {
        encoding: 'utf8',
      })
      if (error !== undefined) throw new Error('nginx is missing; run npm run setup', { cause: error })
      expect([status, stderr], stderr).toEqual([0, expect.stringContaining('test is successful')])
    }
  })

  it('shows an nginx log format that replay reads', () => {
    const [, ...parts] = /log_format sluice escape=json '(.*)'\n *'(.*)';/.exec(index)!
    const values: Record<string, string> = {
      ...{ ended_at: '2026-11-22T14:09:58.276+00:00', request_method: 'GET', host: 'api.example.com' },
      ...{ received: '/v3/accounts', client_id: 'acme', remote_addr: '192.0.2.1', status: '429' },
      took_ms: '1239',
    }
    const line = parts.join('').replaceAll(/\$(\w+)/g, (_, name: string) => values[name]!)
    expect(readAccessLine(line)).toMatchObject({
      ...{ method: 'GET', host: 'api.example.com', path: '/v3/accounts', client: 'acme', ip: '192.0.2.1' },
      ...{ decidedAt: Date.parse('2026-11-22T14:09:57.037Z'), tookMs: 1239 },
    })
  })
})
