import { describe, expect, it } from 'vitest'
import { fileOf, itEndsWrongUsage, sluice } from './run.ts'

const LIMITS = {
  accounts: '{ per: [client], limit: 200, window: 1m }',
  unattended:
    '{ per: [client, account], limit: 4, window: { calendar: day }, onOutage: deny, unless: { header: psu-ip-address, is: ip } }',
  share: '{ per: [client], limit: 100, window: 1m, counts: accounts }',
  exports: '{ per: [client], concurrent: 30 }',
  hourly: '{ per: [ip], limit: 3000, window: 1h }',
  sync: '{ per: [client], limit: 10, window: 1d, together: 10s }',
  trial: '{ per: [client], limit: 100, window: 1m, shadow: true }',
  all: '{ per: [], limit: 100000, window: 1m, onOutage: allow }',
  plan: '{ per: [user], limit: { claim: plan, default: 60, max: 1000 }, window: 1m }',
}

/** Returns a file whose first route has no limit, and the others these. */
function text(store: string, ...routes: (readonly (keyof typeof LIMITS)[])[]): string {
  const used = [...new Set(routes.flat())]
  return `
store: ${store}
upstreams: { api: { url: "http://127.0.0.1:4000" } }
tokens: { issuer: https://id.example.com/oidc, audience: https://api.example.com }
parameters: { account: uuid }
limits:
${used.map((name) => `  ${name}: ${LIMITS[name]}`).join('\n')}
${used.includes('accounts') ? 'clients: [{ id: acme, limits: { accounts: { limit: 5000 } } }]' : ''}
routes:
  - { match: "/open", upstream: api, authenticate: none }
${routes.map((limits, i) => `  - { match: "/${i}/:account", upstream: api, authenticate: bearer, limits: [${limits.join()}] }`).join('\n')}
`
}
const redis = (more = '') => `{ redis: { url: "redis://127.0.0.1:1" }${more} }`

async function outage(file: string, gateways = 50) {
  const args = ['check', '--outage', '--gateways', String(gateways), '--config', fileOf(file)]
  const [people, programs] = [await sluice(args), await sluice([...args, '--json'])]
  expect([people, programs]).toMatchObject([
    { code: 0, stderr: '' },
    { code: 0, stderr: '' },
  ])
  return { shown: people.stdout.split('\n').map((line) => line.trim()), json: JSON.parse(programs.stdout) }
}

describe('check --outage', () => {
  it('says what one gateway and all admit, with the numbers of the file', async () => {
    const { shown, json } = await outage(text(redis(', part: 10%'), ['accounts']))
    for (const line of [
      'While Redis is out of reach, with 50 gateways: store.onOutage is local, store.part is 10%.',
      '/readyz does not fail: a route can do without Redis.',
      '/open        passes: it has no limit',
      '/0/:account  each gateway counts accounts',
      'accounts: 200 calls in 1 minute, per client; onOutage: local',
      'A client whose calls stay at one gateway gets 20 of 200 calls in 1 minute.',
      'All 50 gateways together admit at most 1000 in 1 minute; 1200 in the window in which the outage begins or ends: 200 by Redis, and 1000 without it.',
      'Each gateway that starts in the outage admits up to 200 more.',
      '1 client with an own number: it is divided in the same way.',
      'Under deny: Every call gets a 503 with Retry-After, until Redis answers.',
      'A DPoP proof passes once at each gateway while it is valid, so up to 50 times, also under allow.',
    ])
      expect(shown).toContain(line)
    expect(json).toMatchObject({
      ...{ gateways: 50, part: 10, onOutage: 'local' },
      limits: [
        {
          ...{ name: 'accounts', limit: 200, mode: 'local' },
          bounds: { ofOne: 20, ofAll: 1000, oneByOne: 1384, ofStarted: 200 },
        },
      ],
    })
  })

  it('counts an outage that reaches the gateways one by one, under windows of more than two minutes', async () => {
    const { shown } = await outage(text(redis(), ['hourly', 'accounts']), 3)
    expect(shown).toContain(
      'If they lose Redis one by one, each more than two minutes after the previous one, 5500 without Redis, 8500 in all.',
    )
    expect(shown.filter((line) => line.startsWith('If they lose Redis'))).toHaveLength(1)
  })

  it('says what is different for each kind of limit', async () => {
    const kinds = ['exports', 'share', 'accounts', 'sync', 'trial', 'plan'] as const
    const costly = text(redis(), kinds).replace(
      'limits: [exports',
      'cost: { accounts: 30 }, limits: [exports',
    )
    const { shown } = await outage(costly, 10)
    for (const line of [
      'A client whose calls stay at one gateway gets 3 of 30 calls at once.',
      'All 10 gateways together admit at most 57 at once: 30 that were in progress before, and new ones.',
      'It is a share of "accounts", whose own bounds hold for all its calls.',
      'A call takes up to 30 points, and each gateway admits at least one.',
      'A client whose calls stay at one gateway gets 30 of 200 points in 1 minute.',
      'A client whose calls stay at one gateway gets 1 of 10 accesses in 1 day.',
      'A gateway that does not know an access that began at another one counts it again.',
      'It is a shadow: it never refuses.',
      '60 is the default: another number of a token is divided in the same way.',
    ])
      expect(shown).toContain(line)
  })

  it('says which routes need Redis, and for which calls', async () => {
    const routes = [['unattended', 'accounts'], ['unattended'], ['all'], ['accounts', 'all']] as const
    const local = await outage(text(redis(), ...routes))
    expect(local.json.routes.map(({ says }: { says: string }) => says)).toEqual([
      'passes: it has no limit',
      '503 for calls to which unattended applies; other calls: each gateway counts accounts',
      '503 for calls to which unattended applies; other calls: passes uncounted',
      'passes uncounted',
      'each gateway counts accounts',
    ])
    expect(local.shown).toContain(
      'Every call to which it applies gets a 503 with Retry-After, until Redis answers.',
    )
    const denied = text(redis(', onOutage: deny'), ['accounts'])
    const { shown } = await outage(denied)
    expect(shown).toContain('/0/:account  503 for every call, by accounts')
    expect(shown).toContain('A call with a DPoP proof gets a 503, unless its limits have another onOutage.')
    const all = await outage(denied.replace(/^.*"\/open".*\n/m, ''))
    expect(all.shown).toContain('/readyz returns 503: every route has a limit under onOutage: deny.')
  })

  it('divides by store.instances, also for a gateway that starts, and takes it for the number of gateways', async () => {
    const file = text(redis(', instances: 10'), ['hourly'])
    const { shown, json } = await outage(file)
    expect(shown).toContain(
      'store.instances is 10, by which the limits are divided: 50 gateways is another number.',
    )
    expect(json.limits[0].bounds).toEqual({ ofOne: 300, ofAll: 15_000, oneByOne: 15_000, ofStarted: 300 })
    const { stdout } = await sluice(['check', '--outage', '--config', fileOf(file)])
    expect(stdout).toContain('with 10 gateways')
  })

  it('promises the whole limit to callers of a single gateway', async () => {
    const { shown } = await outage(text(redis(), ['accounts']), 1)
    expect(shown).toContain('A client gets 200 calls in 1 minute, also in the outage.')
  })

  it('has nothing to say about counters in memory', async () => {
    const { stdout } = await sluice(['check', '--outage', '--config', fileOf(text('memory', ['accounts']))])
    expect(stdout).toBe('store: memory has no outage: each process counts by itself.\n')
  })

  const file = fileOf(text(redis(), ['accounts']))
  itEndsWrongUsage([
    [['check', '--outage', '--config', file], 'How many gateways? Give --gateways N.'],
    [['check', '--gateways', '3', '--config', file], '--gateways needs --outage.'],
    [
      ['check', '--outage', '--gateways', '0', '--config', file],
      '--gateways must be a whole number from 1 to 100000.',
    ],
    [
      ['check', '--outage', '--connect', '--config', file],
      '--outage cannot be combined with --connect; remove one.',
    ],
  ])
})
