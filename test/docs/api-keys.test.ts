import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { hashOfKey } from '../../src/authenticate/key/key-text.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, startGateway, written } from '../helpers/gateway.ts'
import { BIN } from '../helpers/process.ts'
import { codeBlocks, fileText } from '../helpers/repository.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** The section of docs/api-keys.md about Kong, APISIX and Amazon API Gateway. */
const [, section = ''] = fileText('docs/api-keys.md').split(/^## From another gateway$/m)
const before = codeBlocks(section, 'yml')[0]!
const after = codeBlocks(section, 'yaml')[0]!
const [create] = codeBlocks(section, 'sh')

interface Kong {
  readonly consumers: readonly { username: string; keyauth_credentials: readonly { key: string }[] }[]
  readonly plugins: readonly { config: { key_names: readonly string[]; hide_credentials: boolean } }[]
}
interface Apisix {
  readonly consumers: readonly {
    readonly username: string
    readonly plugins: {
      readonly 'key-auth': { readonly key: string }
      readonly 'limit-count': { readonly count: number; readonly time_window: number }
    }
  }[]
}
interface Amazon {
  readonly UsagePlan: {
    readonly Properties: {
      readonly UsagePlanName: string
      readonly Throttle: { readonly RateLimit: number }
      readonly Quota: { readonly Limit: number; readonly Period: string }
    }
  }
}
const [kong, apisix, amazon] = parseAllDocuments(before).map((one) => one.toJS() as unknown) as [
  Kong,
  Apisix,
  Amazon,
]
const OF_AMAZON = 'THE-KEY-OF-ACME-AT-AMAZON'
const keys = [
  ...kong.consumers.flatMap(({ username, keyauth_credentials }) =>
    keyauth_credentials.map(({ key }) => [username, key] as const),
  ),
  ...apisix.consumers.map(({ username, plugins }) => [username, plugins['key-auth'].key] as const),
  ['acme', OF_AMAZON] as const,
]

const folder = createFolder()
const bin = join(folder, 'bin')
mkdirSync(bin)
writeFileSync(join(bin, 'sluice'), `#!/bin/sh\nexec ${process.execPath} ${BIN} "$@"\n`)
chmodSync(join(bin, 'sluice'), 0o755)
writeFileSync(join(folder, 'sluice.yaml'), after)

/** Runs the page's command for a key of a client. */
function add(client: string, key: string): void {
  writeFileSync(join(folder, 'key.txt'), `${key}\n`)
  const env = { ...process.env, PATH: `${bin}${delimiter}${process.env['PATH']}` }
  const command = create!.replace('create acme', `create ${client}`)
  const { status, stderr } = spawnSync('sh', ['-ec', command], { cwd: folder, env, encoding: 'utf8' })
  expect(status, stderr).toBe(0)
  rmSync(join(folder, 'key.txt'))
}

it('keys of Kong, APISIX and Amazon API Gateway stay valid, with the same numbers', async () => {
  expect(keys.map(([client]) => client)).toEqual(['acme', 'acme', 'acme'])
  for (const [client, key] of keys) add(client, key)
  const file = readFileSync(join(folder, 'keys.yaml'), 'utf8')
  for (const [, key] of keys) {
    expect(file).toContain(hashOfKey(key))
    expect(file).not.toContain(key)
  }

  const settings = parse(after) as Record<string, unknown>
  const data = await startUpstream()
  const gatewayOf = (named: object) =>
    startGateway(
      written(
        JSON.stringify({
          ...settings,
          ...{ listen: { port: 0 }, admin: { port: 0 }, log: { level: 'silent' }, store: 'memory' },
          upstreams: { data: { url: data.url } },
          keys: { ...named, file: join(folder, 'keys.yaml') },
        }),
      ),
    )
  const { config } = kong.plugins[0]!
  const field = config.key_names[0]!
  expect(settings['keys']).toEqual({ field, file: 'keys.yaml' })
  const [gateway, asAmazon] = [await gatewayOf({ field }), await gatewayOf({})]

  const { count, time_window: seconds } = apisix.consumers[0]!.plugins['limit-count']
  const { Throttle, Quota, UsagePlanName } = amazon.UsagePlan.Properties
  expect([UsagePlanName, Quota.Period, seconds]).toEqual(['pro', 'MONTH', 60])
  expect(Throttle.RateLimit * seconds).toBe(count)
  const limits = { requests: count, monthly: Quota.Limit }
  expect(settings['plans']).toEqual({ [UsagePlanName]: limits })
  for (const [i, [client, key]] of keys.entries()) {
    const { status, headers } = await call(gateway.port, { path: '/', headers: { [field]: key } })
    expect([status, headers['x-ratelimit-limit'], headers['x-ratelimit-remaining']]).toEqual([
      200,
      String(count),
      String(count - i - 1),
    ])
    const got = data.seen.at(-1)!.headers
    expect([got['x-sluice-client'], field in got]).toEqual([client, !config.hide_credentials])
  }
  expect((await call(asAmazon.port, { path: '/', headers: { 'x-api-key': OF_AMAZON } })).status).toBe(200)
  for (const headers of [{ [field]: `${OF_AMAZON}-` }, { 'x-api-key': OF_AMAZON }])
    expect((await call(gateway.port, { path: '/', headers })).status).toBe(401)
  expect((await call(gateway.port, { path: `/?${field}=${OF_AMAZON}` })).status).toBe(401)
})
