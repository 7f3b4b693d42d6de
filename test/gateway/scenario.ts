import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, vi } from 'vitest'
import { parse, stringify } from 'yaml'
import { z } from 'zod'
import { FORWARD_AUTH_PROXIES, type ForwardAuthProxy } from '../../src/downstream/forward-auth.ts'
import { sluice } from '../commands/run.ts'
import {
  call,
  configOf,
  type LoggingGateway,
  startLogging,
  textOf,
  token,
  TOKENS,
  written,
} from '../helpers/gateway.ts'
import { answerIn, askedBy } from '../helpers/asked-requests.ts'
import { answered, raw } from '../helpers/raw.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** Plays the scenarios of `scenarios/`: its README.md says what their files mean. */

const values = z.record(z.string(), z.unknown())
const callSchema = z.strictObject({
  send: z
    .string()
    .regex(/^[A-Z]+ /)
    .optional(),
  bytes: z.string().optional(),
  token: z.union([values, z.string()]).optional(),
  headers: z.record(z.string(), z.union([z.string(), z.array(z.string())])).optional(),
  body: z.string().optional(),
  asks: z.union([z.literal(true), z.string().regex(/^[A-Z]+ /)]).optional(),
  to: z.literal('admin').optional(),
  answers: z.record(z.string(), z.union([z.string(), z.number(), z.array(z.string())])).optional(),
  times: z.number().optional(),
  eventually: z.literal(true).optional(),
  gets: z.union([z.number(), values]).optional(),
  forwarded: z.union([z.literal('nothing'), values]).optional(),
  logged: values.optional(),
})
const stepSchema = z.union([
  z.strictObject({ metrics: z.array(z.string()) }),
  z.strictObject({ 'log lacks': z.string() }),
  z.strictObject({ counters: values }),
  z.strictObject({ runs: z.string(), prints: z.array(z.string()).default([]) }),
  callSchema.extend({ each: z.array(callSchema).optional() }),
])
const steps = z.array(stepSchema)
const scenarioSchema = z.union([steps, z.strictObject({ configuration: values, steps })])
const fileSchema = z.strictObject({
  configuration: values,
  in: z.array(z.enum(['memory', 'Redis'])).default(['memory']),
  scenarios: z.record(z.string(), scenarioSchema),
})

type Values = z.infer<typeof values>
type SentCall = z.infer<typeof callSchema>
export type Where = 'memory' | 'Redis'

export interface Scenario {
  readonly title: string
  readonly where: Where
  /** Scenarios with the same one share a gateway. */
  readonly configuration: Values
  /** The proxy that asks, if `forwardAuth` is configured. */
  readonly asking: ForwardAuthProxy | undefined
  readonly steps: z.infer<typeof steps>
}

/** Reads the scenarios of a file. Throws an error if it has an unknown key. */
export function scenariosOf(file: string): Scenario[] {
  const { configuration: shared, in: places, scenarios } = fileSchema.parse(parse(readFileSync(file, 'utf8')))
  return places.flatMap((where) =>
    Object.entries(scenarios).flatMap(([title, own]) => {
      const steps = 'steps' in own ? own.steps : own
      const configuration = 'steps' in own ? { ...shared, ...own.configuration } : shared
      const { from } = (configuration['forwardAuth'] ?? {}) as { from?: ForwardAuthProxy | 'each' }
      if (from !== 'each') return [{ title, where, configuration, asking: from, steps }]
      return FORWARD_AUTH_PROXIES.map((asking) => {
        const forwardAuth = { port: 0, from: asking }
        return {
          ...{ title: `${title}, asked by ${asking}`, where, asking, steps },
          configuration: { ...configuration, forwardAuth },
        }
      })
    }),
  )
}

/** The upstream's next responses: their fields, `status` and `body`. */
let answers: NonNullable<SentCall['answers']> = {}
const upstream = await startUpstream((_, response) => {
  const { status = 200, body = '{"data":[]}', ...fields } = answers
  response.writeHead(Number(status), fields).end(String(body))
})
const gateways = new Map<string, Promise<LoggingGateway>>()
let scenarios = 0

/** Returns the gateway of a scenario, which it starts if no scenario before had the same configuration. */
export function gatewayOf({ configuration, where }: Scenario): Promise<LoggingGateway> {
  const key = JSON.stringify([configuration, where])
  const gateway = gateways.get(key) ?? started(configuration, where, `scenarios-${gateways.size}`)
  gateways.set(key, gateway)
  return gateway
}

/** Returns the settings of an issuer, by default those of the tokens of the scenarios. */
const issuer = (given: object | undefined): object => ({ ...TOKENS, ...given })

async function started(given: Values, where: Where, prefix: string): Promise<LoggingGateway> {
  const {
    files = {},
    listen,
    upstreams,
    tokens,
    ...others
  } = given as Partial<Record<'files' | 'listen' | 'tokens', object>> & { upstreams?: { data?: object } }
  const base = configOf({
    data: upstream.url,
    ...(listen && { listen }),
    tokens: Array.isArray(tokens) ? tokens.map(issuer) : issuer(tokens),
    ...(upstreams?.data && { upstream: upstreams.data }),
  }) as { upstreams: { data: object } }
  const all = { ...base.upstreams, ...upstreams, data: base.upstreams.data }
  const redis = where === 'Redis' ? (await sharedRedis()).url : undefined
  const store = redis === undefined ? {} : { store: { redis: { url: redis }, prefix, timeout: '10s' } }
  const main = written(textOf({ ...base, upstreams: all, ...store, ...others }))
  for (const [name, content] of Object.entries(files))
    written(stringify(content), join(dirname(main.file), name))
  return await startLogging(main)
}

/** Plays a scenario, and expects what its steps say. */
export async function play({ steps, asking }: Scenario, gateway: LoggingGateway): Promise<void> {
  const client = `client-of-${++scenarios}`
  for (const [i, step] of steps.entries()) {
    if ('metrics' in step) {
      const { body } = await call(gateway.adminPort, { path: '/metrics' })
      for (const line of step.metrics) expect(body).toContain(`${line}\n`)
    } else if ('log lacks' in step) expect(gateway.stdout()).not.toContain(step['log lacks'])
    else if ('counters' in step)
      await vi.waitFor(
        async () => {
          const { json } = await call(gateway.adminPort, { path: `/limits/client:${client}` })
          expectValues({ json: json.limits }, { json: step.counters }, `step ${i + 1}: counters`)
        },
        { timeout: 10_000 },
      )
    else if ('runs' in step) {
      const admin = `http://127.0.0.1:${gateway.adminPort}`
      const ended = await sluice([...step.runs.split(' '), '--admin', admin])
      const name = `step ${i + 1}: ${step.runs}`
      expect(ended, name).toMatchObject({ code: 0 })
      for (const text of step.prints) expect(ended.stdout, name).toMatch(new RegExp(text, 'm'))
    } else
      for (const own of step.each ?? [{}]) {
        const one = { ...step, ...own }
        const entry = step.each === undefined ? '' : ` with ${JSON.stringify(own)}`
        const name = `step ${i + 1}: ${nameOf(one)}${entry}`
        const played = () => playCall({ ...one, asking }, gateway, client, name)
        for (let time = 0; time < (one.times ?? 1); time++)
          await (one.eventually ? vi.waitFor(played, { timeout: 20_000 }) : played())
      }
  }
}

const nameOf = ({ send, asks, bytes }: SentCall) => send ?? (bytes ? JSON.stringify(bytes) : String(asks))

interface PlayedCall extends SentCall {
  readonly asking: ForwardAuthProxy | undefined
}

async function playCall(
  step: PlayedCall,
  gateway: LoggingGateway,
  client: string,
  name: string,
): Promise<void> {
  const seen = upstream.seen.length
  answers = step.answers ?? {}
  const got =
    step.bytes === undefined ? await send(step, gateway, client) : await write(step.bytes, step.gets, gateway)
  if (step.gets !== undefined)
    expectValues(got, typeof step.gets === 'number' ? { status: step.gets } : step.gets, name)
  const forwarded = upstream.seen.slice(seen).map(({ method, url, headers, rawHeaders, body }) => ({
    ...headers,
    ...repeated(rawHeaders, namesIn(step.forwarded)),
    method,
    target: url,
    body: body.toString(),
  }))
  if (step.forwarded === 'nothing') expect(forwarded, name).toEqual([])
  else if (step.forwarded !== undefined) {
    expect(forwarded.length, `${name}: requests that the upstream got`).toBe(1)
    expectValues(forwarded[0]!, step.forwarded, name)
  }
  if (step.logged === undefined) return
  const lines = () => gateway.lines().filter(({ requestId }) => requestId === got['x-request-id'])
  await until(`${name} is logged`, () => lines().length > 0)
  expectValues({ json: lines()[0]! }, { json: step.logged }, name)
}

type Response = Readonly<Record<string, unknown>>

/** Sends a request; returns the response as its fields, beside `status`, `body` and `json`. */
async function send(step: PlayedCall, gateway: LoggingGateway, client: string): Promise<Response> {
  const { token: claims, headers, body, asks } = step
  const isQuestion = typeof asks === 'string'
  const [, method, path] = /^([A-Z]+) (.*)$/s.exec(isQuestion ? asks : step.send!)!
  const bearer = typeof claims === 'object' ? await tokenOf(client, claims) : claims
  const sent = {
    method: method!,
    path: path!,
    ...(bearer !== undefined && { token: bearer }),
    ...(headers && { headers }),
    ...(body !== undefined && { body }),
  }
  const port = asks ? gateway.askPort : gateway.port
  const got = await call(
    step.to === 'admin' ? gateway.adminPort : port,
    isQuestion ? askedBy(step.asking!, sent) : sent,
  )
  const wanted = namesIn(step.gets)
  const isJson = wanted.includes('json') && /json/.test(got.headers['content-type'] ?? '') && got.body !== ''
  return {
    ...got.headers,
    ...repeated(got.rawHeaders, wanted),
    ...(isQuestion ? answerIn(got) : { status: got.status, body: got.body }),
    ...(isJson && { json: got.json }),
  }
}

const namesIn = (expected: unknown): string[] => (isMapping(expected) ? Object.keys(expected) : [])

/** Returns the values of each field, as `fields named NAME`, and the lines of several as `fields named BEGINNING*`, if that is wanted. */
function repeated(raw: readonly string[], wanted: readonly string[]): Response {
  const all: Record<string, string[]> = {}
  const lines = raw.flatMap((name, i) => (i % 2 === 0 ? [`${name}: ${raw[i + 1]!}`] : []))
  for (let i = 0; i < raw.length; i += 2)
    (all[`fields named ${raw[i]!.toLowerCase()}`] ??= []).push(raw[i + 1]!)
  for (const key of wanted.map((one) => one.toLowerCase())) {
    const [, beginning] = /^fields named (.*)\*$/.exec(key) ?? []
    if (beginning !== undefined) all[key] = lines.filter((line) => line.toLowerCase().startsWith(beginning))
  }
  return all
}

/** Writes bytes to a connection; returns the first response, all that was received as `text`, and whether the gateway `closed` the connection. */
async function write(bytes: string, gets: SentCall['gets'], gateway: LoggingGateway): Promise<Response> {
  const waitsForEnd = typeof gets === 'object' && 'closed' in gets
  const { text, closed } = await raw(
    gateway.port,
    Buffer.from(bytes, 'latin1'),
    waitsForEnd ? undefined : answered,
  )
  const [, status, head = ''] = /^HTTP\/1\.1 (\d{3}) .*\r\n([^]*?)\r\n\r\n/.exec(text) ?? []
  const named = [...head.matchAll(/^(.*?): (.*?)\r?$/gm)].map(([, name, value]) => [
    name!.toLowerCase(),
    value,
  ])
  const [, json] = /\r\n\r\n(\{.*\})$/s.exec(text) ?? []
  const parsed = json === undefined ? {} : { json: JSON.parse(json) as unknown }
  return { ...Object.fromEntries(named), status: Number(status), text, closed, ...parsed }
}

/** Tokens by their client and claims: the same claims are the same token. */
const tokens = new Map<string, Promise<string>>()
function tokenOf(client: string, claims: Values): Promise<string> {
  const key = JSON.stringify([client, claims])
  const made = tokens.get(key) ?? token(client, present(claims))
  tokens.set(key, made)
  return made
}

/** Returns claims as they are written, without those that are `absent`. */
const present = (claims: Values): Values =>
  Object.fromEntries(
    Object.entries(claims).map(([name, value]) => [name, value === 'absent' ? undefined : value]),
  )

/** Expects the named values, whose names are written in any case at the top. */
function expectValues(actual: Response, expected: Values, name: string): void {
  const lower = ([key, value]: [string, unknown]) => [
    /^[a-z]+$/i.test(key) && key in actual ? key : key.toLowerCase(),
    value,
  ]
  const wanted = Object.fromEntries(Object.entries(expected).map(lower)) as Values
  expect(picked(actual, wanted), name).toEqual(matchers(wanted, false))
}

/** Keys of an expected value that say how a text must be. */
const isOfText = (expected: Values): boolean =>
  /^(?:matches|contains|lacks)$/.test(Object.keys(expected).join())

const isMapping = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Returns the part of a value that an expected value names. */
function picked(actual: unknown, expected: unknown): unknown {
  if (Array.isArray(actual) && isMapping(expected)) {
    if (isOfText(expected)) return actual.join('\n')
    const named = (actual as { name?: string; caller?: string }[]).map(
      (one) => [one.name ?? one.caller, one] as const,
    )
    return picked(Object.fromEntries(named), expected)
  }
  if (Array.isArray(actual) && Array.isArray(expected) && actual.length === expected.length)
    return actual.map((one, i) => picked(one, expected[i]))
  if (!isMapping(actual) || !isMapping(expected) || isOfText(expected)) return actual
  return Object.fromEntries(Object.keys(expected).map((key) => [key, picked(actual[key], expected[key])]))
}

/** Whether an instant is so many seconds from now. */
function isIn(instant: string, least: number, most: number): boolean {
  const seconds = (Date.parse(instant) - Date.now()) / 1000
  return seconds >= least && seconds <= most
}

/** Returns an expected value as vitest compares it; fields are text, whatever they are written as. */
function matchers(expected: unknown, isJson: boolean): unknown {
  if (expected === 'absent') return undefined
  const [, least, most] = /^in (\d+) to (\d+) seconds$/.exec(String(expected)) ?? []
  if (most !== undefined)
    return expect.toSatisfy((instant) => isIn(String(instant), Number(least), Number(most)), String(expected))
  if (Array.isArray(expected)) return expected.map((one) => matchers(one, isJson))
  if (!isMapping(expected)) return expected
  const { matches, contains, lacks } = expected
  if (typeof matches === 'string') return expect.stringMatching(new RegExp(matches))
  if (typeof contains === 'string') return expect.stringContaining(contains)
  if (typeof lacks === 'string')
    return expect.toSatisfy((text) => typeof text === 'string' && !text.includes(lacks), `lacks ${lacks}`)
  return Object.fromEntries(
    Object.entries(expected).map(([key, value]) => {
      const isField = !isJson && typeof value === 'number' && key !== 'status'
      return [key, isField ? String(value) : matchers(value, isJson || key === 'json')]
    }),
  )
}
