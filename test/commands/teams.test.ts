import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, it } from 'vitest'
import { startGateway, written, yaml } from '../helpers/gateway.ts'
import { createFolder } from '../helpers/folder.ts'
import { sluice } from './run.ts'

const PAYMENTS = `prefix: /payments
upstreams: { data: { url: "http://\${PAYMENTS_HOST:-payments.internal}:4000" } }
limits: { requests: { per: [client], limit: 5, window: 1m } }
routes:
  - { match: "GET /payments/*", upstream: data, authenticate: bearer, limits: [requests] }
`
const MAIN = yaml({
  data: 'http://data.internal:4000',
  routes: [{ match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] }],
  limits: { requests: { per: ['client'], limit: 1000, window: '1m' } },
  more: { include: 'teams/*.yaml' },
})

/** Writes a main file and the file of a team, and returns the path of the main file. */
function files(payments = PAYMENTS): string {
  const folder = createFolder()
  mkdirSync(join(folder, 'teams'))
  writeFileSync(join(folder, 'sluice.yaml'), MAIN)
  writeFileSync(join(folder, 'teams/payments.yaml'), payments)
  return join(folder, 'sluice.yaml')
}
const file = files()

it('check shows the settings of each file', async () => {
  const { stdout, code } = await sluice(['check', '--config', file], { env: { PAYMENTS_HOST: 'pay' } })
  expect(code).toBe(0)
  expect(stdout).toMatch(/^# teams +\/payments\/\* by .*teams\/payments\.yaml$/m)
  expect(stdout).toMatch(/^# limits .*payments\/requests 5 \(1m, per client\)/m)
  const [, ofTeam = ''] = stdout.split('# teams/payments.yaml\n')
  expect(ofTeam).toContain('prefix: /payments\n')
  expect(ofTeam).toContain('url: http://pay:4000')
  const json = await sluice(['check', '--config', file, '--json'])
  const { teams } = JSON.parse(json.stdout) as { teams: Record<string, { limits: object }> }
  expect(Object.keys(teams)).toEqual(['payments'])
  expect(teams['payments']!.limits).toMatchObject({ requests: { limit: 5 } })
})

it('check --against compares the files of teams, too', async () => {
  const other = files(PAYMENTS.replace('limit: 5', 'limit: 4'))
  const { stdout } = await sluice(['check', '--config', file, '--against', other])
  expect(stdout.trim()).toBe('teams/payments.yaml: limits.requests.limit 4 → 5')
  expect((await sluice(['check', '--config', file, '--against', file])).stdout).toContain('No differences')
})

it('check --offline accepts unset variables of a team, but no variables of others', async () => {
  const own = files(PAYMENTS.replace(':-payments.internal', ''))
  const { code, stdout } = await sluice(['check', '--config', own, '--offline'])
  expect(code).toBe(0)
  expect(stdout).toMatch(
    /^# not here .*teams\/payments\.yaml:2:27: upstreams\.data\.url: needs the environment variable PAYMENTS_HOST/m,
  )
  expect((await sluice(['check', '--config', own])).code).toBe(78)
  const foreign = files(
    PAYMENTS.replace('PAYMENTS_HOST', 'REDIS_PASSWORD').replace(':-payments.internal', ''),
  )
  const refused = await sluice(['check', '--config', foreign, '--offline'])
  expect(refused).toMatchObject({ code: 78 })
  expect(refused.stderr).toContain('may not read the variable REDIS_PASSWORD')
})

it('explain names the team of a route, and passes over only the routes of its file', async () => {
  const gateway = await startGateway(written(MAIN, join(dirname(file), 'sluice.yaml')))
  const ask = ['explain', '--config', file, '--client', 'acme', '--admin-port', String(gateway.adminPort)]
  const { stdout, stderr } = await sluice([...ask, 'GET /payments/a'])
  expect(stderr).toBe('')
  expect(stdout).toMatch(/^route +GET \/payments\/\* +routes\[0\] of the team payments$/m)
  expect(stdout).toContain('sluice:{acme}:payments/requests')
  expect(stdout).not.toContain('PASSED OVER')
  const refused = await sluice([...ask, 'POST /payments/a'])
  expect(refused.stdout).toMatch(/^refused +405 MethodNotAllowed/m)
  expect(refused.stdout).toMatch(/^GET \/payments\/\* +allows GET, HEAD, not POST$/m)
  expect(refused.stdout).not.toMatch(/^\/\* /m)
  writeFileSync(join(dirname(file), 'teams/payments.yaml'), `${PAYMENTS}# changed\n`)
  expect((await sluice([...ask, 'GET /payments/a'])).stderr).toContain('is not the configuration in force')
  writeFileSync(join(dirname(file), 'teams/payments.yaml'), PAYMENTS)
})

it('replay counts calls by the limits of the team that owns them', async () => {
  const log = join(createFolder(), 'log')
  const line = (second: number, path: string) =>
    JSON.stringify({
      level: 'info',
      time: `2026-11-20T10:00:0${second}.000Z`,
      msg: 'request',
      requestId: 'a',
      method: 'GET',
      host: 'localhost',
      path,
      route: '/*',
      status: 200,
      client: 'acme',
      ip: '127.0.0.1',
      durationMs: 1,
    })
  writeFileSync(log, [1, 2, 3, 4, 5, 6, 7].map((second) => line(second, '/payments/a')).join('\n'))
  const { stdout } = await sluice(['replay', log, '--config', file])
  expect(stdout).toMatch(/payments\/requests/)
})

it('schema --team prints the schema of the file of a team', async () => {
  const { stdout } = await sluice(['schema', '--team'])
  expect(stdout).toBe(readFileSync('config/sluice-team.schema.json', 'utf8'))
})
