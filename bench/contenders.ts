/** The compared processes, and the proof that each does its work. */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createKeyText } from '../src/authenticate/key/key-text.ts'
import { both, type Command, folder, freePort, nginx } from './environment.ts'
import { AUDIENCE, forge, ISSUER, jwksFile, publicKeyFile, token, type Work } from './load.ts'

export const ROOT = fileURLToPath(new URL('..', import.meta.url))
const PEERS = join(ROOT, 'bench', 'peers')

export interface Contender {
  readonly name: string
  /** The special feature of its work or its settings. */
  readonly detail?: string
  readonly start: Start
  readonly work: Work
  /** The name of the reference contender, 1.00, with the same detail if there is one; default: http-proxy. */
  readonly against?: string
  /** True if a forged token, or a wrong key, must get 401. */
  readonly authenticates?: boolean
  /** A key that is not in the work; undefined if callers have tokens. */
  readonly goodKey?: string
  /** Calls after which a client must get 429. */
  readonly limit?: number
  /** True if every call of the work must get 429. */
  readonly refuses?: boolean
  /** True if its counters in Redis persist after a round. */
  readonly keepsCounters?: boolean
  /** The CPUs it may use, as for taskset; default: `PROXY_CPU`. */
  readonly cpus?: string
  /** Requests before the first round, if the default warm-up is too short. */
  readonly warmUpRequests?: number
}

type Start = (port: number) => Promise<Command>

/** The ports of the upstream and of Redis. */
export interface Backends {
  readonly upstream: number
  readonly redis: number
}

export interface Options {
  /** Calls of a client in a window; default: 1000 in 60 seconds. */
  readonly limit?: number
  readonly windowS?: number
  readonly node?: string
  readonly nodeFlags?: readonly string[]
  /** True if a peer gets the flags of the container; default: if it gains by them. */
  readonly flagged?: boolean
  /** False for a peer that verifies each token without a cache. */
  readonly tokenCache?: boolean
}

export interface GatewayOptions extends Options {
  /** False for a route without authentication. */
  readonly authenticate?: boolean
  /** True if API keys are counted, without authentication. */
  readonly apiKeys?: boolean
  /** The file of the API keys that callers must have, in place of tokens. */
  readonly keysFile?: string
  /** Limits of each request; default: 1. */
  readonly limits?: number
  readonly routes?: number
  /** Number of clients with their own limits. */
  readonly clients?: number
  readonly store?: 'memory'
  /** The port that nginx asks whether a request may pass. */
  readonly askPort?: number
  readonly flags?: readonly string[]
  /** Sections that replace those of the configuration. */
  readonly more?: Readonly<Record<string, unknown>>
  /** The folder that holds `dist`. */
  readonly root?: string
}

/** Returns what the container gives Node.js: its flags, then the script. */
function containerArgs(root: string): string[] {
  const dockerfile = readFileSync(join(root, 'Dockerfile'), 'utf8')
  const [, ...args] = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(dockerfile)![1]!) as string[]
  return args
}

/** Sluice, as the container starts it. */
export function gateway({ upstream, redis }: Backends, options: GatewayOptions = {}): Start {
  const { limit = 1000, windowS = 60, limits = 1, routes = 1, clients = 0, apiKeys = false } = options
  const { authenticate = !apiKeys } = options
  const per = apiKeys ? 'header:x-api-key' : 'client'
  const { node = process.execPath, nodeFlags = [], flags = [], root = ROOT } = options
  const window = `${windowS}s`
  const names = Array.from({ length: limits }, (_, i) => `limit-${i}`)
  const { keysFile } = options
  const how = keysFile === undefined ? 'bearer' : 'key'
  const route = { upstream: 'data', authenticate: authenticate ? how : 'none', limits: names }
  return async (port) => {
    const file = join(folder, `sluice-${port}.yaml`)
    const config = {
      listen: { host: '127.0.0.1', port },
      admin: { port: await freePort() },
      drainTimeout: '1s',
      ...(options.askPort !== undefined && { forwardAuth: { port: options.askPort, from: 'nginx' } }),
      // An own prefix, so that contenders do not share limits.
      store: options.store ?? { redis: { url: `redis://127.0.0.1:${redis}` }, prefix: `sluice-${port}` },
      upstreams: { data: { url: `http://127.0.0.1:${upstream}` } },
      tokens: { issuer: ISSUER, audience: AUDIENCE, jwks: jwksFile },
      ...(keysFile !== undefined && { keys: { file: keysFile } }),
      clients: Array.from({ length: clients }, (_, i) => ({
        id: `client-${String(i).padStart(7, '0')}`,
        limits: { 'limit-0': { limit, window } },
      })),
      limits: Object.fromEntries(names.map((name, i) => [name, { per: [per], limit: limit + i, window }])),
      ...(apiKeys && { parameters: { [per]: '[a-z0-9-]+' } }),
      routes: [
        ...Array.from({ length: routes - 1 }, (_, i) => ({ ...route, match: `GET /service-${i}/:id` })),
        { ...route, match: '/*' },
      ],
      ...options.more,
    }
    // JSON is valid YAML.
    writeFileSync(file, JSON.stringify(config))
    return { ...started(root, file, nodeFlags, flags), command: node }
  }
}

/** Returns the command that starts Sluice with a configuration, as the container does. */
export function started(
  root: string,
  file: string,
  nodeFlags: readonly string[] = [],
  flags: readonly string[] = [],
): Command {
  const own = containerArgs(root)
  const script = join(root, own.pop()!)
  const args = [...own, ...nodeFlags, script, 'start', '--config', file, ...flags]
  return { command: process.execPath, args, env: { NODE_ENV: 'production', MALLOC_ARENA_MAX: '2' } }
}

/**
 * One of the programs under peers/. The flags of the container, on Node.js 24 and 20: processor
 * time 0.95 and 0.97 for http-proxy, 0.97 and 0.97 for flexible, 1.01 and 1.06 for fastify
 * (`npm run bench -- --rows flags`).
 */
export function nodePeer(
  name: 'http-proxy' | 'fastify' | 'flexible',
  { upstream, redis }: Backends,
  options: Options = {},
): Start {
  const { limit = 1000, windowS = 60, tokenCache = true } = options
  const { node = process.execPath, nodeFlags = [], flagged = name !== 'fastify' } = options
  const own = flagged ? containerArgs(ROOT).slice(0, -1) : []
  return async (port) => ({
    command: node,
    args: [...own, ...nodeFlags, join(PEERS, `${name}.mjs`)],
    env: {
      ...{ NODE_ENV: 'production', PORT: String(port), UPSTREAM: `http://127.0.0.1:${upstream}` },
      ...(flagged && { MALLOC_ARENA_MAX: '2' }),
      ...{ REDIS_PORT: String(redis), PUBLIC_KEY: publicKeyFile, ISSUER, AUDIENCE },
      ...{ LIMIT: String(limit), WINDOW_S: String(windowS), TOKEN_CACHE: tokenCache ? '1' : '0' },
    },
  })
}

/** nginx with peers/gateway.lua. */
export function nginxLua({ upstream, redis }: Backends, options: Options = {}): Start {
  const { limit = 1000, windowS = 60, tokenCache = true } = options
  const lua = `publicKey = "${publicKeyFile}", issuer = "${ISSUER}", audience = "${AUDIENCE}",
    redisPort = ${redis}, limit = ${limit}, windowS = ${windowS}, tokenCache = ${tokenCache}`
  return async (port) =>
    nginx(
      `lua-${port}`,
      luaModules()
        .map((module) => `load_module ${module};`)
        .join('\n'),
      `upstream data { server 127.0.0.1:${upstream}; keepalive 128; keepalive_requests 1000000000; }
  init_by_lua_block { handle = dofile("${join(PEERS, 'gateway.lua')}")({ ${lua} }) }
  server {
    listen 127.0.0.1:${port};
    location / {
      access_by_lua_block { handle() }
      proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://data;
    }
  }`,
    )
}

/** nginx with deploy/forward-auth/nginx.conf, which asks Sluice on the same CPU. */
export function nginxAsking(backends: Backends, options: GatewayOptions = {}): Start {
  return async (port) => {
    const askPort = await freePort()
    const text = readFileSync(join(ROOT, 'deploy', 'forward-auth', 'nginx.conf'), 'utf8')
      .replace('listen 8080', `listen 127.0.0.1:${port}`)
      .replace('server 127.0.0.1:8090;', `server 127.0.0.1:${askPort}; keepalive_requests 1000000000;`)
      .replace('data.internal:4000;', `127.0.0.1:${backends.upstream}; keepalive_requests 1000000000;`)
      .replace(/access_log .*/, '')
    const http = text.slice(text.indexOf('http {') + 'http {'.length, text.lastIndexOf('}'))
    const sluice = await gateway(backends, { ...options, askPort })(await freePort())
    return both(sluice, askPort, nginx(`ask-${port}`, '', http))
  }
}

function luaModules(): readonly string[] {
  const { stderr } = spawnSync('nginx', ['-V'], { encoding: 'utf8' })
  const modules = /--modules-path=(\S+)/.exec(stderr)?.[1] ?? ''
  return ['ndk_http_module.so', 'ngx_http_lua_module.so'].map((name) => join(modules, name))
}

/** Installs the peers on first use. Returns the unavailable peers with the reason. */
export function installPeers(): Map<string, string> {
  const absent = new Map<string, string>()
  const changedAt = (...file: string[]): number =>
    statSync(join(PEERS, ...file), { throwIfNoEntry: false })?.mtimeMs ?? 0
  if (changedAt('node_modules', '.package-lock.json') < changedAt('package-lock.json')) {
    console.error('bench: npm ci in bench/peers')
    const { status, stderr } = spawnSync('npm', ['ci', '--silent'], { cwd: PEERS, encoding: 'utf8' })
    const why = `npm ci failed: ${stderr.trim()}`
    if (status !== 0) absent.set('Fastify', why).set('rate-limiter-flexible', why)
  }
  if (!luaModules().every((file) => existsSync(file))) {
    absent.set(
      'nginx + Lua',
      'its modules are missing (Debian: apt-get install nginx-extras lua-nginx-redis)',
    )
  }
  return absent
}

/** Throws an error with the part of its work that a contender does not do. */
export async function prove(contender: Contender, port: number, { upstream }: Backends): Promise<void> {
  const { work, authenticates, limit, goodKey } = contender
  const ask = async (of: number, bearer: string): Promise<{ status: number; text: string }> => {
    const response = await fetch(`http://127.0.0.1:${of}${work.path ?? '/transactions'}`, {
      headers: goodKey === undefined ? { Authorization: `Bearer ${bearer}` } : { 'X-Api-Key': bearer },
      signal: AbortSignal.timeout(10_000),
      ...(work.body !== undefined && { method: 'POST', body: 'x'.repeat(work.body) }),
    })
    return { status: response.status, text: await response.text() }
  }
  const good = goodKey ?? (await token('RS256', 9_999_999, 0))
  const [answer, expected] = [await ask(port, good), await ask(upstream, good)]
  if (answer.status !== 200) throw new Error(`a good call gets ${answer.status}: ${answer.text}`)
  if (answer.text !== expected.text) throw new Error("the body is not the upstream's")
  if (authenticates === true) {
    const { status } = await ask(port, goodKey === undefined ? forge(good) : createKeyText())
    if (status !== 401) throw new Error(`a forged signature or a wrong key gets ${status}`)
  }
  if (limit === undefined) return
  let admitted = 1
  let status: number = answer.status
  while (status === 200 && admitted <= limit) {
    status = (await ask(port, good)).status
    if (status === 200) admitted++
  }
  // A call may count twice if Redis answered too late.
  if (status === 429 && admitted <= limit && admitted > 0.9 * limit) return
  throw new Error(`${admitted} calls are admitted of ${limit}, and the next gets ${status}`)
}
