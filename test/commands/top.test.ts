import { createServer } from 'node:http'
import { expect, it } from 'vitest'
import { main } from '../../src/commands/cli.ts'
import type { Io } from '../../src/commands/io.ts'
import { call, startGateway, token, yaml } from '../helpers/gateway.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { deadUrl, freePort } from '../helpers/ports.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { createIo, fileOf, itEndsWrongUsage, sluice } from './run.ts'

const TOKEN = 'an-operator-s-token'
const env = { ADMIN_TOKEN: TOKEN }

const upstream = await startUpstream()
const settings = { data: upstream.url, limit: 3, admin: { port: await freePort(), token: TOKEN } }
const gateway = await startGateway(settings)
const file = fileOf(yaml(settings))
const url = `http://127.0.0.1:${gateway.adminPort}`
const [acme, other] = [await token('acme'), await token('o\u202Ether')]
for (let i = 0; i < 4; i++) await call(gateway.port, { token: acme })
await call(gateway.port, { token: other })
const shown = async () => (await sluice(['limits', 'top', '--admin', url], { env })).stdout
await until('both are shown', async () => (await shown()).split('\n').length === 4)

it('lists the busiest callers of the gateway of the file, and escapes their names', async () => {
  const { code, stdout, stderr } = await sluice(['limits', 'top', '--config', file])
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const [head, first, second] = stdout.split('\n').map((line) => line.split(/ {2,}/))
  expect(head!.slice(0, 2)).toEqual(['CALLER', 'REFUSED UNTIL'])
  // The rates cover ten seconds, which may have passed on a busy machine.
  const tenths = expect.stringMatching(/^0\.\d$/) as string
  expect(first![0]).toBe('client:acme')
  expect(first![1]).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z by requests$/)
  expect(first!.slice(2, 7)).toEqual([tenths, tenths, 'requests', '3', '0'])
  expect(first![7]).toMatch(/^\d+ by requests$/)
  expect(first![8]).toBe('GET,POST /transactions')
  expect(second).toEqual([
    ...[String.raw`client:o\u202ether`, '-', tenths, '0.0', 'requests', '1', '2', '-'],
    'GET,POST /transactions',
  ])
})

it('rounds rates, truncates long callers, and counts the others', async () => {
  const shown = {
    caller: 'client:acme',
    route: '/*',
    callsPerSecond: 0.7,
    refusedPerSecond: 1.36,
    limits: [],
    most: null,
    refusedNow: null,
  }
  const address = { ...shown, caller: 'ip:192.0.2.7' }
  const long = { ...shown, caller: `client:${'x'.repeat(255)}` }
  const other = createServer((_, response) =>
    response.end(
      JSON.stringify({ activity: { callers: [shown, address, long], known: 256, mostKnown: 256 } }),
    ),
  )
  const { stdout } = await sluice(['limits', 'top', '--admin', (await listenLocally(other)).url])
  const [, first, second, third, last] = stdout.split('\n')
  expect(first!.split(/ {2,}/).slice(0, 4)).toEqual(['client:acme', '-', '0.7', '1.4'])
  expect(second).toMatch(/^ip:192\.0\.2\.7 /)
  expect(third).toMatch(/^client:x{52}… {2}-/)
  expect(last).toBe('3 of 256 or more')
})

it('lists the callers as JSON, with --admin and ADMIN_TOKEN', async () => {
  const { code, stdout } = await sluice(['limits', 'top', '--admin', `${url}/`, '--json'], { env })
  expect(code).toBe(0)
  const { at, callers } = JSON.parse(stdout) as { at: string; callers: object[] }
  expect(Date.parse(at)).toBeGreaterThan(0)
  expect(callers).toHaveLength(2)
  expect(callers[0]).toMatchObject({
    caller: 'client:acme',
    route: 'GET,POST /transactions',
    most: { name: 'requests', limit: 3, remaining: 0 },
    refusedNow: { limit: 'requests' },
  })
  expect(callers[1]).toMatchObject({ caller: 'client:o\u202Ether', refusedNow: null })
})

it('prints the table each second on a terminal, and exits with 0 on Ctrl-C', async () => {
  const { io, stdout } = createIo({ env })
  Object.assign(stdout, { isTTY: true, columns: 60, rows: 12 })
  const ended = main(['limits', 'top', '--admin', url], io as unknown as Io)
  const frames = () => stdout.text().split('\u001B[2J\u001B[H').slice(1)
  await until('it is drawn twice', () => frames().length >= 2)
  for (const frame of frames()) {
    expect(frame).toContain('acme')
    for (const line of frame.split('\n')) expect(line.length).toBeLessThanOrEqual(60)
  }
  io.emit('SIGINT')
  expect(await ended).toBe(0)
})

// The timeout is shorter than that of a response.
it('exits on Ctrl-C while it waits for a response', { timeout: 4000 }, async () => {
  const headers = { Authorization: `Bearer ${TOKEN}` }
  const body = await (await fetch(`${url}/overview`, { headers })).text()
  let requests = 0
  const slow = createServer((_, response) => {
    if (++requests === 1) response.end(body)
  })
  const { io, stdout } = createIo()
  Object.assign(stdout, { isTTY: true })
  const place = (await listenLocally(slow)).url
  const ended = main(['limits', 'top', '--admin', place], io as unknown as Io)
  await until('it waits', () => requests === 2)
  io.emit('SIGINT')
  expect(await ended).toBe(0)
  expect(stdout.text()).toContain('acme')
})

it('reports why it cannot read the callers', async () => {
  const closed = await deadUrl()
  const { url: elsewhere } = await listenLocally(createServer((_, response) => response.end('<p>')))
  for (const [place, more, words] of [
    [
      closed,
      {},
      `no response from ${closed}: ECONNREFUSED; start the gateway, or give its address with --admin`,
    ],
    [
      url,
      {},
      `The gateway at ${url} refuses the request: set ADMIN_TOKEN to your token, that of admin.tokens or admin.token. It says: Send admin.token, or your token of admin.tokens, as "Authorization: Bearer …".`,
    ],
    [
      url,
      { ADMIN_TOKEN: 'wrong' },
      `The gateway at ${url} refuses the request: set ADMIN_TOKEN to your token, that of admin.tokens or admin.token. It says: Wrong token; send admin.token, or the token of an entry of admin.tokens.`,
    ],
    [
      elsewhere,
      {},
      `The gateway at ${elsewhere} cannot do this: it returns 200, unlike an admin listener of this version.`,
    ],
  ] as const) {
    expect(await sluice(['limits', 'top', '--admin', place], { env: more })).toEqual({
      ...{ code: 1, stdout: '', stderr: `sluice: ${words}\n` },
    })
  }
  const everywhere = yaml({ data: upstream.url, admin: { host: '0:0:0:0:0:0:0:0', port: 1 } })
  const unreached = await sluice(['limits', 'top', '--config', fileOf(everywhere)])
  expect(unreached.stderr).toContain(' from http://[0:0:0:0:0:0:0:0]:1')
  const free = await sluice(['limits', 'top', '--config', fileOf(yaml({ data: upstream.url }))])
  expect(free).toMatchObject({
    code: 64,
    stderr: expect.stringContaining('Which admin port?') as string,
  })
})

itEndsWrongUsage([
  [
    ['limits', 'top', '--admin', 'localhost:9090'],
    '--admin must be a URL such as http://127.0.0.1:9090, without the token.',
  ],
  [
    ['limits', 'top', '--admin', 'http://u:hunter2@localhost:9090'],
    '--admin must be a URL such as http://127.0.0.1:9090, without the token.',
  ],
  [['limits', 'top', 'acme'], 'Unknown command or argument.'],
])
