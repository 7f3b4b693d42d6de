import type { ForwardAuthProxy } from '../../../src/downstream/forward-auth.ts'
import { answerIn, askedBy } from '../../helpers/asked-requests.ts'
import { call, type LoggingGateway, token } from '../../helpers/gateway.ts'
import { answered, raw } from '../../helpers/raw.ts'
import { namesIn, type Response } from './expected.ts'
import type { SentCall, Values } from './file.ts'

export interface PlayedCall extends SentCall {
  /** The proxy that asks, if the call is a question. */
  readonly asking: ForwardAuthProxy | undefined
}

/** Sends a request. Returns `status`, `body` and `json` of the response, and its fields by their names. */
export async function send(step: PlayedCall, gateway: LoggingGateway, client: string): Promise<Response> {
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

/** Returns the values of each field, as `fields named NAME`, and the lines of several as `fields named BEGINNING*`, if that is wanted. */
export function repeated(raw: readonly string[], wanted: readonly string[]): Response {
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
export async function write(
  bytes: string,
  gets: SentCall['gets'],
  gateway: LoggingGateway,
): Promise<Response> {
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
