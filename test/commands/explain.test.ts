import { readFileSync } from 'node:fs'
import { beforeAll, describe, expect, it } from 'vitest'
import { call, startGateway, type TestGateway, token, yaml } from '../helpers/gateway.ts'
import { deadUrl, freePort } from '../helpers/ports.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { configFile, SYNC } from './replay/logs.ts'
import { fileOf, itEndsWrongUsage, sluice } from './run.ts'

const file = configFile(`  requests: { per: [client], limit: 10, window: 1m }\n${SYNC}`, {
  more: 'clients: [{ id: acme, name: Acme, limits: { requests: { limit: 0, until: 2026-12-01T00:00:00Z } } }]',
})

/** Explains a request by a file. */
const explain = (config: string, ...args: readonly string[]) =>
  sluice(['explain', ...args, '--config', config, '--offline'])

describe('sluice explain', () => {
  it('prints what a request gets, and why', async () => {
    const at = '2026-11-20T10:00:00Z'
    const ended = await explain(file, 'POST /sync/a%62c', '--client', 'acme', '--at', at)
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout.split('\n')).toEqual([
      'request   POST localhost/sync/a%62c  at 2026-11-20T10:00:00.000Z',
      'path      /sync/abc                  as it is matched, counted and logged',
      'route     POST /sync/:connection     routes[0], :connection is abc',
      'identify  bearer                     issuer https://identity.example.com/oidc',
      'answer    data                       http://data.internal:4000',
      'refused   now                        by the limit "requests": 0 of 0 calls are used',
      'client    acme                       Acme',
      '',
      'LIMIT     CALLS  USED  WINDOW  KIND  KEY                     BECAUSE',
      "requests  0      -     1m      live  sluice:{acme}:requests  the client's own limit of the file, until 2026-12-01T00:00:00.000Z; refuses every call; 10 from 2026-12-01T00:00:00.000Z on",
      'sync      1      -     5s      live  sluice:{acme}:sync:abc  the limit of the file',
      '',
    ])
  })

  it('prints the name and the labels of a route', async () => {
    const limits = '  requests: { per: [client], limit: 10, window: 1m }'
    const route = '  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests]'
    const more = ', name: accounts, labels: { team: payments, tier: "1" } }'
    const { stdout } = await explain(configFile(limits, { routes: route + more }), '/x')
    expect(stdout).toMatch(
      /^named +accounts +in metrics, spans and the log; labels team="payments", tier="1"$/m,
    )
  })

  it('prints the points that a call takes of a limit', async () => {
    const limits = `  requests: { per: [client], limit: 10, window: 1m }\n${SYNC}`
    const routes = `  - { match: "/:connection", upstream: data, authenticate: bearer, limits: [requests, sync], cost: { requests: 4 } }
  - { match: "/a/:connection", upstream: data, authenticate: bearer, limits: [requests, sync], cost: { sync: 0 } }`
    const flags = ['--client', 'acme', '--config', configFile(limits, { routes }), '--offline']
    const four = await sluice(['explain', '/x', ...flags])
    expect(four.stdout).toMatch(/^LIMIT +POINTS +USED /m)
    expect(four.stdout).toMatch(/^requests +10 .* the limit of the file; this call takes 4 points$/m)
    expect(four.stdout).toMatch(/^sync +1 .* the limit of the file$/m)
    const one = await sluice(['explain', '/a/x', ...flags])
    expect(one.stdout).toMatch(/^requests +10 .* the limit of the file; this call takes 1 point$/m)
    expect(one.stdout).not.toMatch(/^sync/m)
  })

  it('prints what pages of other origins get', async () => {
    const routes = `  - { match: "/none", upstream: data, authenticate: none, cors: none }
  - { match: "GET /any", upstream: data, authenticate: none, cors: { origins: ["*"] } }
  - { match: "/*", upstream: data, authenticate: none }`
    const more =
      'cors: { origins: ["https://a.example", "https://b.example"], credentials: true, maxAge: 5m }'
    const config = configFile(SYNC, { routes, more })
    const shown = async (request: string, headers = {}) =>
      /^cors +(.*)$/m.exec((await explain(config, request, '--headers', JSON.stringify(headers))).stdout)?.[1]
    const all =
      'https://a.example, https://b.example  may read the response, and send cookies; preflights get a 204, without a token or a charge, kept for 5m'
    expect(await shown('/x')).toBe(all)
    expect(await shown('/x', { Origin: 'https://b.example' })).toBe(all)
    expect(await shown('/x', { Origin: 'https://c.example' })).toMatch(
      /^https:\/\/a\.example, https:\/\/b\.example +a page of the origin in --headers is none of these: it cannot read the response$/,
    )
    const any = /^\* +may read the response; preflights get a 204, without a token or a charge, kept for 10m$/
    expect(await shown('/any', { Origin: 'https://c.example' })).toMatch(any)
    expect(await shown('/none')).toBeUndefined()
    const announces = { Origin: 'https://c.example', 'Access-Control-Request-Method': 'GET' }
    expect(await shown('OPTIONS /any', announces)).toMatch(any)
  })

  it('prints the counter of a share', async () => {
    const limits = `  requests: { per: [client], limit: 10, window: 1m }
  trial: { per: [client], limit: 5, window: 1m, counts: requests, shadow: true }
  share: { per: [client], limit: 4, window: 1m, counts: requests }`
    const routes = `  - { match: "/x", upstream: data, authenticate: bearer, limits: [requests, trial, share], cost: 2 }`
    const more = 'clients: [{ id: acme, limits: { share: { limit: 0 } } }]'
    const flags = ['--config', configFile(limits, { routes, more }), '--offline']
    const { stdout } = await sluice(['explain', '/x', '--client', 'acme', ...flags])
    expect(stdout).toMatch(/^refused +now +by the limit "share": 0 of 0 points are used$/m)
    expect(stdout).toMatch(/^requests +10 +- +1m +live +sluice:{acme}:requests +the limit of the file; this/m)
    const ofCounter = 'sluice:{acme}:requests'
    expect(stdout).toMatch(
      new RegExp(
        `^trial +5 +- +1m +shadow +${ofCounter} +the limit of the file; a share of "requests"; this`,
        'm',
      ),
    )
    expect(stdout).toMatch(
      new RegExp(`^share +0 +- +1m +live +${ofCounter} +the client's own limit of the file; a share of`, 'm'),
    )
    const json = await sluice(['explain', '/x', '--client', 'acme', ...flags, '--json'])
    expect(JSON.parse(json.stdout).limits).toMatchObject([
      {},
      { counts: 'requests' },
      { counts: 'requests', cost: 2 },
    ])
    expect(JSON.parse(json.stdout).limits[0]).not.toHaveProperty('counts')
  })

  it('prints the claims and header fields that limits read, and the limits that are left out', async () => {
    const limits = `  week: { per: [client, "claim:org", token], limit: 5, window: { calendar: week, timezone: Europe/Lisbon } }
  unattended: { per: [client, "header:X-Org"], limit: 4, window: 1h, unless: { header: psu-ip-address, is: ip } }`
    const routes = '  - { match: "/*", upstream: data, authenticate: bearer, limits: [week, unattended] }'
    const own = configFile(limits, { routes })
    const flags = ['--client', 'acme', '--config', own, '--offline']
    const { stdout } = await sluice(['explain', '/x', ...flags])
    expect(stdout).toContain(', 403 without claim:org, 400 without header:x-org')
    expect(stdout).toMatch(
      /^week .* week from monday \(Europe\/Lisbon\) +live +needs claim:org in --claims, token /m,
    )
    expect(stdout).toMatch(/^unattended .* needs header:x-org in --headers /m)
    const named = ['--headers', '{"psu-ip-address":"192.0.2.7"}', '--claims', '{"org":"a"}']
    const attended = await sluice(['explain', '/x', ...named, ...flags])
    expect(attended.stdout).toMatch(/^unattended .* left out: unless header psu-ip-address is ip$/m)
    expect(attended.stdout).toMatch(/^week .* needs token /m)
  })

  it('names the field of the API keys that a route accepts', async () => {
    const text = `store: memory
keys: { field: X-Api-Key, file: ${fileOf('[]')} }
upstreams: { data: { url: "http://127.0.0.1:9" } }
limits: { requests: { per: [client], limit: 5, window: 1m } }
routes: [{ match: "/*", upstream: data, authenticate: key, limits: [requests] }]
`
    const { stdout } = await explain(fileOf(text), '/x')
    expect(stdout).toMatch(/^identify +key +a key in X-Api-Key$/m)
    const nobody = await explain(fileOf(text), '/x', '--client', 'nobody')
    expect(nobody.stdout).toMatch(
      /^client +nobody +without settings in "clients"; it has no key, so that all its calls get a 401$/m,
    )
  })

  it('says once what limits with the same parts require', async () => {
    const limits = `  keys: { per: ["header:X-API-Key"], limit: 5, window: 1m }
  share: { per: ["header:X-API-Key"], limit: 4, window: 1m, counts: keys }`
    const routes = '  - { match: "/*", upstream: data, authenticate: none, limits: [keys, share] }'
    const { stdout } = await sluice([
      'explain',
      '/x',
      '--config',
      configFile(limits, { routes }),
      '--offline',
    ])
    expect(stdout).toMatch(/^identify +none +400 without header:x-api-key$/m)
  })

  it('says what a call without the key of an open route gets', async () => {
    const limits = '  keys: { per: ["header:X-API-Key"], limit: 5, window: 1m }'
    const routes = '  - { match: "/*", upstream: data, authenticate: none, limits: [keys] }'
    const { stdout } = await explain(configFile(limits, { routes }), '/x')
    expect(stdout).toMatch(/^identify +none +400 without header:x-api-key$/m)
  })

  it.each([[[]], [['--json']]])(
    'prints no character that moves the cursor or reverses text %j',
    async (more) => {
      const client = 'a\u007F\u009B\u202E'
      const ended = await explain(file, '/sync/a', '--client', client, ...more)
      expect(ended).toMatchObject({
        code: 0,
        stdout: expect.stringContaining(String.raw`a\u007f\u009b\u202e`),
      })
      expect(ended.stdout).not.toMatch(/[\u007F-\u009F\u202E]/)
    },
  )

  it('prints a refusal, and accepts the request as one word or two', async () => {
    const ended = await explain(file, 'POST', '/open/x', '--host', 'api.example.com')
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(ended.stdout).toContain('PASSED OVER             BECAUSE IT\n')
    expect(ended.stdout).toContain('\n/open                   matches another path\n')
    expect(ended.stdout).toContain(
      '\nrequests  10     -     1m      live  needs --client  the limit of the file\n',
    )
    const refused = await explain(file, '/a/../b')
    expect(refused.stdout).toMatch(/^request .*\nrefused +400 BadRequest +The path holds a dot segment\.\n$/)
    const ambiguous = await explain(file, 'POST', '/sync//a')
    expect(ambiguous.stdout).toMatch(/^refused +400 BadRequest +Servers could read the path as /m)
    expect(ambiguous.stdout).toMatch(/^SERVERS COULD READ IT AS +WHICH LEADS TO\n\/sync\/\/a +/m)
  })

  it('prints what a client that pushes requests must send', async () => {
    const pushing = (unknownClients: string) => `store: memory
upstreams: { d: { url: http://d } }
par: { issuer: https://id.example.com/oidc, unknownClients: ${unknownClients} }
clients:
  - { id: signs, requestObjectSigningAlg: PS256, authentication: private_key_jwt }
  - { id: plain, name: Plain, requestObjectSigningAlg: none }
routes: [{ match: POST /par, upstream: d, authenticate: par }]
`
    const described = async (client: string, unknownClients = 'forward') => {
      const ended = await explain(fileOf(pushing(unknownClients)), 'POST /par', '--client', client)
      return ended.stdout.split('\n').at(-2)
    }
    expect(await described('signs')).toMatch(
      / one of "clients", requestObjectSigningAlg: PS256, authentication: private_key_jwt$/,
    )
    expect(await described('plain')).toMatch(/ Plain, requestObjectSigningAlg: none$/)
    expect(await described('other')).toMatch(/ without settings in "clients"$/)
    expect(await described('other', 'refuse')).toMatch(/ without settings in "clients", which par refuses$/)
  })

  describe('at a running gateway', () => {
    let upstream: TestUpstream
    let gateway: TestGateway
    let started: string
    const SYNC = ['explain', 'POST /sync/abc', '--client', 'acme']
    beforeAll(async () => {
      upstream = await startUpstream()
      const settings = { data: upstream.url, limit: 3, admin: { port: await freePort() } }
      started = fileOf(yaml(settings))
      gateway = await startGateway(settings, started)
      const acme = await token('acme')
      await call(gateway.port, { method: 'POST', path: '/sync/abc', token: acme })
    })

    it('prints the override in force, and the current counts', async () => {
      const set = ['limits', 'set', 'acme', 'requests=7', '--until', '2100-01-01T00:00:00Z']
      await sluice([...set, '--config', started])
      const ended = await sluice([...SYNC, '--config', started])
      expect(ended).toMatchObject({ code: 0, stderr: '' })
      expect(ended.stdout).toMatch(
        /^requests +7 +1 +1m +live +sluice:\{acme\}:requests +an override, until 2100-\S+, set at \S+ by loopback: sent as \S+; 3 from 2100-\S+ on$/m,
      )
      expect(ended.stdout).toMatch(/^sync +1 +1 +5s +live +sluice:\{acme\}:sync:abc +the limit of the file$/m)
      expect(ended.stdout).toMatch(/^refused +now +by the limit "sync": 1 of 1 calls are used$/m)
      const later = await sluice([...SYNC, '--config', started, '--at', '2100-01-01T00:00:00Z'])
      expect(later.stdout).toMatch(/^requests +3 +- +1m +live /m)
      expect(later.stdout).not.toMatch(/^refused/m)
      const json = await sluice([...SYNC, '--admin', `http://127.0.0.1:${gateway.adminPort}`, '--json'])
      expect(JSON.parse(json.stdout)).toMatchObject({ limits: [{ limit: 7, used: 1 }, {}] })
    })

    it('warns if the file differs from the one in force; --offline explains the file', async () => {
      const changed = fileOf(readFileSync(started, 'utf8').replace('limit: 3', 'limit: 4'))
      const ended = await sluice([...SYNC, '--config', changed])
      expect(ended.stderr).toBe(
        `warning: ${changed} is not the configuration in force at http://127.0.0.1:${gateway.adminPort}: it was not reloaded or was rejected, or another gateway has that port; --offline explains the file, --admin-port names the port of its gateway\n`,
      )
      expect(ended.stdout).toMatch(/^requests +7 /m)
      expect((await sluice([...SYNC, '--config', changed, '--offline'])).stdout).toMatch(/^requests +4 +- /m)
    })

    it('shows this gateway’s part while Redis is out of reach, except for another instant', async () => {
      const store = { redis: { url: `redis://127.0.0.1:${await freePort()}` } }
      const settings = { data: upstream.url, store, admin: { port: await freePort() } }
      const file = fileOf(yaml(settings))
      await startGateway(settings, file)
      const ended = await sluice([...SYNC, '--config', file])
      expect(ended.stderr).toBe('')
      expect(ended.stdout).toMatch(
        /^requests +1000 +0 .* Redis is unavailable: this gateway admits 1000; the limit of the file$/m,
      )
      const later = await sluice([...SYNC, '--config', file, '--at', '2100-01-01T00:00:00Z'])
      expect(later.stdout).not.toContain('out of reach')
    })

    it('explains the file if no gateway answers, with a note', async () => {
      const url = await deadUrl()
      const unreachable = fileOf(
        readFileSync(started, 'utf8').replace(/port: \d+ \}\nlog/, `port: ${url.slice(17)} }\nlog`),
      )
      const ended = await sluice([...SYNC, '--config', unreachable])
      expect(ended.stderr).toBe(
        `note: no response from ${url}: ECONNREFUSED; start the gateway, or give its address with --admin; explaining only the file, without overrides and current counts\n`,
      )
      expect(ended.stdout).toMatch(/^requests +3 +- /m)
    })
  })

  itEndsWrongUsage([
    [['explain'], 'Which request? Write "[METHOD] [host]/path", such as "GET /v3/sync".'],
    [['explain', 'sync'], 'Which request? Write "[METHOD] [host]/path", such as "GET /v3/sync".'],
    [
      ['explain', '/x', '--offline'],
      'Which configuration? Give --config FILE, set SLUICE_CONFIG, or name it sluice.yaml; "sluice init" writes one.',
    ],
    [
      ['explain', '/x', '--config', 'x', '--at', '2027-01-31'],
      'The instant must be ISO 8601 with offset, like 2027-01-31T00:00:00Z.',
    ],
    [
      ['explain', '/x', '--config', 'x', '--ip', '1.2.3.999'],
      'The address must be an IP address such as 192.0.2.7 or 2001:db8::7.',
    ],
    [['explain', '/x', '--config', 'x', '--client', ''], 'Which client? Give its id.'],
    [['explain', '/x', '--nope'], 'Unknown flag --nope.'],
  ])

  it('exits with 78 if the configuration is wrong', async () => {
    expect(await explain('/nowhere', '/x')).toMatchObject({
      code: 78,
      stdout: '',
      stderr: '/nowhere: does not exist\n',
    })
  })
})
