import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { jsonSchema, teamJsonSchema } from '../../src/config/schema.ts'
import { loadConfig } from '../../src/config/load.ts'
import { load } from './load-text.ts'

const CONFIG = join(import.meta.dirname, '../../config')
/** The environment that `sluice sandbox` sets. */
const SANDBOX = {
  IDENTITY_URL: 'http://127.0.0.1:3000',
  DATA_URL: 'http://127.0.0.1:4000',
  ISSUER: 'http://127.0.0.1:8080/oidc',
}
const EXAMPLES = (await readdir(join(CONFIG, 'examples'))).map((file) => join('examples', file))
const files = [...(await readdir(CONFIG)).filter((file) => file.endsWith('.yaml')), ...EXAMPLES]

type Json = z.core.JSONSchema.BaseSchema

function keysOf({ properties = {}, items, additionalProperties, anyOf = [] }: Json): readonly string[] {
  const inner = [...Object.values(properties), items, additionalProperties, ...anyOf]
  const deeper = inner.flatMap((one) => (typeof one === 'object' && one !== null ? keysOf(one as Json) : []))
  return [...Object.keys(properties), ...deeper]
}

describe('config/', () => {
  it('config/ has the reference and the sandbox', () => {
    expect(files).toEqual(expect.arrayContaining(['sandbox.yaml', 'sluice.yaml']))
  })

  it.each(files)('%s loads, and its first line points editors at the schema', async (name) => {
    const file = join(CONFIG, name)
    const { config } = await loadConfig({ file, env: name === 'sandbox.yaml' ? SANDBOX : {} })
    expect(config.routes.length).toBeGreaterThan(0)
    // The API behind these two checks the keys.
    const isChecked = /bursts|expensive-search/.test(name)
    const isKnown = (message: string) => isChecked && message.includes('a key that is not checked')
    expect(config.warnings.filter(({ message }) => !isKnown(message))).toEqual([])
    const schema = name.startsWith('examples') ? '../sluice.schema.json' : './sluice.schema.json'
    const [line] = (await readFile(file, 'utf8')).split('\n', 1)
    expect(line).toBe(`# yaml-language-server: $schema=${schema}`)
  })

  it('shows every key in the reference, with the default where it has one', async () => {
    const text = await readFile(join(CONFIG, 'sluice.yaml'), 'utf8')
    const absent = new Set(keysOf(jsonSchema()).filter((key) => !new RegExp(`[ {\n]${key}:`).test(text)))
    expect([...absent]).toEqual([])
  })

  it('config/ is the same with every default of the reference left out', async () => {
    const { config } = await loadConfig({ file: join(CONFIG, 'sluice.yaml'), env: {} })
    const text = await readFile(join(CONFIG, 'sluice.yaml'), 'utf8')
    const given = parse(text) as Record<string, Record<string, unknown>>
    const { listen, admin, drainTimeout, log, ...bare } = given
    expect([listen, admin, drainTimeout, log]).not.toContain(undefined)
    bare['listen'] = { hosts: listen!['hosts'] }
    bare['store'] = { redis: given['store']!['redis'] }
    const { issuer, audience, jwks } = given['tokens']!
    bare['tokens'] = { issuer, audience, jwks }
    const { config: defaults } = await load(JSON.stringify(bare))
    const { warnings, ...rest } = config
    expect(warnings).toEqual([])
    expect(defaults).toMatchObject(rest)
  })
})

describe('sluice.schema.json', () => {
  it('sluice.schema.json is up to date (npm run schema)', async () => {
    const written = await readFile(join(CONFIG, 'sluice.schema.json'), 'utf8')
    expect(JSON.parse(written)).toEqual(JSON.parse(JSON.stringify(jsonSchema())))
    const ofTeam = await readFile(join(CONFIG, 'sluice-team.schema.json'), 'utf8')
    expect(JSON.parse(ofTeam)).toEqual(JSON.parse(JSON.stringify(teamJsonSchema())))
  })

  it('sluice.schema.json has a setting for every description', async () => {
    const settings = new Set<string>()
    const look = (inner: unknown, path: string): void => {
      if (typeof inner !== 'object') return
      const { properties = {}, items, additionalProperties, anyOf = [] } = inner as Json
      settings.add(path)
      const under = path.replace(/\[\]$/, '')
      for (const [key, value] of Object.entries(properties))
        look(value, under === '' ? key : `${under}.${key}`)
      look(additionalProperties, `${under}.*`)
      look(items, `${under}[]`)
      for (const member of anyOf) look(member, path)
    }
    look(jsonSchema(), '')
    look(teamJsonSchema(), 'team')
    const file = await readFile(join(CONFIG, 'reference/descriptions.yaml'), 'utf8')
    const described = Object.keys(parse(file) as object)
    expect(described.filter((path) => !settings.has(path))).toEqual([])
  })

  it('describes every key', () => {
    const undescribed: string[] = []
    const look = ({ properties = {}, items, additionalProperties, anyOf = [] }: Json): void => {
      for (const [key, value] of Object.entries(properties as Record<string, Json>)) {
        if (value.description === undefined) undescribed.push(key)
      }
      for (const one of [...Object.values(properties), items, additionalProperties, ...anyOf]) {
        if (typeof one === 'object' && one !== null) look(one as Json)
      }
    }
    look(jsonSchema())
    expect(undescribed).toEqual([])
  })

  const schema = z.fromJSONSchema(jsonSchema())
  const minimal = {
    store: 'memory',
    upstreams: {},
    routes: [{ match: '/*', upstream: 'a', authenticate: 'none' }],
  }

  it.each(files)('takes %s, variables and all', async (name) => {
    const value: unknown = parse(await readFile(join(CONFIG, name), 'utf8'), { merge: true })
    expect(schema.safeParse(value).error).toBeUndefined()
  })

  it('takes variables in place of numbers, words, true and false', () => {
    const redis = { url: 'redis://r', tls: { rejectUnauthorized: '${VERIFY}' } }
    const values = { listen: { port: '${PORT}' }, log: { level: '${LEVEL}' }, store: { redis } }
    expect(schema.safeParse({ ...minimal, ...values }).error).toBeUndefined()
  })

  it('accepts numbers, true and false in quotes, as the loader does, but not other texts', () => {
    const listen = { port: '8080', proxyProtocol: 'false', tls: { cert: 'a', key: 'b', minVersion: '1.2' } }
    const limits = { a: { per: ['client'], limit: '1000', window: '1s', shadow: 'true' } }
    const tracing = { endpoint: 'https://collector/v1/traces', sampleRatio: '0.5' }
    expect(schema.safeParse({ ...minimal, listen, limits, tracing }).error).toBeUndefined()
    for (const wrong of [{ port: '80a' }, { port: '' }, { proxyProtocol: 'yes' }])
      expect(schema.safeParse({ ...minimal, listen: wrong }).success).toBe(false)
  })

  it('refuses what the loader refuses', () => {
    expect(schema.safeParse(minimal).success).toBe(true)
    for (const wrong of [
      { listens: {} },
      { listen: { port: 'http' } },
      { listen: { port: 70_000 } },
      { drainTimeout: 10 },
      { drainTimeout: '10' },
      { log: { level: 'loud' } },
      { clients: [{ name: 'no id' }] },
      { limits: { a: { per: ['client'], limit: 1, window: '1s', changes: [{ from: '2027-01-01' }] } } },
      { store: { redis: { url: 'redis://r', tls: 'off' } } },
      { store: 'disk' },
      { routes: [{ match: '/*', upstream: 'a' }] },
      { limits: { 'Per Minute': { per: ['client'], limit: 1, window: '1s' } } },
    ]) {
      expect(schema.safeParse({ ...minimal, ...wrong }).success, JSON.stringify(wrong)).toBe(false)
    }
  })
})
