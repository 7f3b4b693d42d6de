import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { configurationPage } from '../../scripts/configuration-page.ts'
import { loadConfig } from '../../src/config/load.ts'
import { jsonSchema, teamJsonSchema } from '../../src/config/schema.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, startGateway, type TestGateway, token, yaml } from '../helpers/gateway.ts'
import { codeBlocks, DOCS, fileText, REPOSITORY } from '../helpers/repository.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** docs/operating.md and docs/configuration.md must be complete, and list nothing that does not exist. */
const doc = fileText('docs/operating.md')

/** Returns the rows of the tables under a heading, each as a list of cells. */
function rowsUnder(heading: string): readonly (readonly string[])[] {
  const [, section = ''] =
    new RegExp(`^#+ ${heading}\\n([\\s\\S]*?)(?=^## |(?![\\s\\S]))`, 'm').exec(doc) ?? []
  return [...section.matchAll(/^\| (`.*) \|$/gm)].map(([, row]) => row!.split(/ *(?<!\\)\| */))
}
const namesIn = (cell = ''): string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name!)
const sorted = (names: Iterable<string>): string[] => [...names].toSorted((a, b) => (a < b ? -1 : 1))

describe('docs/operating.md', () => {
  let gateway: TestGateway
  beforeAll(async () => {
    const upstream = await startUpstream()
    const store = { redis: { url: (await sharedRedis()).url }, prefix: 'docs-operating' }
    gateway = await startGateway({ data: upstream.url, store })
  })

  it('lists every metric that a gateway shows, with its type and labels', async () => {
    await call(gateway.port, { token: await token('acme') })
    let text = ''
    await until('the call is counted', async () => {
      text = (await call(gateway.adminPort, { path: '/metrics' })).body
      return text.includes('sluice_http_requests_total{')
    })
    const types = [...text.matchAll(/^# TYPE (sluice_\w+) (\w+)$/gm)].map(
      ([, name, type]) => `${name} ${type}`,
    )
    const rows = rowsUnder('Metrics')
    expect(sorted(rows.map(([name, type]) => `${namesIn(name)[0]} ${type}`))).toEqual(sorted(types))

    const labels = new Map(rows.map(([name, , labels]) => [namesIn(name)[0]!, namesIn(labels)]))
    const samples = [...text.matchAll(/^(sluice_\w+?)(?:_bucket|_sum|_count)?\{(.*)\} /gm)]
    expect(samples.length).toBeGreaterThan(10)
    for (const [, name, pairs] of samples) {
      const given = [...pairs!.matchAll(/(\w+)="/g)]
        .map(([, label]) => label!)
        .filter((label) => label !== 'le')
      expect(sorted(given), name).toEqual(sorted(labels.get(name!) ?? []))
    }
  })

  it('lists every field of the access log', () => {
    const sources = readdirSync(join(REPOSITORY, 'src/observe')).filter((name) =>
      /^(?:access|log|settlement)/.test(name),
    )
    const text = sources.map((name) => fileText(`src/observe/${name}`)).join('')
    const written = [...text.matchAll(/[{,]"(\w+)":|\btext\('(\w+)'/g)].map(([, one, other]) => one ?? other!)
    expect(sorted(rowsUnder('Access log').flatMap(([names]) => namesIn(names)))).toEqual(
      sorted(new Set(written)),
    )
  })

  it('lists every error with its status', () => {
    const [, list] = /const STATUS = \{([\s\S]*?)\n\}/.exec(fileText('src/errors.ts'))!
    const known = [...list!.matchAll(/(\w+): (\d+)/g)].map(([, code, status]) => `${code} ${status}`)
    const shown = rowsUnder('Errors').map(([code, status]) => `${namesIn(code)[0]} ${status}`)
    expect(sorted(shown)).toEqual(sorted(known))
  })

  it('lists every signal', () => {
    const text = fileText('src/commands/start.ts') + fileText('bin/sluice.ts')
    const known = new Set([...text.matchAll(/'(SIG\w+)'/g)].map(([, signal]) => signal!))
    const shown = doc.matchAll(/^\| `(SIG\w+)` \|/gm)
    expect(sorted([...shown].map(([, signal]) => signal!))).toEqual(sorted(known))
  })

  it('lists every exit code', () => {
    const known = [...fileText('src/commands/cli.ts').matchAll(/^const EX_\w+ = (\d+)$/gm)].map(
      ([, code]) => code!,
    )
    const shown = [...doc.matchAll(/^\| (\d+) \| /gm)].map(([, code]) => code!)
    expect(shown).toEqual(['0', '1', ...known])
  })

  it('lists all paths of the admin listener', async () => {
    const { body } = await call(gateway.adminPort, { path: '/nowhere' })
    const paths = body.match(/\/[a-zA-Z/]+/g)!
    expect(paths.length).toBeGreaterThan(3)
    for (const path of paths) expect(doc).toContain(`${path}\` |`)
  })
})

describe('docs/configuration.md', () => {
  it('docs/configuration.md is up to date (npm run schema)', () => {
    expect(fileText('docs/configuration.md')).toBe(configurationPage(jsonSchema(), teamJsonSchema()))
  })

  it('docs/configuration.md has every key of the reference', () => {
    const keys = new Set(
      [...fileText('docs/configuration.md').matchAll(/^\| `([^`]+)` \|/gm)].flatMap(([, path]) =>
        path!.split(/[.[\]]+/),
      ),
    )
    const schema = JSON.stringify(jsonSchema())
    const named = [...schema.matchAll(/"properties":\{"(\w+)":/g)].map(([, key]) => key!)
    for (const key of named) expect(keys, key).toContain(key)
  })
})

describe('docs/README.md', () => {
  it('docs/README.md is linked from the README, and links every other page', () => {
    expect(fileText('README.md')).toContain('(docs/README.md)')
    const list = fileText('docs/README.md')
    for (const page of DOCS.filter((page) => page !== 'docs/README.md'))
      expect(list).toContain(`(${page.replace('docs/', '')}`)
  })
})

it('the example of the file of a team is valid', async () => {
  const blocks = codeBlocks(fileText('docs/operating.md'), 'yml')
  const team = blocks.find((block) => block.includes('sluice-team.schema.json'))!
  const folder = createFolder()
  writeFileSync(join(folder, 'payments.yaml'), team)
  const limits = { api: { per: ['client'], limit: 1000, window: '1m' } }
  writeFileSync(
    join(folder, 'sluice.yaml'),
    yaml({ data: 'http://data', limits, routes: [], more: { include: 'payments.yaml' } }),
  )
  const { config } = await loadConfig({ file: join(folder, 'sluice.yaml') })
  expect(config.teams.map(({ match }) => match)).toEqual(['/payments/*'])
})
