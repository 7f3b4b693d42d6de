import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { createKeyText, hashOfKey } from '../../../src/authenticate/key/key-text.ts'
import type { Report } from '../../../src/commands/replay/replay.ts'
import { fileOf, itEndsWrongUsage, sluice } from '../run.ts'
import { line, logFile } from './logs.ts'

const KEYS = fileOf(
  [
    { id: 'acme', plan: ', plan: free' },
    { id: '"big = er"', plan: ', plan: pro' },
    { id: 'idle', plan: '' },
  ]
    .map(({ id, plan }) => `- { id: ${id}, sha256: "${hashOfKey(id)}"${plan} }\n`)
    .join(''),
)
const CONFIG = fileOf(`store: memory
upstreams: { data: { url: http://data.internal:4000 } }
keys: { file: ${KEYS} }
limits:
  requests: { per: [client], limit: 60, window: 1m }
  monthly: { per: [client], limit: 100, window: { calendar: month, timezone: UTC } }
plans: { free: { requests: 4 }, pro: { requests: 2, monthly: 3 } }
clients: [{ id: own, limits: { requests: { limit: 5 } } }]
routes: [{ match: "/*", upstream: data, authenticate: key, limits: [requests, monthly] }]
`)
const CLIENTS = ['acme', 'big = er', 'globex', 'own']
/** Six calls of each client. */
const LOG = logFile(
  Array.from({ length: 6 }, (_, n) => CLIENTS.map((client) => line({ at: n * 10, client }))).flat(),
)
const ARGS = ['replay', LOG, '--config', CONFIG]

/** Replays six calls of each client, and returns the number of refused ones by client. */
async function refusedWith(...args: readonly string[]) {
  const { stdout } = await sluice([...ARGS, '--json', ...args])
  const { clients, plans } = JSON.parse(stdout) as Report
  return { plans, refused: Object.fromEntries(clients.map(({ client, refused }) => [client, refused])) }
}

describe('sluice replay --plan', () => {
  it('applies the plans of keys, and in their place those that are tried on clients', async () => {
    expect(await refusedWith()).toEqual({
      plans: [],
      refused: { acme: 2, 'big = er': 4, globex: 0, own: 1 },
    })
    const tried = await refusedWith('--plan', 'acme=pro', '--plan', 'big = er=none', '--plan', 'globex=free')
    expect(tried).toEqual({
      plans: [
        { client: 'acme', plan: 'pro', before: 'free', calls: 6 },
        { client: 'big = er', plan: null, before: 'pro', calls: 6 },
        { client: 'globex', plan: 'free', before: null, calls: 6 },
      ],
      refused: { acme: 4, 'big = er': 0, globex: 2, own: 1 },
    })
  })

  it('leaves the own limits of a client in force, as a gateway does', async () => {
    // Five a minute of its own, and three a month of the plan.
    expect((await refusedWith('--plan', 'own=free')).refused).toMatchObject({ own: 1 })
    expect((await refusedWith('--plan', 'own=pro')).refused).toMatchObject({ own: 3 })
  })

  it('lists the plans before the totals, also of a client without calls', async () => {
    const { code, stdout } = await sluice([...ARGS, '--plan', 'acme=pro', '--plan', 'idle=free'])
    expect(code).toBe(0)
    expect(stdout).toContain(
      '\n\nCLIENT  PLAN          CALLS\nacme    free -> pro   6\nidle    none -> free  0\n\n24 calls of 4 clients',
    )
  })

  itEndsWrongUsage([
    [
      [...ARGS, '--plan', 'amce=pro'],
      'Neither the logs nor the configuration have the client "amce". Did you mean "acme"?',
    ],
    [
      [...ARGS, '--plan', 'ip:192.0.2.1=pro'],
      'Neither the logs nor the configuration have the client "ip:192.0.2.1".',
    ],
    [[...ARGS, '--plan', 'acme=pre'], 'The configuration has no plan "pre". Did you mean "pro"?'],
    [[...ARGS, '--plan', 'acme=gold'], 'The configuration has no plan "gold". It has: free, pro.'],
    [[...ARGS, '--plan', 'acme=a plan'], 'The name of a plan is of letters, digits, ".", "-" and "_".'],
    [[...ARGS, '--plan', 'pro'], '--plan must be CLIENT=PLAN, such as acme=pro.'],
    [[...ARGS, '--plan', '=pro'], '--plan must be CLIENT=PLAN, such as acme=pro.'],
    [[...ARGS, '--plan', 'acme=pro', '--plan', 'acme=free'], '--plan gives "acme" two plans; remove one.'],
    [[...ARGS, '--plan', `${createKeyText()}=pro`], '--plan has a key. Give the id of its client.'],
  ])

  it('says that a configuration without plans has none', async () => {
    const config = fileOf(`store: memory
upstreams: { data: { url: http://data.internal:4000 } }
limits: { requests: { per: [ip], limit: 60, window: 1m } }
routes: [{ match: "/*", upstream: data, authenticate: none, limits: [requests] }]
`)
    const { stderr } = await sluice(['replay', LOG, '--config', config, '--plan', 'acme=pro'])
    expect(stderr).toContain('The configuration has no plan "pro". It has none.\n')
  })
})

it('replays where the file of keys and the variables are not, with --offline, and says what is not here', async () => {
  const config = fileOf(
    readFileSync(CONFIG, 'utf8')
      .replace(KEYS, 'none.yaml')
      .replace('store: memory', 'store: { redis: { url: "${REDIS}" } }'),
  )
  const args = ['replay', LOG, '--config', config]
  expect((await sluice(args)).code).toBe(78)
  const { code, stdout, stderr } = await sluice([...args, '--offline', '--json', '--plan', 'acme=free'])
  expect(code).toBe(0)
  const lines = stderr.trimEnd().split('\n')
  expect(lines).toEqual([
    expect.stringMatching(
      /^note: not here: \S+:1:\d+: store\.redis\.url: needs the environment variable REDIS/,
    ),
    expect.stringMatching(
      /^note: not here: \S+:3:\d+: keys\.file: names \S+none\.yaml, which does not exist$/,
    ),
  ])
  // Only the plan that is tried: those of keys are in the file that is not here.
  const { clients } = JSON.parse(stdout) as Report
  expect(Object.fromEntries(clients.map(({ client, refused }) => [client, refused]))).toEqual({
    acme: 2,
    'big = er': 0,
    globex: 0,
    own: 1,
  })
})

it('takes the last value of a flag that accepts one and is given twice', async () => {
  const { stdout } = await sluice([...ARGS, '--json', '--top', 'x', '--top', '1', '--json'])
  expect((JSON.parse(stdout) as Report).clients).toHaveLength(1)
})
