import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { hashOfKey } from '../../src/authenticate/key/key-text.ts'
import { loadConfig } from '../../src/config/load.ts'
import { explain } from '../../src/admin/requests/explain.ts'
import { createFolder } from '../helpers/folder.ts'
import { startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { BIN, sluice as sluiceProcess } from '../helpers/process.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { fileOf, itEndsWrongUsage, sluice } from './run.ts'

const OTHER_KINDS = 'For limits by address or API key, give --for api or --for api-keys, and only --data.'
const ISSUER = 'https://identity.example.com/oidc'
const API = 'https://api.example.com'
/** An address without a server. */
const IDENTITY = 'http://127.0.0.1:1'
const FLAGS = {
  identity: IDENTITY,
  data: 'http://127.0.0.1:2',
  issuer: ISSUER,
  audience: API,
}

const argsOf = (flags: Readonly<Record<string, string>>) =>
  Object.entries(flags).flatMap(([flag, value]) => [`--${flag}`, value])
const newFile = () => join(createFolder(), 'sluice.yaml')

async function init(flags: Readonly<Record<string, string>> = {}) {
  const file = newFile()
  const ended = await sluice(['init', ...argsOf({ ...FLAGS, ...flags }), '--output', file])
  expect(ended).toMatchObject({ code: 0, stderr: '' })
  return { file, text: readFileSync(file, 'utf8'), ...ended }
}

/** Returns a function that explains requests by the configuration written for these flags. */
async function explaining(flags: Readonly<Record<string, string>> = {}) {
  const { stdout } = await sluice(['init', ...argsOf({ ...FLAGS, ...flags }), '--output', '-'])
  const { config } = await loadConfig({ file: '-', text: stdout })
  return (request: string) => explain(config, { request }).explained
}

describe('sluice init', () => {
  it('writes a file that check accepts without a warning, and prints the next steps', async () => {
    const { file, stdout } = await init()
    expect(await sluice(['check', '--config', file, '--json'])).toMatchObject({ code: 0, stderr: '' })
    const { config } = await loadConfig({ file })
    expect(config).toMatchObject({
      warnings: [],
      listen: { hosts: ['identity.example.com', 'api.example.com'], trustedProxies: [] },
      admin: { host: '127.0.0.1' },
      store: { redis: { topology: { url: 'redis://127.0.0.1:6379' } }, onOutage: 'local' },
      tokens: [{ issuer: ISSUER, audience: [API] }],
      par: { issuer: ISSUER },
      limits: [
        { name: 'requests', per: ['client'], limit: 1000, windowMs: 60_000 },
        { name: 'sync', per: ['client', 'connection'], limit: 1, windowMs: 5000 },
      ],
    })
    for (const step of ['check', 'start']) expect(stdout).toContain(`  sluice ${step} --config ${file}`)
    expect(stdout).toContain('--connect')
  })

  it.each([
    ['POST identity.example.com/oidc/request', 'identity', 'par', []],
    ['GET identity.example.com/oidc/auth', 'identity', 'authorization', []],
    ['GET identity.example.com/oidc/certs', 'identity', 'none', []],
    ['GET api.example.com/v3/global-counterparties', 'data', 'bearer', ['requests']],
    ['GET api.example.com/v3/rate-limits', null, 'bearer', []],
    ['POST api.example.com/sync/b74f1a79:a1d4e70e', 'data', 'bearer', ['requests', 'sync']],
    ['POST api.example.com/v3/sync/b74f1a79:a1d4e70e', 'data', 'bearer', ['requests', 'sync']],
    ['GET api.example.com/v3/transactions', 'data', 'bearer', ['requests']],
  ])('routes %s to %s, with %s', async (request, upstream, authenticate, limits) => {
    const explained = await explaining()
    const { refusal, route, limits: asked } = explained(request)
    expect(refusal).toBeNull()
    expect(route).toMatchObject({ upstream, authenticate })
    expect(asked.map(({ name }) => name)).toEqual(limits)
  })

  it('refuses other hosts, and other methods at the PAR endpoint', async () => {
    const explained = await explaining()
    expect(explained('GET evil.example.com/v3/transactions').refusal).toMatchObject({ status: 400 })
    expect(explained('GET identity.example.com/oidc/request').refusal).toMatchObject({ status: 405 })
  })

  it('writes the schema to the folder of the file, whose first line names it for editors', async () => {
    const { file, text } = await init()
    expect(text).toMatch(/^# yaml-language-server: \$schema=\.\/sluice\.schema\.json\n/)
    const schema = readFileSync(join(dirname(file), 'sluice.schema.json'), 'utf8')
    expect(schema).toBe(readFileSync('config/sluice.schema.json', 'utf8'))
    expect((await sluice(['schema'])).stdout).toBe(schema)
  })

  it('replaces the schema of an older version', async () => {
    const file = newFile()
    const schema = join(dirname(file), 'sluice.schema.json')
    writeFileSync(schema, '{}')
    expect(await sluice(['init', ...argsOf(FLAGS), '--output', file])).toMatchObject({ code: 0 })
    expect(readFileSync(schema, 'utf8')).toBe(readFileSync('config/sluice.schema.json', 'utf8'))
  })

  it('overwrites nothing without --force', async () => {
    const file = newFile()
    writeFileSync(file, 'mine')
    const args = ['init', ...argsOf(FLAGS), '--output', file]
    const stderr = `sluice: ${file} exists already. Give --force to overwrite it, or another --output.\n`
    expect(await sluice(args)).toEqual({ code: 1, stdout: '', stderr })
    expect(readFileSync(file, 'utf8')).toBe('mine')
    expect(existsSync(join(dirname(file), 'sluice.schema.json'))).toBe(false)
    expect(await sluice([...args, '--force'])).toMatchObject({ code: 0 })
    expect(readFileSync(file, 'utf8')).toContain('store:')
  })

  it('creates the folder of the file, or fails before the first prompt', async () => {
    const file = join(newFile(), 'sluice.yaml')
    expect(await sluice(['init', ...argsOf(FLAGS), '--output', file])).toMatchObject({ code: 0 })
    expect(readFileSync(file, 'utf8')).toContain('store:')
    const within = join(file, 'sluice.yaml')
    expect(await sluice(['init', '--output', within], { isTTY: true })).toEqual({
      ...{ code: 1, stdout: '' },
      stderr: expect.stringMatching(/^sluice: (EEXIST|ENOTDIR): .*sluice\.yaml'\n$/) as string,
    })
  })

  it('prints why the schema cannot be written', async () => {
    const file = join(newFile(), 'x', 'schema.json')
    const { code, stderr } = await sluice(['schema', '--output', file])
    expect([code, stderr]).toEqual([1, `sluice: ENOENT: no such file or directory, open '${file}'\n`])
  })

  it('does not overwrite a file that is made while it runs', async () => {
    const file = newFile()
    const identity = await startUpstream((_, response) => {
      writeFileSync(file, 'mine')
      response.end('{}')
    })
    const ended = await sluice(['init', ...argsOf({ ...FLAGS, identity: identity.url }), '--output', file])
    expect(ended).toMatchObject({ code: 1, stderr: expect.stringContaining('EEXIST') })
    expect(readFileSync(file, 'utf8')).toBe('mine')
  })

  it('prints the paths of its files as JSON with --json', async () => {
    const file = newFile()
    const { stdout } = await sluice(['init', ...argsOf(FLAGS), '--output', file, '--json'])
    expect(JSON.parse(stdout)).toEqual({ file, schema: join(dirname(file), 'sluice.schema.json') })
  })

  it('prints only the file to standard output for -', async () => {
    const { code, stdout, stderr } = await sluice(['init', ...argsOf(FLAGS), '--output', '-'])
    expect(code).toBe(0)
    expect(stderr).toContain('sluice check --config FILE')
    expect((await loadConfig({ file: '-', text: stdout })).config.warnings).toEqual([])
  })

  it('keeps the password of Redis out of the file', async () => {
    const { file, text, stdout } = await init({ redis: 'rediss://gate:hunter2%21@redis.internal:6380/1' })
    expect(text + stdout).not.toContain('hunter2')
    expect(stdout).toContain('export REDIS_PASSWORD=')
    const { config } = await loadConfig({ file, env: { REDIS_PASSWORD: 'x' } })
    expect(config.store).toMatchObject({
      redis: { topology: { url: 'rediss://redis.internal:6380/1' }, username: 'gate', password: 'x' },
    })
  })

  it('quotes characters that YAML or variables would interpret', async () => {
    const { file } = await init({ audience: 'the "API": ${NAME} # 1', api: API })
    const { config } = await loadConfig({ file, env: {} })
    expect(config.tokens[0]!.audience).toEqual(['the "API": ${NAME} # 1'])
    expect(config.listen.hosts).toEqual(['identity.example.com', 'api.example.com'])
  })

  it.each([
    [{ audience: 'my-api', api: 'https://identity.example.com/v3' }],
    [{ audience: `${API}/v3`, api: 'http://IDENTITY.example.com:8080' }],
  ])('leaves no path of the API open on the host of the issuer, with %j', async (flags) => {
    const { file, text } = await init(flags)
    const { config } = await loadConfig({ file })
    expect(config.listen.hosts).toEqual(['identity.example.com'])
    expect(text).not.toContain('# hosts')
    const explained = await explaining(flags)
    expect(explained('identity.example.com/v3/accounts').route).toMatchObject({ authenticate: 'bearer' })
    expect(explained('api.example.com/v3/accounts').refusal).toMatchObject({ status: 400 })
  })

  it('prints commands that can be pasted, with the path of a program that is not on the PATH', async () => {
    const { stdout } = await init()
    expect(stdout).toMatch(/^ {2}sluice check /m)
    expect(stdout).not.toContain('…')
    const built = sluiceProcess(['init', ...argsOf(FLAGS), '--output', newFile()])
    expect(await built.ended()).toBe(0)
    const [check = ''] = built.stdout().match(/^ {2}\S+ check .*$/m) ?? []
    expect(check).toContain(BIN)
    expect(execFileSync('bash', ['-c', check], { encoding: 'utf8' })).toContain('is valid, with 0 warnings')
  })

  it('prints a call to the host of the API', async () => {
    const { stdout } = await init()
    const call = `  curl -H 'Host: api.example.com' -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v3/rate-limits  # TOKEN: an access token from your issuer`
    expect(stdout.trimEnd().split('\n').at(-1)).toBe(call)
  })

  it('distinguishes an API on the issuer’s host by the path of the issuer', async () => {
    const explained = await explaining({ audience: 'https://identity.example.com' })
    for (const [path, upstream] of [
      ['/v3/accounts', 'data'],
      ['/oidc/token', 'identity'],
      ['/.well-known/oauth-authorization-server/oidc', 'identity'],
    ])
      expect(explained(`identity.example.com${path}`).route).toMatchObject({ upstream })
    expect(explained('api.example.com/v3/accounts').refusal).toMatchObject({ status: 400 })
  })

  it('opens only the given requests to the API', async () => {
    const explained = await explaining({ open: 'GET /v3/status; /v3/terms' })
    const routeOf = (request: string) => explained(`GET api.example.com${request}`).route
    for (const open of ['/v3/status', '/v3/terms'])
      expect(routeOf(open)).toMatchObject({ upstream: 'data', authenticate: 'none' })
    expect(routeOf('/v3/accounts')).toMatchObject({ authenticate: 'bearer' })
  })

  it('serves only the API if the issuer is elsewhere, and finds its keys by discovery', async () => {
    const { identity: _, ...elsewhere } = FLAGS
    const file = newFile()
    const args = [...argsOf(elsewhere), '--output', file]
    expect(await sluice(['init', ...args])).toMatchObject({ code: 0, stderr: '' })
    const { config } = await loadConfig({ file })
    expect(config).toMatchObject({ listen: { hosts: ['api.example.com'] }, warnings: [] })
    expect(config.upstreams.map(({ name }) => name)).toEqual(['data'])
    expect([config.par, config.tokens[0]!.jwks]).toEqual([undefined, undefined])
    expect(config.routes.every(({ authenticate }) => authenticate === 'bearer')).toBe(true)
    const same = argsOf({ ...elsewhere, audience: ISSUER, api: ISSUER, output: '-' })
    expect(await sluice(['init', ...same])).toMatchObject({ code: 0 })
  })

  it.each([
    ['api', 'memory', ['requests']],
    ['api-keys', 'redis://redis.internal', ['requests']],
  ])('limits a service without tokens with --for %s, with counters in %s', async (kind, redis, names) => {
    const file = newFile()
    const flags = { for: kind, data: 'http://127.0.0.1:4000', redis, output: file }
    const { code, stdout, stderr } = await sluice(['init', ...argsOf(flags)])
    expect([code, stderr]).toEqual([0, ''])
    expect(stdout.includes('X-Api-Key')).toBe(kind === 'api-keys')
    const { config } = await loadConfig({ file })
    expect(config.warnings).toEqual([])
    expect(config.store === 'memory').toBe(redis === 'memory')
    expect(config.tokens).toEqual([])
    const given = kind === 'api' ? {} : { client: 'first-client' }
    const { refusal, limits } = explain(config, {
      request: 'GET any.example.com/x',
      ip: '192.0.2.1',
      ...given,
    }).explained
    expect(refusal).toBeNull()
    expect(limits.map(({ name }) => name)).toEqual(names)
  })

  it('creates a first key with --for api-keys, which it shows once, and keeps a file of keys that exists', async () => {
    const file = newFile()
    const keysFile = join(dirname(file), 'keys.yaml')
    const args = argsOf({ for: 'api-keys', data: 'http://127.0.0.1:4000', redis: 'memory', output: file })
    const { stdout } = await sluice(['init', ...args])
    const [key = ''] = /slk_[a-z2-7]{39}/.exec(stdout) ?? []
    expect(readFileSync(keysFile, 'utf8')).toBe(`- { id: first-client, sha256: "${hashOfKey(key)}" }\n`)
    const { config } = await loadConfig({ file })
    expect(config.routes).toMatchObject([{ authenticate: 'key' }])
    expect((await sluice(['init', ...args, '--force'])).stdout).not.toContain('slk_')
    expect(readFileSync(keysFile, 'utf8')).toContain(hashOfKey(key))
  })

  it('asks first which kind of service it is, and then only what such a service has', async () => {
    const file = newFile()
    const lines = ['bank', 'api', FLAGS.data, 'memory']
    const { code, stderr } = await sluice(['init', '--output', file], {
      isTTY: true,
      stdin: `${lines.join('\n')}\n`,
    })
    expect([code, stderr]).toEqual([0, expect.stringContaining('It must be open-banking, api or api-keys.')])
    expect(stderr).not.toContain('Issuer')
    expect(readFileSync(file, 'utf8')).toContain('per: [ip]')
  })

  it('prompts on a terminal for missing values, again after an invalid answer', async () => {
    const file = newFile()
    const lines = ['', 'identity.internal', IDENTITY, 'keycloak', API, 'GET /v3/status', '']
    const { code, stderr } = await sluice(
      ['init', '--output', file, '--data', FLAGS.data, '--issuer', ISSUER],
      { isTTY: true, stdin: `${lines.join('\n')}\n` },
    )
    expect(code).toBe(0)
    expect(stderr).toContain('URL of the identity backend')
    expect(stderr).toContain('It must be an http or https address')
    expect(stderr).toContain('[redis://127.0.0.1:6379]')
    expect(stderr).not.toContain('Data API')
    const { config } = await loadConfig({ file })
    expect(config.upstreams[0]!.origins).toEqual([IDENTITY])
    expect(config.tokens[0]).toMatchObject({ audience: [API], clientClaim: 'azp' })
  })

  it('prompts on a terminal for the URL of the API if the audience is not a URL', async () => {
    const file = newFile()
    const { code, stderr } = await sluice(
      ['init', '--output', file, ...argsOf({ ...FLAGS, audience: 'my-api', redis: 'redis://r' })],
      { isTTY: true, stdin: `\n\napi\n${API}/v3\n\n` },
    )
    expect(code).toBe(0)
    expect(stderr).toContain('URL at which callers reach the API')
    const { config } = await loadConfig({ file })
    expect(config.listen.hosts).toEqual(['identity.example.com', 'api.example.com'])
  })

  it('fails on a terminal before the first prompt if the file exists', async () => {
    const file = fileOf('mine')
    const ended = await sluice(['init', '--output', file], { isTTY: true, stdin: `${IDENTITY}\n` })
    const stderr = `sluice: ${file} exists already. Give --force to overwrite it, or another --output.\n`
    expect(ended).toEqual({ code: 1, stdout: '', stderr })
  })

  it('writes nothing if the input ends early', async () => {
    const file = newFile()
    const ended = await sluice(['init', '--output', file], { isTTY: true, stdin: `${IDENTITY}\n` })
    expect(ended.code).toBe(1)
    expect(ended.stderr).toContain('nothing was written')
    expect(existsSync(file)).toBe(false)
  })

  describe('finds the keys', () => {
    let backend: TestIssuer
    beforeAll(async () => {
      backend = await startIssuer({ algorithms: ['ES256'] })
    })
    const jwksOf = async (metadata: object, flags: Readonly<Record<string, string>> = {}) => {
      backend.metadata = { ...metadata }
      const { file, stdout } = await init({ identity: new URL(backend.issuer).origin, ...flags })
      return { jwks: (await loadConfig({ file })).config.tokens[0]!.jwks, stdout }
    }

    it('at the backend, which callers reach by another name', async () => {
      const { jwks, stdout } = await jwksOf({ issuer: ISSUER, jwks_uri: `${ISSUER}/keys` })
      expect(jwks).toEqual({ url: `${backend.issuer}/keys` })
      expect(stdout).not.toContain('guess')
    })

    it('at the URL of its discovery document, if that is elsewhere', async () => {
      const elsewhere = 'https://keys.example.com/jwks'
      expect((await jwksOf({ issuer: ISSUER, jwks_uri: elsewhere })).jwks).toEqual({ url: elsewhere })
    })

    it('finds the keys and the endpoints of its discovery document', async () => {
      const at = (path: string) => `https://identity.example.com/${path}`
      backend.metadata = {
        ...{ issuer: ISSUER, jwks_uri: at('keys') },
        ...{ pushed_authorization_request_endpoint: at('par'), authorization_endpoint: at('authorize') },
      }
      const { file } = await init({ identity: new URL(backend.issuer).origin })
      const { config } = await loadConfig({ file })
      expect(config.routes.slice(0, 2).map(({ match }) => match)).toEqual([
        'POST identity.example.com/par',
        'GET,POST identity.example.com/authorize',
      ])
    })

    it('finds the keys by discovery, and guesses the endpoints, if the backend has no discovery document', async () => {
      const { jwks, stdout } = await jwksOf({ issuer: 'https://other.example.com' })
      expect(jwks).toBeUndefined()
      expect(stdout).toContain('the routes of its endpoints are guesses')
    })
  })

  const SAME = 'and no path divides them: give --api another host.'
  itEndsWrongUsage([
    [
      ['init', ...argsOf({ ...FLAGS, issuer: API }), '--output', '-'],
      `The issuer and the API share api.example.com, ${SAME}`,
    ],
    [
      ['init', ...argsOf({ ...FLAGS, issuer: `${API}/V3/`, api: `${API}/v3` }), '--output', '-'],
      `The issuer and the API share api.example.com, ${SAME}`,
    ],
    [
      ['init', ...argsOf({ ...FLAGS, audience: 'my-api' }), '--output', '-'],
      'Give --api: no terminal to ask.',
    ],
    [
      ['init', '--output', '-'],
      `Give --data, --issuer, --audience, --api: no terminal to ask. ${OTHER_KINDS}`,
    ],
    [['init', '--output', '-', '--issuer', ISSUER], 'Give --data, --audience, --api: no terminal to ask.'],
    [
      ['init', ...argsOf({ ...FLAGS, data: 'http://data.internal/v3' }), '--output', '-'],
      '--data must be an http or https address that ends after the port, such as http://data.internal:4000.',
    ],
    [
      ['init', ...argsOf({ ...FLAGS, redis: 'http://r' }), '--output', '-'],
      '--redis must be redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock, or memory.',
    ],
    [
      ['init', ...argsOf({ for: 'api', data: IDENTITY, issuer: ISSUER }), '--output', '-'],
      '--issuer needs --for open-banking.',
    ],
  ])
})
