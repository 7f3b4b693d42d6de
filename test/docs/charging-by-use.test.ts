import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { expect, it } from 'vitest'
import {
  call,
  type Call,
  type LoggingGateway,
  startLogging,
  token,
  TOKENS,
  written,
} from '../helpers/gateway.ts'
import { fileText } from '../helpers/repository.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Starts an example of docs/charging-by-use.md with counters in memory, and the servers of the test. */
async function startExample(name: string, data: string): Promise<LoggingGateway> {
  const values: Record<string, string> = { HOST: '127.0.0.1', PORT: '0', DATA_URL: data, JWKS: TOKENS.jwks }
  const text = fileText(`config/examples/${name}.yaml`)
    .replace(/^store: .*$/m, 'store: memory\nadmin: { port: 0 }')
    .replaceAll(/\$\{(\w+):-(.*?)\}/g, (_, variable: string, given: string) => values[variable] ?? given)
  return await startLogging(written(text))
}

/** Sends a call. Returns the response and its line of the log. */
async function send(gateway: LoggingGateway, id: string, options: Call) {
  const headers = { 'X-Request-Id': id, ...options.headers }
  const got = await call(gateway.port, { ...options, headers })
  const line = () => gateway.lines().find(({ requestId }) => requestId === id)
  await until('its line', () => line() !== undefined)
  return { got, line: line()! }
}

interface Prompt {
  readonly tokens: number
  readonly stream?: boolean
  readonly stream_options?: { readonly include_usage: boolean }
  readonly fails?: boolean
  /** The number of requests that are to be in progress before one is answered. */
  readonly together?: number
}

async function writeEvents(response: ServerResponse, events: readonly string[]): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
  for (const event of events) if (!response.write(`${event}\n\n`)) await once(response, 'drain')
  response.end()
}

const held: (() => void)[] = []

/** Answers as the APIs of two language models do, streamed or not. */
function answerAsModel(request: IncomingMessage, response: ServerResponse, body: Buffer): void {
  const prompt = JSON.parse(body.toString()) as Prompt
  const answer = request.url === '/v1/messages' ? answerAsAnthropic : answerAsOpenAi
  if (prompt.together === undefined) return void answer(response, prompt)
  held.push(() => void answer(response, prompt))
  if (held.length === prompt.together) for (const one of held.splice(0)) one()
}

async function answerAsOpenAi(response: ServerResponse, prompt: Prompt): Promise<void> {
  const { tokens, stream, stream_options: options, fails } = prompt
  const usage = { prompt_tokens: 10, completion_tokens: tokens - 10, total_tokens: tokens }
  if (fails) return void response.writeHead(400).end('{"error":{"message":"no"}}')
  const head = '"id":"chatcmpl-1","object":"chat.completion","created":1741569952,"model":"m"'
  if (!stream) {
    const choice =
      '{"index":0,"message":{"role":"assistant","content":"{\\"usage\\":{\\"total_tokens\\":1}}"}}'
    const text = `{${head},"choices":[${choice}],"usage":${JSON.stringify(usage)},"service_tier":"default"}`
    return void response.writeHead(200, { 'content-type': 'application/json' }).end(text)
  }
  const rest = options?.include_usage ? ',"usage":null' : ''
  const delta = `data: {${head},"choices":[{"index":0,"delta":{"content":"ü"}}]${rest}}`
  const last = `data: {${head},"choices":[],"usage":${JSON.stringify(usage)}}`
  await writeEvents(response, [
    ...Array<string>(500).fill(delta),
    ...(options?.include_usage ? [last] : []),
    'data: [DONE]',
  ])
}

async function answerAsAnthropic(response: ServerResponse, { tokens, stream }: Prompt): Promise<void> {
  if (!stream) {
    const text = `{"id":"msg_1","type":"message","content":[{"type":"text","text":"Hi"}],"usage":{"input_tokens":10,"output_tokens":${tokens}}}`
    return void response.writeHead(200, { 'content-type': 'application/json' }).end(text)
  }
  await writeEvents(response, [
    'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}',
    'event: ping\ndata: {"type":"ping"}',
    ...Array<string>(500).fill(
      'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"Hi"}}',
    ),
    `event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":${tokens}}}`,
    'event: message_stop\ndata: {"type":"message_stop"}',
  ])
}

it('charges calls of a language model the tokens that they used, in both formats, streamed or not', async () => {
  const upstream = await startUpstream(answerAsModel)
  const gateway = await startExample('language-model', upstream.url)
  const user = await token('app')
  const job = await token('app', { use: 'job' })
  let asked = 0
  const ask = (path: string, prompt: Prompt, as = user) =>
    send(gateway, `call-${++asked}`, { method: 'POST', path, token: as, body: JSON.stringify(prompt) })
  const openAi = '/v1/chat/completions'
  const withUsage = { stream: true, stream_options: { include_usage: true } }

  const first = await ask(openAi, { tokens: 1500 })
  expect(first.got.headers).toMatchObject({ 'x-ratelimit-limit': '100000', 'x-ratelimit-remaining': '96000' })
  expect(first.line).toMatchObject({ reserved: 4000, settled: 1500, remaining: 98_500 })
  expect((await ask(openAi, { tokens: 2000, ...withUsage })).line).toMatchObject({
    settled: 2000,
    remaining: 96_500,
  })
  expect((await ask('/v1/messages', { tokens: 300 })).line).toMatchObject({ settled: 300 })
  expect((await ask('/v1/messages', { tokens: 200, stream: true })).line).toMatchObject({
    settled: 200,
    remaining: 96_000,
  })
  // A stream without usage, and a failed call.
  expect((await ask(openAi, { tokens: 9, stream: true })).line).toMatchObject({
    reserved: 4000,
    unsettled: 'the end of the response has no usage.total_tokens',
  })
  expect((await ask(openAi, { tokens: 9, fails: true })).line).toMatchObject({
    settled: 0,
    remaining: 92_000,
  })

  // A job gets what is left of 60,000 tokens, and a call beyond its reserve is owed.
  expect((await ask(openAi, { tokens: 49_000 }, job)).line).toMatchObject({
    limit: 'jobs',
    settled: 49_000,
    remaining: 3000,
  })
  expect((await ask(openAi, { tokens: 1 }, job)).got.status).toBe(429)
  const used = await call(gateway.adminPort, { path: '/limits/client:app' })
  expect(used.json.limits).toMatchObject([
    { name: 'minute', used: 57_000 },
    { name: 'jobs', used: 57_000 },
    { name: 'day', used: 57_000, remaining: 4_943_000 },
    { name: 'streams', used: 0 },
  ])

  // Four streams at once; all limits are charged, or none.
  const streams = Array.from({ length: 4 }, () => ask(openAi, { tokens: 10, ...withUsage, together: 4 }))
  expect((await Promise.all(streams)).map(({ line }) => line['settled'])).toEqual([10, 10, 10, 10])
  const many = Array.from({ length: 6 }, () => ask(openAi, { tokens: 10, ...withUsage, together: 4 }))
  const answers = await Promise.all(many)
  expect(answers.filter(({ got }) => got.status === 429)).toHaveLength(2)
  expect(answers.filter(({ line }) => line['limit'] === 'streams')).toHaveLength(2)
})

it('charges GraphQL queries the cost that their response says, in that very response', async () => {
  const upstream = await startUpstream((_, response, body) => {
    response.writeHead(200, { 'X-Query-Cost': body.toString() }).end('{"data":{}}')
  })
  const gateway = await startExample('graphql', upstream.url)
  const query = async (id: string, body: string) =>
    (await send(gateway, id, { method: 'POST', path: '/graphql', token: await token('app'), body })).got
  expect((await query('a', '7')).headers).toMatchObject({
    'x-ratelimit-remaining': '993',
    'x-query-cost': '7',
  })
  expect((await query('b', '120.5')).headers['x-ratelimit-remaining']).toBe('872')
  expect((await query('c', '830')).headers['x-ratelimit-remaining']).toBe('42')
  expect((await query('d', '1')).status).toBe(429)
})

it('charges downloads their size, by the hour and the month', async () => {
  const upstream = await startUpstream((request, response) => {
    response.writeHead(200).end(Buffer.alloc(Number(request.url!.split('/').at(-1))))
  })
  const gateway = await startExample('downloads', upstream.url)
  const user = await token('app')
  const load = (bytes: number) => send(gateway, `load-${bytes}`, { path: `/files/${bytes}`, token: user })
  const { got, line } = await load(3 * 2 ** 20 + 1)
  expect(got.headers['x-ratelimit-remaining']).toBe(String(2 ** 20 - 10_240))
  expect(line).toMatchObject({ reserved: 10_240, settled: 3073, remaining: 2 ** 20 - 3073 })
  await load(20 * 2 ** 20)
  const { json } = await call(gateway.adminPort, { path: '/limits/client:app' })
  expect(json.limits).toMatchObject([
    { name: 'hour', used: 3073 + 20_480 },
    { name: 'month', used: 3073 + 20_480, limit: 100 * 2 ** 20 },
  ])
})

it('names in docs/charging-by-use.md each reason of an unsettled call', () => {
  const code = ['src/actual/response-reading.ts', 'src/gateway/end.ts'].map(fileText).join('\n')
  const page = fileText('docs/charging-by-use.md')
  const reasons = [
    ...code.matchAll(/['`]((?:the (?:end of the )?(?:response|caller|gateway)) [^'`$]*)/g),
  ].map(([, text]) => text!.trim())
  expect(reasons.length).toBeGreaterThan(7)
  for (const reason of reasons) expect(page).toContain(reason)
})
