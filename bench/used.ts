/**
 * Measures what it costs to charge a call by a number in its response: `npm run build && npx tsx bench/used.ts
 * [--gateways N] [--rounds N] [--body small|large|events]`. A gateway has two routes to the same bodies, one with a
 * fixed cost (`plain`) and one with `json`, in short rounds in turn; processor time of all its threads. Started as in
 * the container; counters in memory, with the access log. Prints the medians, and of several gateways one after
 * another the least and the greatest ratio: it differs by 3 to 5 % from one process to the next, by how V8 compiles it.
 * The kinds are not compared between processes: the same code may take twice the time, by how garbage is collected.
 */
import type { ChildProcess } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { Agent, createServer, get, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { ROOT, started } from './contenders.ts'
import { folder, freePort, PROXY_CPU, serve, stop } from './environment.ts'
import { medianOf, spread } from './measure.ts'
import { markdown } from './report.ts'

const { values } = parseArgs({
  options: {
    gateways: { type: 'string', default: '7' },
    rounds: { type: 'string', default: '100' },
    body: { type: 'string' },
  },
})
type Kind = 'plain' | 'json'
/** Returns the kinds of calls in their order, which alternates. */
const kindsOf = (round: number): readonly Kind[] => (round % 2 === 0 ? ['plain', 'json'] : ['json', 'plain'])

const USAGE = '"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}'
const bodyOf = (bytes: number) => {
  const head = '{"id":"1","choices":[{"message":{"content":"'
  const rest = `"}}],${USAGE},"service_tier":"default"}`
  return `${head}${'x'.repeat(bytes - head.length - rest.length)}${rest}`
}
const EVENT = `data: {"id":"1","choices":[{"index":0,"delta":{"content":"${'x'.repeat(90)}"}}],"usage":null}\n\n`
const EVENTS = 2000

/** Writes the events one after another, as a model does, so that they come in many chunks. */
function stream(response: ServerResponse, left = EVENTS): void {
  if (left === 0) return void response.end(`data: {"choices":[],${USAGE}}\n\ndata: [DONE]\n\n`)
  response.write(EVENT)
  setImmediate(() => stream(response, left - 1))
}

const SMALL = bodyOf(1024)
const LARGE = bodyOf(64 * 1024)
const upstream = createServer(({ url = '' }, response) => {
  const type = url.endsWith('events') ? 'text/event-stream' : 'application/json'
  response.setHeader('Content-Type', type)
  if (url.endsWith('events')) stream(response)
  else response.end(url.endsWith('large') ? LARGE : SMALL)
})
const upstreamPort = await freePort()
upstream.listen(upstreamPort, '127.0.0.1')

const COST = { plain: '4000', json: '{ reserve: 4000, actual: { json: usage.total_tokens } }' }
const routes = Object.entries(COST).map(
  ([name, cost]) =>
    `  - { match: "/${name}/*", upstream: data, authenticate: none, limits: [tokens], cost: ${cost} }`,
)

/** A running gateway, and the connections to it. */
interface Gateway {
  readonly port: number
  readonly child: ChildProcess
  readonly agent: Agent
}

async function startGateway(): Promise<Gateway> {
  const port = await freePort()
  const file = join(folder, `used-${port}.yaml`)
  writeFileSync(
    file,
    `listen: { host: 127.0.0.1, port: ${port} }
admin: { port: ${await freePort()} }
store: memory
drainTimeout: 0s
upstreams: { data: { url: "http://127.0.0.1:${upstreamPort}" } }
limits: { tokens: { per: [ip], limit: 1000000000000, window: 1m } }
routes:
${routes.join('\n')}
`,
  )
  const child = await serve(PROXY_CPU, port, started(ROOT, file))
  return { port, child, agent: new Agent({ keepAlive: true, maxSockets: 8 }) }
}

/** Processor time of all threads of a gateway, in microseconds. */
function cpuUs({ child }: Gateway): number {
  const tasks = `/proc/${child.pid}/task`
  const times = readdirSync(tasks).map((task) =>
    Number(readFileSync(`${tasks}/${task}/schedstat`, 'utf8').split(' ')[0]),
  )
  return times.reduce((sum, ns) => sum + ns / 1000, 0)
}

const call = ({ port, agent }: Gateway, path: string) =>
  new Promise<void>((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, agent }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`${path}: ${response.statusCode}`))
      response.resume().on('end', resolve)
    }).on('error', reject)
  })

/** Microseconds of processor time for a call. */
async function cost(gateway: Gateway, path: string, calls: number): Promise<number> {
  const before = cpuUs(gateway)
  const sender = async () => {
    for (let i = 0; i < calls / 8; i++) await call(gateway, path)
  }
  await Promise.all(Array.from({ length: 8 }, sender))
  return (cpuUs(gateway) - before) / calls
}

/**
 * Calls in a round, and rounds before the measured ones: until all code is compiled. In the first
 * 20,000 calls of 1 kB, `json` takes 7 to 11 % more on Node 24, then 2 to 5 %.
 */
const BODIES = [
  ['1 kB of JSON', 'small', 200, 125],
  ['64 kB of JSON', 'large', 200, 60],
  [`${EVENTS} events`, 'events', 8, 5],
] as const
type Body = (typeof BODIES)[number]

/** Medians of one gateway: microseconds of a call, and the ratio of the kinds in one round. */
interface Result {
  readonly plain: number
  readonly json: number
  readonly ratio: number
}

async function compare(gateway: Gateway, [, path, calls, warmUps]: Body, rounds: number): Promise<Result> {
  const of: Record<Kind, number[]> = { plain: [], json: [] }
  for (let round = -warmUps; round < rounds; round++)
    for (const kind of kindsOf(round)) {
      const us = await cost(gateway, `/${kind}/${path}`, calls)
      if (round >= 0) of[kind].push(us)
    }
  const ratios = of.json.map((us, i) => us / of.plain[i]!)
  return { plain: medianOf(of.plain), json: medianOf(of.json), ratio: medianOf(ratios) }
}

const bodies = BODIES.filter(([, path]) => values.body === undefined || values.body === path)
const results = new Map<Body, Result[]>(bodies.map((body) => [body, []]))
for (let i = 0; i < Number(values.gateways); i++) {
  const gateway = await startGateway()
  for (const [body, all] of results) all.push(await compare(gateway, body, Number(values.rounds)))
  gateway.agent.destroy()
  await stop(gateway.child)
}

const percent = (ratio: number): string => `${((ratio - 1) * 100).toFixed(1)} %`
const microseconds = (all: readonly number[]): string => `${medianOf(all).toFixed(0)} us`
const lines = [...results].map(([[name], all]) => {
  const { median, min, max } = spread(all.map(({ ratio }) => ratio))
  const [plain, json] = [all.map(({ plain }) => plain), all.map(({ json }) => json)]
  return [
    name,
    microseconds(plain),
    microseconds(json),
    percent(median),
    `${percent(min)} to ${percent(max)}`,
  ]
})
console.log(markdown(['body', 'fixed cost', 'json', 'more', 'of one gateway'], lines))
process.exit(0)
