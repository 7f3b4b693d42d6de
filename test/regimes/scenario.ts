import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { loadConfig } from '../../src/config/load.ts'
import { createLog } from '../../src/observe/log.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import { buildService } from '../../src/process/service.ts'
import { type Clock, SYSTEM_CLOCK } from '../../src/runtime/clock.ts'
import { call, type Got } from '../helpers/gateway.ts'
import { startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

type Claims = Readonly<Record<string, unknown>>

/** A call. */
export interface Ask {
  /** With its method, unless GET. */
  readonly path: string
  /** The claims of the token, or those of each call of a step; without them, none is sent. Equal claims are in the same token. */
  readonly claims?: Claims | ((i: number) => Claims)
  readonly headers?: Readonly<Record<string, string>>
  /** The status of the backend; default 200. */
  readonly backend?: number
  /** The request id to send, and to show in the table; null to send none. */
  readonly id?: string | null
}

export interface Scenario {
  /** The regime or the recipe: the name of the file in config/examples, without its extension. */
  readonly regime: string
  readonly timezone: string
  /** The calls, by what the table says of them. */
  readonly calls: Readonly<Record<string, Ask>>
  /** Lines of the cells that `Step` names. */
  readonly steps: string
}

/** Calls at one instant, or `everyMs` apart, or all in progress at once. */
interface Step {
  /** Local time with its offset. */
  readonly at: string
  readonly name: string
  readonly ask: Ask
  readonly times: number
  readonly everyMs: number | undefined
  readonly isAtOnce: boolean
  /** The answer that is expected, as `answerOf` formats it. */
  readonly answer: string
  readonly why: string
}

/** Parses the steps of a scenario. Throws an error for a call that it does not have. */
export function stepsOf({ calls, steps }: Scenario): readonly Step[] {
  return steps
    .trim()
    .split('\n')
    .map((line) => {
      const [at = '', name = '', answer = '', why = ''] = line.split('|').map((cell) => cell.trim())
      const [, bare = name, times = 1, how = '', everyMs] =
        /^(.*), (\d+) (times|at once)(?:, (\d+) ms apart)?$/.exec(name) ?? []
      const ask = calls[bare]
      if (ask === undefined) throw new Error(`the scenario has no call "${bare}"`)
      const pause = everyMs === undefined ? undefined : Number(everyMs)
      const isAtOnce = how === 'at once'
      return { at, name, ask, times: Number(times), everyMs: pause, isAtOnce, answer, why }
    })
}

const EXAMPLES = fileURLToPath(new URL('../../config/examples', import.meta.url))
const OFFSET = '+00:00'
const UUID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/

/** Plays a scenario on virtual time, through a whole gateway with the example of the regime. Returns the answer to each step. */
export async function play(scenario: Scenario): Promise<readonly string[]> {
  const { regime, timezone } = scenario
  const steps = stepsOf(scenario)
  const issuer = await startIssuer({ algorithms: ['ES256'] })
  /** The responses of calls at once, until each of these is in progress, or is refused. */
  let held: (() => void)[] | undefined
  const upstream = await startUpstream((request, response) => {
    const respond = () => response.writeHead(Number(request.headers['x-answer'] ?? 200)).end('{}')
    if (held === undefined) respond()
    else held.push(respond)
  })
  let nowMs = Date.parse(steps[0]!.at)
  const now = () => nowMs
  // Counters are not swept: a scenario has few.
  const clock: Clock = { ...SYSTEM_CLOCK, now, date: now, every: () => () => {} }
  const config = await configOf(regime, issuer, upstream)
  const output = createLog('silent', 'json')
  const service = await buildService({ ...config, drainTimeoutMs: 0 }, output, createMetrics(), clock)
  const gateway = { port: Number(new URL(service.address).port), idField: config.headers.requestId }
  const answers: string[] = []
  try {
    const send = createSender(gateway, issuer)
    for (const { at, ask, times, everyMs, isAtOnce } of steps) {
      const atMs = Date.parse(at)
      if (!(atMs >= nowMs) || !at.endsWith(offsetAt(atMs, timezone)))
        throw new Error(`${at} is earlier than the step before it, or not a time of ${timezone}`)
      nowMs = atMs
      const sent: Promise<Got>[] = []
      let answered = 0
      held = isAtOnce ? [] : undefined
      for (let i = 0; i < times; i++) {
        sent.push(send(ask, i).finally(() => answered++))
        if (everyMs === undefined) continue
        await sent[i]
        nowMs = atMs + (i + 1) * everyMs
      }
      const waiting = held
      if (waiting !== undefined) {
        await until('each call is in progress, or refused', () => waiting.length + answered === times)
        for (const respond of waiting) respond()
      }
      const responses = await Promise.all(sent)
      const forwarded = responses.filter(({ status }) => status === (ask.backend ?? 200)).length
      if (upstream.seen.splice(0).length !== forwarded)
        throw new Error(`${at}: other calls were forwarded than answered by the upstream`)
      answers.push((isAtOnce ? answersOf : answerOf)(ask, responses, gateway.idField))
    }
  } finally {
    await service.close(false)
    await Promise.all([output.close(), upstream.close(), issuer.close()])
  }
  return answers
}

/** Loads an example, with free ports, the servers of the test, and counters in memory. */
async function configOf(regime: string, { issuer, jwksUri }: TestIssuer, { url }: TestUpstream) {
  const { config } = await loadConfig({
    file: join(EXAMPLES, `${regime}.yaml`),
    overrides: [{ flag: 'store', path: ['store'], value: 'memory' }],
    env: {
      ...{ HOST: '127.0.0.1', PORT: '0', DATA_URL: url, IDENTITY_URL: url },
      ...{ ISSUER: issuer, JWKS: jwksUri, PROXIES: '127.0.0.1' },
    },
  })
  return config
}

interface Gateway {
  readonly port: number
  readonly idField: string
}

/** Returns a function that makes the call of a step with an index. It rejects if the request id is not echoed. */
function createSender({ port, idField }: Gateway, issuer: TestIssuer) {
  const tokens = new Map<string, string>()
  function tokenOf(claims: Claims) {
    const name = JSON.stringify(claims)
    if (!tokens.has(name)) tokens.set(name, issuer.token(claims))
    return tokens.get(name)!
  }

  return async ({ path, claims, headers, backend = 200, id = 'an-id' }: Ask, i: number): Promise<Got> => {
    const [target = '', method = 'GET'] = path.split(' ').toReversed()
    const fields = { ...headers, 'X-Answer': String(backend), ...(id !== null && { [idField]: id }) }
    const own = typeof claims === 'function' ? claims(i) : claims
    const token = own && { token: tokenOf(own) }
    const got = await call(port, { method, path: target, ...token, headers: fields })
    const echoed = String(got.headers[idField.toLowerCase()])
    if (id === null ? !UUID.test(echoed) : echoed !== id)
      throw new Error(`${path}: the request id is ${echoed}`)
    return got
  }
}

/** Formats the responses of calls at once: how many have each status, and their answer. */
function answersOf(ask: Ask, responses: readonly Got[], idField: string): string {
  const statuses = [...new Set(responses.map(({ status }) => status))].toSorted((a, b) => a - b)
  const answers = statuses.map((status) => {
    const alike = responses.filter((response) => response.status === status)
    return `${alike.length} × ${answerOf(ask, alike, idField)}`
  })
  return answers.join('; ')
}

/** Formats responses: their status, the error code or the limits that refused, and the fields of the limit. Throws an error if they differ. */
function answerOf({ id }: Ask, responses: readonly Got[], idField: string): string {
  const statuses = [...new Set(responses.map(({ status }) => status))]
  if (statuses.length > 1) throw new Error(`calls were answered with ${statuses.join(' and ')}`)
  // The fewest remaining calls: the calls of a step come in any order.
  const { status, headers, json } = responses.toSorted((a, b) => remaining(a) - remaining(b))[0]!
  const code: string | undefined = json.tppMessages?.[0].code ?? json['violated-policies']?.join(', ')
  const limit = headers['x-ratelimit-limit'] as string | undefined
  const echoed = String(headers[idField.toLowerCase()])
  return [
    code === undefined ? String(status) : `${status} ${code}`,
    ...(limit === undefined ? [] : [`${headers['x-ratelimit-remaining'] as string} of ${limit} left`]),
    ...(headers['retry-after'] === undefined ? [] : [`Retry-After: ${headers['retry-after']}`]),
    ...(id === undefined ? [] : [`${idField}: ${id === null ? 'a new UUID' : echoed}`]),
  ].join('; ')
}

const remaining = ({ headers }: Got): number => Number(headers['x-ratelimit-remaining'] ?? 0)

/** Returns the offset of a time zone at an instant, such as `+01:00`. */
function offsetAt(atMs: number, timeZone: string): string {
  const format = new Intl.DateTimeFormat('en', { timeZone, timeZoneName: 'longOffset' })
  const { value } = format.formatToParts(atMs).find(({ type }) => type === 'timeZoneName')!
  return value.replace('GMT', '') || OFFSET
}

/** Returns the table of a scenario as Markdown. */
export function tableOf(scenario: Scenario, answers: readonly string[]): string {
  const rows = stepsOf(scenario).map(
    ({ at, name, why }, i) => `| ${at.slice(0, -OFFSET.length)} | ${name} | ${answers[i]} | ${why} |`,
  )
  return [`| ${scenario.timezone} | call | answer | why |`, '|---|---|---|---|', ...rows, ''].join('\n')
}

/** Replaces the table of a regime in a text, between its markers. Throws an error if it has none. */
export function withTable(text: string, regime: string, table: string): string {
  const [, before, begin, after] =
    new RegExp(`^([^]*)(<!-- scenario ${regime}: .*? -->\\n)[^]*?(<!-- end -->[^]*)$`).exec(text) ?? []
  if (begin === undefined) throw new Error(`the text has no markers of ${regime}`)
  return `${before}${begin}\n${table}\n${after}`
}
