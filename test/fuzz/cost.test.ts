import { Agent, type IncomingMessage } from 'node:http'
import { describe, expect, it } from 'vitest'
import { readSetting } from '../../src/admin/setting.ts'
import { parseSummary } from '../../src/admin/overview/summary.ts'
import { parseJws } from '../../src/authenticate/jose/jws.ts'
import { readKeySet } from '../../src/authenticate/jose/key-set.ts'
import { readAccessLine } from '../../src/commands/replay/formats/sluice.ts'
import { readCertificateHeader } from '../../src/downstream/client-certificate.ts'
import { createCors, preflightReply } from '../../src/downstream/cors.ts'
import { passReply, readAsked, replyForNginx } from '../../src/downstream/forward-auth.ts'
import { bodyLength } from '../../src/downstream/framing.ts'
import { createPeers } from '../../src/downstream/peers.ts'
import { matchReadings } from '../../src/downstream/readings.ts'
import { prefersPage } from '../../src/downstream/reply.ts'
import { createRequestFields, namedByConnection } from '../../src/downstream/request-fields.ts'
import { parsePattern, type Pattern } from '../../src/downstream/pattern.ts'
import { createRouter } from '../../src/downstream/router.ts'
import { loggablePath, loggableTarget, parseHost, parseTarget } from '../../src/downstream/target.ts'
import { Refusal } from '../../src/errors.ts'
import { requestIdOf } from '../../src/gateway/request-id.ts'
import { parseKey } from '../../src/limit/key.ts'
import { counterOf } from '../../src/limit/versioned-fields.ts'
import { escaped } from '../../src/observe/unsafe-characters.ts'
import { parseTraceparent } from '../../src/observe/traceparent.ts'
import { createAuthorizationGuard } from '../../src/par/authorization.ts'
import { parseJwt } from '../../src/par/client-jwt.ts'
import { foldClientId } from '../../src/par/clients.ts'
import { parseParameters, refuseBody, refuseParameters, splitParameters } from '../../src/par/form.ts'
import { createParGuard } from '../../src/par/guard.ts'
import { type Condition, excludedBy } from '../../src/policy/conditions.ts'
import { formatCaller, isBareClient, isNamedPart, parseCaller } from '../../src/policy/counted-caller.ts'
import { showCaller } from '../../src/policy/counted-caller.ts'
import { NO_FACTS, tokenHash } from '../../src/policy/facts.ts'
import { decodePart, encodePart, paramPart } from '../../src/policy/key.ts'
import { parseOverrides } from '../../src/policy/overrides.ts'
import { isName, parseObject } from '../../src/runtime/json.ts'
import { addCorsFields } from '../../src/upstream/cors-fields.ts'
import { createResponseFields, readResponseHead } from '../../src/upstream/response-head.ts'
import { call, startGateway, token } from '../helpers/gateway.ts'
import { FULL } from '../helpers/runs.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { words } from '../helpers/words.ts'

/** Texts that are repeated: each parser of a text stumbles over some of them. */
const PIECES = [
  ...words(
    String.raw`a A 0 , ; : " \ % %2 %25 %2F %2f %5C %3B %00 / // . .. / ./ ../ = & + * ? # @ _ - ~ ( ) { } [ ]`,
  ),
  ...words(
    String.raw`a= a=& =a &a a, ,, a; ;a="a" "\" \" "" ;q= q=0, (a( (s(a)) .php .php/ :1 ]: [::1]: eyJ ey. ..a ip:1`,
  ),
  ...words(`http:// :/ charset= timeout= timeout=1 %E2%80%A8 -----BEGIN <a> \u00e9 \u00a0`),
  ...[' ', '\t', ' ,', ', ', 'a ', ' ip:1', ' header:a', '" ip:', ' \t', ' claim:a=', ' =', ' "', '\\u0022'],
]
const [SHORT, LONG] = [1024, 16_384]
/** A cost that is the square of the length is 256 times as high for LONG as for SHORT. */
const MAX_RATIO = 50
/** Costs below this are not compared. The square of 64 kB would cost 16 times as much. */
const FLOOR_MS = 3
/** Length of a value whose cost is only bounded, and of the body of a setting. */
const LARGEST = 65_536

const repeat = (piece: string, length: number): string => piece.repeat(Math.ceil(length / piece.length))

/** Returns the processor time of a parser, which other processes of a busy machine do not change much. */
function millisecondsOf(act: () => unknown): number {
  const before = process.cpuUsage()
  try {
    act()
  } catch {
    // A mistake costs time, too.
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

/** Returns true if a parser takes much more than 16 times as long for 16 times as much, four times in a row. */
function isSteep(parse: (text: string) => unknown, frame: (length: number) => string): boolean {
  const [short, long] = [frame(SHORT), frame(LONG)]
  let shortMs = 0
  for (let i = 0; i < 4; i++) {
    const longMs = millisecondsOf(() => parse(long))
    if (longMs < FLOOR_MS) return false
    shortMs = Math.max(
      shortMs,
      millisecondsOf(() => parse(short)),
    )
    if (longMs < MAX_RATIO * shortMs) return false
  }
  return growsOn(parse, frame)
}

/**
 * Returns true if four times the length of LONG takes much more than four times as long: beyond some kB, V8 needs other
 * memory for a text, which raises the cost of each character once. The square takes 16 times as long, unless the parser
 * refuses such a length at once.
 */
function growsOn(parse: (text: string) => unknown, frame: (length: number) => string): boolean {
  const least = (text: string): number => Math.min(...[1, 2, 3].map(() => millisecondsOf(() => parse(text))))
  const longMs = least(frame(LONG))
  if (longMs > 10 * FLOOR_MS) return true
  const largestMs = least(frame(LARGEST))
  return largestMs < FLOOR_MS || largestMs > 8 * longMs
}

/** Returns the first piece whose repetition costs too much, by itself or between letters. */
const findSteep = (parse: (text: string) => unknown): string | undefined =>
  PIECES.find(
    (piece) =>
      isSteep(parse, (length) => repeat(piece, length)) ||
      isSteep(parse, (length) => `a${repeat(piece, length)}\u00ff`),
  )

const routes = ['/*', 'a.example/:id/x', '/v3/:id'].map((match) => ({
  ...(parsePattern(match) as Pattern),
  match,
  counted: ['id'],
}))
const router = createRouter(routes as never)
const SERVED = { serves: () => true, servesOthers: true }
function readTarget(text: string) {
  const target = parseTarget(text, ['a.example'], SERVED)
  return target instanceof Refusal
    ? loggableTarget(text)
    : [matchReadings(router, 'GET', target), loggablePath(target.path)]
}

const headersOf = (headers: Record<string, string>) => ({ headers }) as unknown as IncomingMessage
const peers = createPeers(['10.0.0.0/8'])
const fields = createRequestFields({
  requestId: 'x-request-id',
  callers: [],
  counted: ['x-a'],
  identity: ['x-b'],
})
const condition = (text: string, condition: Omit<Condition, 'of' | 'name'>) => {
  const facts = { ...NO_FACTS, field: () => [text, text] }
  const conditions = [{ of: 'header' as const, name: 'x-a', ...condition }]
  const caller = { ip: '192.0.2.7' }
  return [excludedBy({ when: conditions }, caller, facts), excludedBy({ unless: conditions }, caller, facts)]
}
const rules = {
  clientOf: () => undefined,
  isLookAlike: () => false,
  requestUri: 'urn:ietf:params:oauth:request_uri:',
  issuer: 'https://a.example',
  audiences: [],
  assertionAudience: 'strict',
  unknownClients: 'refuse',
  leewayMs: 0,
} as const
const guards = [createParGuard(rules), createAuthorizationGuard(rules)]
const FORM = 'application/x-www-form-urlencoded'
const responseFields = createResponseFields('x-request-id')
const cors = createCors({ origins: ['https://a.example'], credentials: true, maxAgeMs: 0 }, 'x-request-id')
const head = (...rawHeaders: string[]) =>
  readResponseHead(rawHeaders, 200, { rateLimit: '', requestId: 'r', responseFields })
const json = (value: unknown): string => JSON.stringify(value)

/** The functions that read a text that a caller, an upstream, an issuer, a proxy or a writer of Redis sends. */
const PARSERS: Readonly<Record<string, (text: string) => unknown>> = {
  'a path': (text) => readTarget(`/${text}`),
  'the path of a route': (text) => readTarget(`/v3/${text}/x`),
  'a query': (text) => readTarget(`/a?${text}`),
  'a path in a query': (text) => readTarget(`/?/${text}`),
  'a target': readTarget,
  'an absolute target': (text) => readTarget(`http://${text}`),
  'a Host': (text) => parseHost(text),
  'a coding': (text) => bodyLength({ httpVersion: '1.1', headers: { 'transfer-encoding': text } }),
  codings: (text) =>
    bodyLength({ httpVersion: '1.1', headers: { 'transfer-encoding': `a,${text},chunked` } }),
  'a length': (text) => bodyLength({ httpVersion: '1.1', headers: { 'content-length': text } }),
  'X-Forwarded-For': (text) => peers.caller('10.0.0.1', text, true),
  'a hop in brackets': (text) => peers.caller('10.0.0.1', `[${text}]:1`, true),
  'Client-Cert': readCertificateHeader,
  'Client-Cert in PEM': (text) => readCertificateHeader(`-----BEGIN CERTIFICATE-----${text}`),
  'Client-Cert in colons': (text) => readCertificateHeader(`:${text}:`),
  'the fields of an asking proxy': (text) =>
    readAsked('caddy', headersOf({ 'x-forwarded-method': text, 'x-forwarded-uri': text })),
  'a client for a proxy': (text) => passReply(text),
  'a body for nginx': (text) => replyForNginx({ status: 429, checked: {}, headers: '', body: text }),
  Connection: namedByConnection,
  'the name of a field': (text) => [fields.actionOf(text), fields.findRespelled([text, ''])],
  Accept: (text) => prefersPage({ accept: text }),
  Origin: (text) => cors.fieldsFor(text),
  'the fields of a preflight': (text) =>
    preflightReply(cors, true, [], { 'access-control-request-headers': text }),
  'Vary of an upstream': (text) => addCorsFields(['Vary', text], cors.fieldsFor('https://a.example')),
  'the request id': requestIdOf,
  traceparent: (text) => [parseTraceparent(text), parseTraceparent(`00-${text}`)],
  'a condition on values': (text) => condition(text, { is: ['x', 'y'] }),
  'a condition on an address': (text) => condition(text, { is: 'ip' }),
  Authorization: (text) => tokenHash({ ...NO_FACTS, head: { authorization: [`Bearer ${text}`] } }),
  'a JWT': (text) => [parseJws(text), parseJws(`a.${text}.a`), parseJwt(text)],
  JSON: (text) => [parseObject(text), parseObject(`{"a":${text}}`), isName(text)],
  'the type of a form': (text) => refuseBody({ contentType: `${FORM}${text}`, body: Buffer.from('') }),
  'the charset of a form': (text) =>
    refuseBody({ contentType: `${FORM};charset=${text}`, body: Buffer.from('') }),
  'a form': (text) => [parseParameters(text), parseParameters(`a=${text}`), splitParameters(text, /[&;]/)],
  'a scope': (text) => refuseParameters(() => text, 'form'),
  'a request to a guard': (text) =>
    guards.map((guard) =>
      guard(`?${text}`, { contentType: FORM, body: Buffer.from(text), authorization: [text] }),
    ),
  'a client id': foldClientId,
  credentials: (text) =>
    guards.map((guard) =>
      guard('', { contentType: FORM, body: Buffer.from('a=a'), authorization: [`Basic ${text}`] }),
    ),
  'the head of a response': (text) =>
    head(
      'Connection',
      text,
      'Keep-Alive',
      text,
      'Set-Cookie',
      text,
      'Transfer-Encoding',
      text,
      'RateLimit',
      text,
      'Date',
      text,
    ),
  'the name of a response field': (text) => head(text, ''),
  'a caller': parseCaller,
  'a caller in quotes': (text) => parseCaller(`claim:a="${text}" ip:192.0.2.7`),
  'a part of a caller': (text) => [isNamedPart(text), isNamedPart(`header:${text}`), isBareClient(text)],
  'a value of a caller': (text) =>
    ['client', 'header:a', 'ip'].map((word) => [
      formatCaller([{ word, value: text }]),
      showCaller([{ word, value: text }]),
    ]),
  'a part of a key': (text) => [encodePart(text), paramPart(text), decodePart(text)],
  'a key': (text) => parseKey('p', `p:{${text}}:a:${text}`),
  'a version': counterOf,
  'the field of an override': (text) => parseOverrides({ [json([text, 'a'])]: '{"limit":1,"setAt":1}' }),
  'a part of the field of an override': (text) => parseOverrides({ [text]: text }),
  'the value of an override': (text) =>
    parseOverrides({ '["a","a"]': json({ limit: 1, setAt: 1, note: text, by: text }) }),
  'a summary': (text) => [parseSummary(text), parseSummary(json({ host: text, startedAt: text }))],
  'a text for a terminal': escaped,
  'a line of a log': (text) => readAccessLine(`${text}{"msg":"request","time":${json(text)}}`),
}

describe('a text of 16 kB costs about 16 times as much as one of 1 kB', () => {
  it.each(Object.entries(PARSERS))('%s', (_, parse) => {
    expect(findSteep(parse)).toBeUndefined()
  })

  it('a JWK Set', async () => {
    for (const piece of PIECES) {
      const text = repeat(piece, LARGEST)
      const jwk = { kty: 'RSA', n: text, e: text, kid: text, alg: text, x: text, y: text, crv: text }
      const startedAt = performance.now()
      await readKeySet({ keys: [jwk, { ...jwk, kty: 'EC', crv: 'P-256' }, { ...jwk, kty: text }] }).catch(
        () => {},
      )
      expect(performance.now() - startedAt).toBeLessThan(5000)
    }
  })
})

describe('a setting of 64 kB in chunks of one byte', () => {
  const body = Buffer.from('{"set":{"requests":1}}'.padEnd(LARGEST))
  async function* chunksOf() {
    for (let i = 0; i < body.length; i++) yield body.subarray(i, i + 1)
  }
  const requestOf = () =>
    Object.assign(chunksOf(), { method: 'PATCH', headers: { 'content-type': 'application/json' } })
  async function set(): Promise<void> {
    const request = requestOf() as unknown as IncomingMessage
    expect(await readSetting(request)).toMatchObject({ set: { requests: 1 } })
  }
  async function discard(): Promise<void> {
    let bytes = 0
    for await (const chunk of requestOf()) bytes += chunk.length
    expect(bytes).toBe(LARGEST)
  }
  async function millisecondsOfAll(act: () => Promise<void>): Promise<number> {
    const before = process.cpuUsage()
    await act()
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1000
  }

  it('costs little more than its chunks cost if they are discarded', async () => {
    let ratio = Infinity
    for (let i = 0; i < 4 && ratio > 3; i++) {
      const discardMs = await millisecondsOfAll(discard)
      ratio = Math.min(ratio, (await millisecondsOfAll(set)) / discardMs)
    }
    expect(ratio).toBeLessThan(3)
  })
})

/** The fields that the gateway or its limits read, and one that nothing reads. */
const FIELDS = words(`
  accept authorization client-cert connection content-type cookie dpop forwarded if-match if-none-match
  range te trailer traceparent tracestate x-anything x-condition x-counted x-forwarded-for
  x-forwarded-host x-forwarded-proto x-request-id x-sluice-client x-http-method-override
`)
/** A request of 60 kB takes some milliseconds; one whose cost is the square of its length, seconds. */
const MAX_MS = 1500

describe('a request whose head has 60 kB', () => {
  it('takes no longer in any field, in the path or in the query', async () => {
    const upstream = await startUpstream(undefined, (request, response) => {
      request.resume().on('end', () => response.end('{}'))
    })
    upstream.server.maxHeadersCount = 0
    const gateway = await startGateway({
      data: upstream.url,
      trustedProxies: ['127.0.0.0/8'],
      listen: { maxHeaderSize: '64kB' },
      limits: {
        conditional: {
          per: ['ip'],
          limit: 1_000_000,
          window: '1m',
          unless: { header: 'x-condition', is: ['high'] },
        },
        counted: { per: ['header:x-counted'], missing: 'skip', limit: 1_000_000, window: '1m' },
      },
      routes: [
        { match: '/open/*', upstream: 'data', authenticate: 'none', limits: ['conditional', 'counted'] },
        { match: '/v3/*', upstream: 'data', authenticate: 'bearer', limits: ['conditional', 'counted'] },
      ],
    })
    const agent = new Agent({ keepAlive: true })
    const bearer = await token('acme')
    const slow: string[] = []
    async function send(what: string, path: string, headers: Record<string, string>): Promise<void> {
      let fastest = Infinity
      for (let i = 0; i < 3 && fastest > MAX_MS; i++) {
        const startedAt = performance.now()
        await call(gateway.port, { path, agent, headers }).catch(() => {})
        fastest = Math.min(fastest, performance.now() - startedAt)
      }
      if (fastest > MAX_MS) slow.push(what)
    }
    const pieces = PIECES.filter((one) => /^[\t -~\u00a0-\u00ff]$/.test(one))
    for (const piece of pieces.filter((_, at) => FULL || at % 3 === 0)) {
      const text = `a${repeat(piece, 60_000)}b`
      for (const field of FIELDS) {
        const authorization = field === 'authorization' ? `Bearer ${text}` : `Bearer ${bearer}`
        const path = field === 'authorization' || field === 'dpop' ? '/v3/a' : '/open/a'
        await send(`${field}: ${piece}`, path, {
          ...(path === '/v3/a' && { authorization }),
          [field]: field === 'authorization' ? authorization : text,
        })
      }
      const target = text.replaceAll(/[^!-~]/g, '%20')
      await send(`path: ${piece}`, `/open/${target}`, {})
      await send(`query: ${piece}`, `/open/a?${target}`, {})
    }
    agent.destroy()
    expect(slow).toEqual([])
  })
})
