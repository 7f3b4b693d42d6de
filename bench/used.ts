/**
 * Measures what it costs to charge a call by a number in its response: `npm run build && npx tsx bench/used.ts
 * [--rounds N] [--body small|large|events]`. One gateway with two routes to the same bodies, one with a fixed cost (`plain`) and
 * one with `json`, in short rounds in turn; processor time of all its threads. Started as in the container; counters
 * in memory, with the access log. Prints the median of the ratios, and its bounds with 95 % confidence. Processes of
 * their own cannot be compared: the same code may take twice the time, by how garbage is collected.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { Agent, createServer, get, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { ROOT, started } from './contenders.ts'
import { folder, freePort, PROXY_CPU, serve, stop } from './environment.ts'
import { confidence, spread } from './measure.ts'
import { markdown } from './report.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '200' },
    body: { type: 'string' },
  },
})
const rounds = Number(values.rounds)
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

const port = await freePort()
const file = join(folder, 'used.yaml')
const COST = { plain: '4000', json: '{ reserve: 4000, actual: { json: usage.total_tokens } }' }
const routes = Object.entries(COST).map(
  ([name, cost]) =>
    `  - { match: "/${name}/*", upstream: data, authenticate: none, limits: [tokens], cost: ${cost} }`,
)
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
const gateway = await serve(PROXY_CPU, port, started(ROOT, file))

/** Processor time of all threads of the gateway, in microseconds. */
function cpuUs(): number {
  const tasks = `/proc/${gateway.pid}/task`
  const times = readdirSync(tasks).map((task) =>
    Number(readFileSync(`${tasks}/${task}/schedstat`, 'utf8').split(' ')[0]),
  )
  return times.reduce((sum, ns) => sum + ns / 1000, 0)
}

const agent = new Agent({ keepAlive: true, maxSockets: 8 })
const call = (path: string) =>
  new Promise<void>((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, agent }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`${path}: ${response.statusCode}`))
      response.resume().on('end', resolve)
    }).on('error', reject)
  })

/** Microseconds of processor time for a call. */
async function cost(path: string, calls: number): Promise<number> {
  const before = cpuUs()
  const sender = async () => {
    for (let i = 0; i < calls / 8; i++) await call(path)
  }
  await Promise.all(Array.from({ length: 8 }, sender))
  return (cpuUs() - before) / calls
}

/**
 * Calls in a round, and rounds before the measured ones: until all code is compiled. In the first
 * 20,000 calls of 1 kB, `json` takes 7 to 11 % more on Node 24, then 2 to 5 %.
 */
const KINDS = [
  ['1 kB of JSON', 'small', 200, 125],
  ['64 kB of JSON', 'large', 200, 60],
  [`${EVENTS} events`, 'events', 8, 5],
] as const
const percent = (ratio: number): string => `${((ratio - 1) * 100).toFixed(1)} %`
const lines: (readonly string[])[] = []
for (const [name, path, calls, warmUps] of KINDS) {
  if (values.body !== undefined && values.body !== path) continue
  const of: Record<Kind, number[]> = { plain: [], json: [] }
  for (let round = -warmUps; round < rounds; round++)
    for (const kind of kindsOf(round)) {
      const us = await cost(`/${kind}/${path}`, calls)
      if (round >= 0) of[kind].push(us)
    }
  const [plain, json] = [spread(of.plain).median, spread(of.json).median]
  const ratios = of.json.map((us, i) => us / of.plain[i]!)
  const [more, least, most] = [spread(ratios).median, ...confidence(ratios)].map(percent)
  lines.push([name, `${plain.toFixed(0)} us`, `${json.toFixed(0)} us`, `${more}, ${least} to ${most}`])
}
console.log(markdown(['body', 'fixed cost', 'json', 'more'], lines))
await stop(gateway)
process.exit(0)
