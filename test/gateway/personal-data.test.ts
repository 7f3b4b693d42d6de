import { hash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { calculateJwkThumbprint, exportJWK, generateKeyPair, SignJWT } from 'jose'
import { beforeAll, describe, expect, it } from 'vitest'
import { fileOf, sluice } from '../commands/run.ts'
import { createFolder } from '../helpers/folder.ts'
import {
  call,
  type Call,
  type LoggingGateway,
  startLogging,
  token,
  untilReady,
  written,
  yaml,
} from '../helpers/gateway.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { raw } from '../helpers/raw.ts'
import { startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { handshake } from '../helpers/websocket.ts'

/** What must not be in any output: everything that identifies the person of these calls. */
const ACCOUNT = 'DE89370400440532013000'
const USER = 'maria.musterfrau'
const CONSENT = 'consent-7f3a9b2c'
const ADDRESS = '203.0.113.77'

/** Returns a secret value as it may be shown. */
const short = (value: string): string => `${value.slice(0, 4)}…${hash('sha256', value).slice(0, 8)}`
const digest = (value: string): string => `${value.slice(0, 4)}%E2%80%A6${hash('sha256', value)}`
const ACCOUNT_SHOWN = short(ACCOUNT.toLowerCase())

const folder = createFolder()
const redis = await startRedis({ tcp: true })
const other = await startRedis({ tcp: true })
const data = await startUpstream((request, response) => {
  if (request.url?.includes('broken')) request.socket.destroy()
  else if (!request.url?.includes('hanging')) response.end('{}')
})
const posts: string[] = []
/** A real receiver of OTLP/HTTP in JSON. */
const receiver = createServer((request, response) => {
  let body = ''
  request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk))
  request.on('end', () => {
    posts.push(body)
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
  })
})
const { url: tracing } = await listenLocally(receiver)

const settings = (log = 'ip: truncated') =>
  yaml({
    data: data.url,
    trustedProxies: ['127.0.0.1/32'],
    listen: { publicUrl: 'https://api.example.com' },
    store: { redis: { url: redis.url }, overridesFile: join(folder, 'overrides.json') },
    limits: {
      account: {
        per: ['client', 'account', 'claim:consent_id', 'user'],
        limit: 3,
        window: '1h',
        onOutage: 'deny',
      },
      user: { per: ['user'], limit: 100, window: '1h' },
      address: { per: ['ip'], limit: 100, window: '1h' },
      client: { per: ['client'], limit: 1000, window: '1h' },
    },
    routes: [
      { match: 'POST /oidc/request', upstream: 'identity', authenticate: 'par' },
      {
        match: 'GET /accounts/:account/hanging',
        upstream: 'data',
        authenticate: 'bearer',
        timeout: '100ms',
        limits: ['client', 'user'],
      },
      {
        match: 'GET /accounts/:account/socket',
        upstream: 'data',
        authenticate: 'bearer',
        upgrade: 'websocket',
        limits: ['client', 'user'],
      },
      {
        match: 'GET /accounts/:account/scoped',
        upstream: 'data',
        authenticate: 'bearer',
        scope: ['accounts'],
      },
      {
        match: 'GET /accounts/:account/balances',
        upstream: 'data',
        authenticate: 'bearer',
        limits: ['account', 'user', 'address', 'client'],
      },
      {
        match: 'GET /accounts/:account/*',
        upstream: 'data',
        authenticate: 'bearer',
        limits: ['account', 'user', 'address', 'client'],
      },
      { match: '/open/*', upstream: 'data', authenticate: 'none', limits: ['address'] },
    ],
    more: {
      parameters: {
        account: { kind: '[a-zA-Z0-9]{10,34}', secret: true },
        user: { secret: true },
        'claim:consent_id': { secret: true },
      },
      par: { issuer: 'https://identity.example.com/oidc' },
      failures: { limit: 1000, window: '1m' },
      tracing: { endpoint: tracing, sampleRatio: 1 },
    },
  }).replace('log: { level: silent }', `log: { level: debug, ${log} }`)

let gateway: LoggingGateway
let config: string
/** A token that is bound to a key, and a proof for another path with the same account. */
const keys = await generateKeyPair('ES256')
const jwk = await exportJWK(keys.publicKey)
const bound = await token('acme', { sub: USER, cnf: { jkt: await calculateJwkThumbprint(jwk) } })
const proof = await new SignJWT({
  ...{ htm: 'GET', htu: `https://api.example.com/accounts/${ACCOUNT}`, jti: 'a' },
  ath: hash('sha256', bound, 'base64url'),
})
  .setProtectedHeader({ alg: 'ES256', typ: 'dpop+jwt', jwk })
  .setIssuedAt()
  .sign(keys.privateKey)
const mine = await token('acme', { sub: USER, consent_id: CONSENT })
const ask = (path: string, more: Call = {}) =>
  call(gateway.port, {
    path,
    ...(more.headers?.['Anonymous'] === undefined && { token: mine }),
    ...more,
    headers: { 'X-Forwarded-For': ADDRESS, ...more.headers },
  })
const ANONYMOUS = { headers: { Anonymous: 'yes' } }

/** Runs a command against the gateway, and returns what it prints. */
async function run(...args: readonly string[]): Promise<string> {
  const admin = ['--admin', `http://127.0.0.1:${gateway.adminPort}`]
  const { stdout, stderr } = await sluice([...args, ...admin])
  return stdout + stderr
}

/** Returns the names and the contents of all keys. */
async function dumpRedis(): Promise<string> {
  const keys = (await redis.command('KEYS', '*')) as string[]
  const hashes = await Promise.all(
    keys.filter((key) => key.includes('~')).map((key) => redis.command('HGETALL', key).catch(() => '')),
  )
  return JSON.stringify([keys, hashes])
}

/** What each output contained, by its name. */
const outputs: Record<string, string> = {}
const statuses: number[] = []

async function drive(): Promise<void> {
  const account = `/accounts/${ACCOUNT}`
  const seen = async (path: string, more: Call = {}) => void statuses.push((await ask(path, more)).status)
  for (let i = 0; i < 4; i++) await seen(`${account}/balances`)
  await seen(`${account}/balances`, ANONYMOUS)
  await seen(`${account}/balances`, { token: `${mine}x` })
  await seen(`${account}/balances`, { token: await token('acme', { sub: USER }) })
  await seen(`${account}/scoped`)
  await seen(`${account}/balances`, {
    headers: { Authorization: `DPoP ${bound}`, DPoP: proof, Anonymous: 'yes' },
  })
  await seen(`/acounts/${ACCOUNT}`, ANONYMOUS)
  await seen(`${account}/balances`, { method: 'POST' })
  await seen(`/accounts/${ACCOUNT}-/balances`)
  await seen(`/accounts/${ACCOUNT}%2Fx/balances`)
  await seen(`/accounts/${ACCOUNT}/../balances`)
  await seen(`/accounts/${ACCOUNT};x=${USER}/balances`)
  await seen(`/accounts/${ACCOUNT}0/broken`)
  await seen(`${account}/hanging`)
  await seen(`${account}/hanging/${ACCOUNT}`)
  await seen(`${account}/scoped`, {
    headers: { Upgrade: 'websocket', Connection: 'Upgrade' },
  })
  await seen(`/open/${ACCOUNT}`)
  await seen('/oidc/request', {
    method: 'POST',
    headers: { ...ANONYMOUS.headers, 'Content-Type': 'application/x-www-form-urlencoded' },
    body: `client_id=acme&scope=openid+id:${ACCOUNT}&login_hint=${USER}`,
  })
  await raw(gateway.port, handshake(`${account}/socket`, { Authorization: `Bearer ${mine}` }), () => true)
  await raw(gateway.port, `GET ${account} HTTP/9.9\r\nX: ${ACCOUNT}\r\n\r\n`, () => true)
}

beforeAll(async () => {
  config = fileOf(settings())
  gateway = await startLogging({ file: config })
  await untilReady(gateway)
  await drive()
  const user = `user:${USER}`
  outputs['limits set'] = await run('limits', 'set', user, 'user=50', '--note', 'asked')
  outputs['limits show'] = await run('limits', 'show', user)
  outputs['limits show of the client'] = await run('limits', 'show', 'acme')
  outputs['limits show --json'] = await run('limits', 'show', user, '--json')
  outputs['limits show of a consent'] = await run('limits', 'show', `claim:consent_id=${CONSENT}`)
  outputs['limits of an unknown form'] = await run('limits', 'show', `client:acme user:${USER}`)
  outputs['limits overrides'] = await run('limits', 'overrides')
  const request = `GET /accounts/${ACCOUNT}/balances?who=${USER}`
  const caller = ['--client', 'acme', '--user', USER, '--claims', JSON.stringify({ consent_id: CONSENT })]
  outputs['explain'] = await run('explain', request, ...caller)
  outputs['explain --json'] = await run('explain', request, ...caller, '--json')
  outputs['explain of two readings'] = await run('explain', `GET /accounts/${ACCOUNT}%2Fx/balances`)
  outputs['explain of no path'] = await run('explain', `GET /accounts/${ACCOUNT}/../x`)
  outputs['explain --offline'] = (
    await sluice(['explain', request, ...caller, '--offline', '--config', config])
  ).stdout
  const file = fileOf(mine, 'jwt')
  outputs['explain --token'] = (await sluice(['explain', '--token', file, '--config', config])).stdout
  outputs['the overview'] = (await call(gateway.adminPort, { path: '/overview' })).body
  outputs['metrics'] = (await call(gateway.adminPort, { path: '/metrics' })).body
  outputs['Redis'] = await dumpRedis()
  await until('the file is written', () => readFileSync(join(folder, 'overrides.json'), 'utf8') !== '')
  outputs['the overrides file'] = readFileSync(join(folder, 'overrides.json'), 'utf8')
  outputs['limits reset'] = await run('limits', 'reset', user)
  await redis.kill()
  const denied = async () => (await ask(`/accounts/${ACCOUNT}1/balances`)).status === 503
  await until('a call is refused in the outage', denied)
  outputs['limits show in the outage'] = await run('limits', 'show', user)
  await gateway.close()
  outputs['the log'] = gateway.stdout()
  outputs['spans'] = posts.join('\n')
})

describe('a person whose account, user and consent are secrets', () => {
  it('gets every kind of response', () => {
    expect(statuses.slice(0, 4)).toEqual([200, 200, 200, 429])
    expect(new Set(statuses)).toEqual(new Set([200, 400, 401, 403, 404, 405, 429, 501, 502, 504]))
  })

  it('is in no output, except in the short form', () => {
    for (const [name, text] of Object.entries(outputs)) {
      expect([name, text.length > 20]).toEqual([name, true])
      for (const secret of [ACCOUNT, USER, CONSENT]) {
        const at = text.toLowerCase().indexOf(secret.toLowerCase())
        expect([name, at < 0 ? '' : text.slice(Math.max(0, at - 200), at + 100)]).toEqual([name, ''])
      }
    }
  })

  it('has its address only where limits count by it', () => {
    for (const name of ['the log', 'spans', 'metrics', 'explain'])
      expect(outputs[name]).not.toContain(ADDRESS)
    expect(outputs['the log']).toContain('"ip":"203.0.113.0/24"')
    expect(outputs['the log']).toContain('ip:203.0.113.0/24')
    expect(outputs['spans']).toContain('203.0.113.0/24')
    expect(outputs['Redis']).toContain(`{${ADDRESS}}`)
  })

  it('is shown in the short form of the same value in every place', () => {
    const path = `/accounts/${ACCOUNT_SHOWN}/balances`
    expect(outputs['the log']).toContain(`"path":"${path}"`)
    const caller = `client:acme claim:consent_id=${short(CONSENT)} user:${short(USER)}`
    expect(outputs['the log']).toContain(`"caller":"${caller}`)
    expect(outputs['spans']).toContain(path)
    expect(outputs['the log']).toContain('"cause":"accepted htu: \\"https://api.example.com/…\\"')
    expect(outputs['explain']).toContain(path)
    expect(outputs['explain']).toContain(`:account is ${ACCOUNT_SHOWN}`)
    const key = `sluice:{acme}:account:${ACCOUNT_SHOWN}:${short(CONSENT)}:${short(USER)}`
    expect(outputs['explain']).toContain(key)
    expect(outputs['limits show of the client']).toContain(key)
    expect(outputs['limits overrides']).toContain(`user:${short(USER)}`)
    expect(outputs['the overview']).toContain(`user:${short(USER)}`)
    expect(outputs['Redis']).toContain(`{acme}:account:${digest(ACCOUNT.toLowerCase())}:`)
  })
})

describe('a person who is explained by the forms in which it is shown', () => {
  beforeAll(async () => {
    const { url } = await startRedis({ tcp: true })
    gateway = await startLogging(
      written(settings().replace(redis.url, url).replace('overrides.json', 'other.json')),
    )
    await untilReady(gateway)
    await ask(`/accounts/${ACCOUNT}/balances`)
  })
  const asked = async (path: string, user: string, consent: string, ...more: readonly string[]) =>
    await run(
      'explain',
      `GET /accounts/${path}`,
      '--client',
      'acme',
      '--user',
      user,
      '--claims',
      consent,
      ...more,
    )
  const consent = (value: string) => JSON.stringify({ consent_id: value })
  /** The rows of limits, with the calls that are counted. */
  const rows = (text: string) => text.split('\n').filter((line) => /^(?:account|user) /.test(line))

  it('has the counters of the whole values', async () => {
    const whole = rows(await asked(`${ACCOUNT}/balances`, USER, consent(CONSENT)))
    expect(whole).toHaveLength(2)
    expect(whole[0]).toMatch(/^account +\d+ +[1-9]/)
    expect(rows(await asked(`${ACCOUNT}/balances`, short(USER), consent(short(CONSENT))))).toEqual(whole)
  })

  it('is refused for a form that is unknown, and for a shortened account that is not kept', async () => {
    const unknown = `${short(USER).slice(0, -8)}00000000`
    const whole = 'is shortened, and not known here; give the whole value'
    expect(await asked(`${ACCOUNT}/balances`, unknown, consent(CONSENT))).toContain(
      `"user:${unknown}" ${whole}`,
    )
    expect(await asked(`${ACCOUNT_SHOWN}/balances`, USER, consent(CONSENT))).toContain(
      `"${ACCOUNT_SHOWN}" ${whole}`,
    )
    const offline = await asked(
      `${ACCOUNT}/x`,
      short(USER),
      consent(CONSENT),
      '--offline',
      '--config',
      config,
    )
    expect(offline).toContain(`"${short(USER)}" ${whole}`)
  })
})

describe('a gateway whose callers become secrets', () => {
  const plain = (more: object) =>
    yaml({
      data: data.url,
      store: { redis: { url: other.url } },
      limits: { user: { per: ['user'], limit: 5, window: '1h' } },
      routes: [{ match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['user'] }],
      more,
    })
  const secret = { parameters: { user: { secret: true } } }

  it('keeps the overrides, and replaces their whole values at the next change', async () => {
    const file = fileOf(plain({}))
    const changing = await startLogging({ file })
    const limits = async (...args: readonly string[]): Promise<string> => {
      const admin = ['--admin', `http://127.0.0.1:${changing.adminPort}`]
      return (await sluice(['limits', ...args, ...admin])).stdout
    }
    const status = async () => (await call(changing.port, { token: mine })).status
    await limits('set', `user:${USER}`, 'user=0', '--permanent')
    expect(await status()).toBe(429)

    writeFileSync(file, plain(secret))
    await changing.running.reload('signal')
    expect(await status()).toBe(429)
    expect(await limits('overrides')).toContain(`user:${short(USER)}`)
    // The value, and the form in which the caller is shown.
    for (const written of [USER, short(USER)])
      expect(await limits('show', `user:${written}`)).toContain(`sluice:{${short(USER)}}:user`)

    const fields = async () => JSON.stringify(await other.command('HGETALL', 'sluice:{}:~overrides'))
    expect(await fields()).toContain(USER)
    await limits('set', 'user:somebody-else', 'user=1')
    expect(await fields()).not.toContain(USER)
    expect(await status()).toBe(429)

    await limits('set', `user:${short(USER)}`, 'user=default')
    expect(await status()).toBe(200)
    expect(await limits('reset', `user:${USER}`)).toContain(`Freed 1 key of user:${short(USER)}`)
    expect(await other.command('KEYS', `*${short(USER).slice(0, 4)}%*`)).toEqual([])
  })
})
