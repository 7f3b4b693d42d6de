/** The rows of the tables, with their contenders. */
import { spawnSync } from 'node:child_process'
import { gateway, nginxAsking, nginxLua, nodePeer } from './contenders.ts'
import type { Contender, GatewayOptions, Options } from './contenders.ts'
import { mintTokens, type Work } from './load.ts'
import type { Bench } from './measure.ts'

/** Several times the 10,000 tokens of the cache, so that each token was evicted when it is sent again. */
const FRESH = 120_000
const MILLION = 1_000_000

const NODE_PEERS = ['http-proxy', 'fastify', 'flexible'] as const

export interface Row {
  readonly title: string
  readonly contenders: (bench: Bench) => Promise<readonly Contender[]>
}

const reused = async (): Promise<Work> => ({ tokens: await mintTokens('RS256', 1000) })

function bare(bench: Bench, work: Work, detail?: string, options?: Options): Contender {
  const start = nodePeer('http-proxy', bench, options)
  return { name: 'http-proxy', work, start, ...(detail !== undefined && { detail }) }
}

/** Sluice that authenticates and limits to 1000 calls a minute, unless the options differ. */
function sluice(bench: Bench, work: Work, detail?: string, options: GatewayOptions = {}): Contender {
  const { authenticate = true, limits = 1, limit = 1000 } = options
  return {
    ...bare(bench, work, detail),
    ...{ name: 'Sluice', start: gateway(bench, options), authenticates: authenticate },
    // The proof of more calls takes too long.
    ...(limits > 0 && limit <= 1000 && { limit }),
  }
}

/** Returns all contenders with the same work. */
function allContenders(bench: Bench, work: Work, options: Options = {}): readonly Contender[] {
  const proved = { work, authenticates: true, limit: options.limit ?? 1000 }
  return [
    bare(bench, work),
    sluice(bench, work, undefined, options),
    { ...proved, name: 'Fastify', start: nodePeer('fastify', bench, options) },
    { ...proved, name: 'rate-limiter-flexible', start: nodePeer('flexible', bench, options) },
    { ...proved, name: 'nginx + Lua', start: nginxLua(bench, options) },
  ]
}

/** Returns Sluice with several options, and one http-proxy for comparison. */
function variants(title: string, named: Readonly<Record<string, GatewayOptions>>): Row {
  const contenders = async (bench: Bench): Promise<readonly Contender[]> => {
    const work = await reused()
    const own = Object.entries(named).map(([detail, options]) => sluice(bench, work, detail, options))
    return [bare(bench, work), ...own]
  }
  return { title, contenders }
}

/** Returns Sluice and http-proxy for each of several works. */
function works(title: string, named: Readonly<Record<string, Work>>): Row {
  const contenders = async (bench: Bench): Promise<readonly Contender[]> => {
    const common = await reused()
    return Object.entries(named).flatMap(([detail, given]) => {
      const work = { ...given, ...common }
      return [bare(bench, work, detail), sluice(bench, work, detail)]
    })
  }
  return { title, contenders }
}

/** The executable of another version of Node, from the package `node`. */
function nodeOf(version: string): string {
  const args = ['--yes', '-p', `node@${version}`, 'node', '-p', 'process.execPath']
  const { status, stdout, stderr } = spawnSync('npx', args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`npx -p node@${version} failed: ${stderr}`)
  return stdout.trim()
}

const silent: GatewayOptions = { flags: ['--log-level', 'error'] }
const open: GatewayOptions = { authenticate: false, limits: 0 }

export const ROWS: Readonly<Record<string, Row>> = {
  reused: {
    title: 'tokens reused, admitted',
    contenders: async (bench) => allContenders(bench, await reused()),
  },
  new: {
    title: 'every token new (RS256), admitted',
    contenders: async (bench) => {
      const tokens = await mintTokens('RS256', FRESH, 1000)
      return allContenders(bench, { tokens, fresh: true }, { tokenCache: false })
    },
  },
  refused: {
    title: 'refused, limit exhausted',
    contenders: async (bench) => {
      const tokens = await mintTokens('RS256', 20)
      const all = allContenders(bench, { tokens }, { limit: 1, windowS: 3600 })
      return all.map((each) => ({ ...each, keepsCounters: true, refuses: each.limit !== undefined }))
    },
  },
  identity: {
    title: 'identity route, nothing asked',
    contenders: async (bench) => [bare(bench, {}), sluice(bench, {}, undefined, open)],
  },
  ask: {
    title: 'tokens reused, nginx in front',
    contenders: async (bench) => {
      const work = await reused()
      const proved = { work, authenticates: true, limit: 1000 }
      return [
        bare(bench, work),
        sluice(bench, work),
        { ...proved, name: 'nginx asks Sluice', start: nginxAsking(bench) },
        { ...proved, name: 'nginx + Lua', start: nginxLua(bench) },
      ]
    },
  },
  node: {
    title: 'tokens reused, other versions of Node',
    contenders: async (bench) => {
      const work = await reused()
      return ['20', '22', '24'].flatMap((version) => {
        const options = { node: nodeOf(version) }
        const detail = `Node ${version}`
        return [bare(bench, work, detail, options), sluice(bench, work, detail, options)]
      })
    },
  },
  flags: {
    title: 'tokens reused, Node.js flags of the container',
    contenders: async (bench) => {
      const work = await reused()
      return NODE_PEERS.flatMap((name) =>
        [false, true].map((flagged) => ({
          ...{ name: flagged ? `${name} with flags` : name, against: name, work },
          start: nodePeer(name, bench, { flagged }),
        })),
      )
    },
  },
  body: works('bodies', {
    '64 kB answers': { path: '/64k' },
    '1 MB answers': { path: '/1m' },
    '16 kB posts': { body: 16_384 },
  }),
  fields: works('header fields', {
    '10 header fields': { fields: 10 },
    '30 header fields': { fields: 30 },
    '60 header fields': { fields: 60 },
  }),
  limits: variants('limits', {
    '1 limit': { limits: 1 },
    '2 limits': { limits: 2 },
    '3 limits': { limits: 3 },
    '4 limits': { limits: 4 },
  }),
  routes: variants('routes', {
    '10 routes': { routes: 10 },
    '100 routes': { routes: 100 },
    '1000 routes': { routes: 1000 },
    '10,000 routes': { routes: 10_000 },
  }),
  clients: variants('clients', {
    'no clients in the file': {},
    '100,000 clients in the file': { clients: 100_000 },
  }),
  million: {
    title: 'every token new (ES256)',
    contenders: async (bench) => {
      const callers = async (name: string, tokens: number, clients: number): Promise<Contender> => {
        const work = { tokens: await mintTokens('ES256', tokens, clients), fresh: true }
        const contender = sluice(bench, work, undefined, { limit: MILLION, windowS: 3600 })
        return { ...contender, name, against: '1000 clients', keepsCounters: true }
      }
      const many = await callers('a million clients', MILLION, MILLION)
      return [await callers('1000 clients', FRESH, 1000), { ...many, warmUpRequests: MILLION }]
    },
  },
  parts: variants('parts', {
    everything: {},
    'no access log': silent,
    'memory store': { store: 'memory' },
    'no limit': { limits: 0 },
    'no token, no limit': open,
    'no token, no limit, no access log': { ...open, ...silent },
  }),
}
