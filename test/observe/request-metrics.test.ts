import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, startLogging, token } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const ROUTES = [
  {
    match: '/accounts/*',
    name: 'accounts',
    labels: { team: 'payments "A"', tier: 'gold' },
    upstream: 'data',
    authenticate: 'bearer',
    limits: ['requests'],
  },
  { match: '/open', upstream: 'identity', authenticate: 'none' },
]
const CLIENTS = { clients: [{ id: 'acme' }] }

/** Returns the counted series of requests of /metrics, without those that are 0. */
async function countedOf(adminPort: number): Promise<string[]> {
  const { body } = await call(adminPort, { path: '/metrics' })
  return body.match(/^sluice_http_requests_total\{.*\} [1-9]\d*$/gm) ?? []
}

it('requests have the name and labels of their route, their upstream, and only the clients of the file', async () => {
  const data = await startUpstream()
  const more = { metrics: { clients: 'listed' }, ...CLIENTS }
  const gateway = await startLogging({ data: data.url, limit: 1, routes: ROUTES, more })
  const { adminPort, port } = gateway
  const path = '/accounts/1'
  for (const client of ['acme', 'acme', 'unlisted', 'unlisted-2'])
    await call(port, { path, token: await token(client) })
  await call(port, { path, token: 'x.y.z' })
  await call(port, { path: '/open', headers: { 'x-client-id': 'acme' } })
  await call(port, { path: '/nowhere' })
  const calls = async () => await countedOf(adminPort)
  const labels = 'upstream="data",team="payments \\"A\\"",tier="gold"'
  const accounts = (rest: string) =>
    `sluice_http_requests_total{route="accounts",method="GET",${rest},${labels}}`
  await until('all calls are counted', async () => (await calls()).length === 6)
  expect((await calls()).toSorted()).toEqual(
    [
      `${accounts('code="200",source="upstream",client="acme"')} 1`,
      `${accounts('code="429",source="gateway",client="acme"')} 1`,
      `${accounts('code="200",source="upstream",client="other"')} 2`,
      `${accounts('code="401",source="gateway",client="other"')} 1`,
      'sluice_http_requests_total{route="/open",method="GET",code="200",source="upstream",client="other",upstream="identity"} 1',
      'sluice_http_requests_total{route="unmatched",method="any",code="404",source="gateway",upstream=""} 1',
    ].toSorted(),
  )
  const { body } = await call(adminPort, { path: '/metrics' })
  expect(body).toContain(`sluice_http_request_duration_seconds_count{route="accounts",${labels}} 5\n`)
  expect(body).toContain('sluice_upstream_duration_seconds_count{upstream="data"} 3\n')
  const refused = () => gateway.lines().find(({ status }) => status === 429)
  const open = () => gateway.lines().find(({ route }) => route === '/open')
  await until('the calls are logged', () => refused() !== undefined && open() !== undefined)
  expect(refused()).toMatchObject({
    ...{ route: '/accounts/*', routeName: 'accounts', upstream: 'data' },
    labels: { team: 'payments "A"', tier: 'gold' },
  })
  expect(open()).not.toHaveProperty('routeName')
})

it('no client is a label by default, and a reload continues the series of unchanged routes', async () => {
  const data = await startUpstream()
  const file = join(createFolder(), 'sluice.yaml')
  const gateway = await startLogging({ data: data.url, routes: ROUTES, more: CLIENTS }, file)
  const get = async () => await call(gateway.port, { path: '/accounts/1', token: await token('acme') })
  await get()
  writeFileSync(
    file,
    readFileSync(file, 'utf8').replace('tier: gold', 'tier: silver').replace('/open', '/shut'),
  )
  await gateway.running.reload('signal')
  await get()
  writeFileSync(file, readFileSync(file, 'utf8').replace('tier: silver', 'tier: gold'))
  await gateway.running.reload('signal')
  await get()
  const start =
    'sluice_http_requests_total{route="accounts",method="GET",code="200",source="upstream",upstream="data"'
  const wanted = ['gold"} 2', 'silver"} 1'].map((end) => `${start},team="payments \\"A\\"",tier="${end}`)
  await until('all calls are counted', async () => {
    const counted = await countedOf(gateway.adminPort)
    return wanted.every((one) => counted.includes(one))
  })
  expect((await countedOf(gateway.adminPort)).join('\n')).not.toContain('client=')
})
