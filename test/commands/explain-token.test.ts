import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { startIntrospection } from '../helpers/introspection-server.ts'
import { makeKey, startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { fileOf, itEndsWrongUsage, sluice } from './run.ts'

const THUMBPRINT = 'x'.repeat(43)
let issuer: TestIssuer
beforeAll(async () => {
  issuer = await startIssuer()
})

interface Setup {
  readonly tokens?: string
  readonly listen?: string
  readonly args?: readonly string[]
}

/** Writes a configuration that trusts the test issuer. */
function configOf({ tokens = '', listen = 'hosts: [api.example.com]' }: Setup = {}): string {
  return fileOf(`listen: { ${listen} }
store: memory
upstreams: { data: { url: "http://data.internal:4000" } }
tokens: { issuer: "${issuer.issuer}", audience: "${issuer.audience}"${tokens} }
limits: { requests: { per: [client], limit: 10, window: 1m } }
routes:
  - { match: "GET /a", upstream: data, authenticate: bearer, scope: ["read", "write"], limits: [requests] }
  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }
`)
}

/** Explains a token from standard input; fails if the output has the token, or one of its parts. */
async function explain(token: string, setup: Setup = {}) {
  const args = ['explain', '--token', '-', '--config', configOf(setup), ...(setup.args ?? [])]
  const { code, stdout, stderr } = await sluice(args, { stdin: `${token}\n` })
  expect([code, stderr]).toEqual([0, ''])
  for (const part of token.split('.')) expect(stdout).not.toContain(part)
  return stdout
}

const rowsOf = (stdout: string) =>
  new Map(stdout.split('\n').map((line) => [line.split(/ {2,}/)[0]!, line.split(/ {2,}/).slice(1)]))
const failedIn = (stdout: string) =>
  [...rowsOf(stdout)].filter(([, [result]]) => result === 'failed').map(([check]) => check)
const verdictOf = (stdout: string) => rowsOf(stdout).get('result')![0]

describe('sluice explain --token', () => {
  it('prints each check of an accepted token, what the routes need, and the verdict', async () => {
    const token = issuer.token({ sub: 'user-1', scope: 'read', token_use: 'access' })
    const stdout = await explain(token)
    const rows = rowsOf(stdout)
    expect([...rows.keys()].filter(Boolean)).toEqual([
      ...['CHECK', 'form', 'iss', 'typ', 'alg', 'header', 'keys', 'kid', 'signature'],
      ...['kind', 'aud', 'exp', 'nbf', 'iat', 'client', 'sub', 'cnf', 'scope', 'result'],
    ])
    expect(failedIn(stdout)).toEqual([])
    expect(rows.get('iss')).toEqual(['ok', `"${issuer.issuer}"`, issuer.issuer])
    expect(rows.get('keys')![2]).toContain('discovery document')
    expect(rows.get('exp')![1]).toMatch(/^\d+ \(20.*Z, in \d+ s\)$/)
    expect(rows.get('exp')![2]).toMatch(/^leeway 5 s; it is 20.*Z here$/)
    expect(rows.get('client')).toEqual(['ok', 'client_id: "client-1"', 'tokens.clientClaim'])
    expect(rows.get('scope')).toEqual(['ok', '"read"', 'routes need read, write; without write: 403 there'])
    expect(verdictOf(stdout)).toBe('accepted as client client-1, user user-1')
  })

  const now = () => Math.floor(Date.now() / 1000)
  it.each<[string, () => string, string[], string, Setup?]>([
    ['another issuer', () => issuer.token({ iss: 'https://x' }), ['iss'], 'The issuer is not trusted here.'],
    [
      'another audience',
      () => issuer.token({ aud: 'x' }),
      ['aud'],
      'The access token is for another audience.',
    ],
    ['no audience', () => issuer.token({ aud: undefined }), ['aud'], 'for another audience.'],
    [
      'an ID token',
      () => issuer.token({ nonce: 'n' }, { header: { typ: 'JWT' } }),
      ['kind'],
      'not an access token.',
    ],
    ['token_use', () => issuer.token({ token_use: 'id' }), ['kind'], 'not an access token.'],
    [
      'another typ',
      () => issuer.token({}, { header: { typ: 'JWT' } }),
      ['typ'],
      'not an access token.',
      { tokens: ', type: strict' },
    ],
    [
      'an algorithm',
      () => issuer.token({}, { alg: 'RS256' }),
      ['alg'],
      'an algorithm that is not accepted.',
      { tokens: ', algorithms: [PS256]' },
    ],
    [
      'crit',
      () => issuer.token({}, { header: { crit: ['x'] } }),
      ['header'],
      'a parameter that is not supported.',
    ],
    [
      'an unknown key',
      () => issuer.token({}, { key: makeKey('ES256') }),
      ['kid', 'signature'],
      'The signature of the access token is not valid.',
    ],
    [
      'another key',
      () => issuer.token({}, { key: makeKey('ES256', issuer.key('ES256').kid) }),
      ['signature'],
      'The signature',
    ],
    ['the past', () => issuer.token({ exp: now() - 60 }), ['exp'], 'The access token expired.'],
    ['no exp', () => issuer.token({ exp: undefined }), ['exp'], 'does not say when it expires.'],
    ['an exp as text', () => issuer.token({ exp: '1' }), ['exp'], 'that is not a number.'],
    ['the future', () => issuer.token({ nbf: now() + 60 }), ['nbf'], 'The access token is not valid yet.'],
    ['a fast clock', () => issuer.token({ iat: now() + 60 }), ['iat'], 'an iat in the future.'],
    [
      'another client claim',
      () => issuer.token({ client_id: undefined, azp: 'a' }),
      ['client'],
      'does not name a client.',
    ],
    ['a list as sub', () => issuer.token({ sub: ['a'] }), ['sub'], 'The access token is malformed.'],
    [
      'an unknown binding',
      () => issuer.token({ cnf: { jwk: {} } }),
      ['cnf'],
      'bound in a way that is not known here.',
    ],
    [
      'DPoP without hosts',
      () => issuer.token({ cnf: { jkt: THUMBPRINT } }),
      ['other'],
      'to a key that cannot be checked here.',
      { listen: '' },
    ],
    ['a damaged token', () => issuer.token().replace('.', '.!'), ['form'], 'Send one Authorization header'],
    ['an opaque token', () => 'an-opaque-token', ['form'], 'The access token is malformed.'],
    [
      'a long token',
      () => issuer.token({ x: 'y'.repeat(20_000) }),
      ['form'],
      'too long; see listen.maxHeaderSize.',
    ],
    [
      'bound: required',
      () => issuer.token(),
      ['cnf'],
      'must be bound to a key or a certificate.',
      { tokens: ', bound: required' },
    ],
  ])('names what fails for %s, and the refusal', async (_, token, failed, message, setup) => {
    const stdout = await explain(token(), setup)
    expect(failedIn(stdout)).toEqual(failed)
    expect(verdictOf(stdout)).toMatch(/^refused: 4\d\d /)
    expect(verdictOf(stdout)).toContain(message)
  })

  it('reads claims that are null, and long tokens, as the gateway does', async () => {
    const token = issuer.token({ nbf: null, sub: null, cnf: null, x: 'y'.repeat(20_000) })
    const stdout = await explain(token, { listen: 'hosts: [api.example.com], maxHeaderSize: 64kB' })
    expect([failedIn(stdout), verdictOf(stdout)]).toEqual([[], 'accepted as client client-1'])
    const bound = await explain(issuer.token({ cnf: { jkt: THUMBPRINT } }), { tokens: ', bound: required' })
    expect([failedIn(bound), verdictOf(bound)]).toEqual([[], expect.stringMatching(/^accepted .* proof/)])
  })

  it('names the claims in which the client may be', async () => {
    const stdout = await explain(issuer.token({ client_id: undefined, azp: 'a', cid: 'b' }))
    expect(rowsOf(stdout).get('client')).toEqual([
      'failed',
      'client_id: none',
      'tokens.clientClaim; the token also has azp, cid',
    ])
  })

  it('says what a caller must send with a bound token', async () => {
    const proof = `the caller sends a DPoP proof by the key ${THUMBPRINT}`
    const certificate = `the caller sends the TLS client certificate ${THUMBPRINT}`
    const stdout = await explain(issuer.token({ cnf: { jkt: THUMBPRINT } }))
    expect(rowsOf(stdout).get('cnf')![2]).toBe(proof)
    expect(verdictOf(stdout)).toBe(`accepted as client client-1, if ${proof}`)
    const byCertificate = await explain(issuer.token({ cnf: { 'x5t#S256': THUMBPRINT } }))
    expect(verdictOf(byCertificate)).toBe(`accepted as client client-1, if ${certificate}`)
    const both = await explain(issuer.token({ cnf: { jkt: THUMBPRINT, 'x5t#S256': THUMBPRINT } }))
    expect(verdictOf(both)).toBe(`accepted as client client-1, if ${proof}, and ${certificate}`)
  })

  it('asks no server with --offline, and prints that', async () => {
    const asked = { ...issuer.asked }
    const args = ['--offline']
    const stdout = await explain(issuer.token({}, { key: makeKey('ES256') }), { args })
    expect(rowsOf(stdout).get('keys')!).toContain('not fetched (--offline)')
    expect(rowsOf(stdout).get('signature')![0]).toBe('unknown')
    expect(verdictOf(stdout)).toBe(
      'accepted as client client-1, if the signature is valid: the keys were not fetched (--offline)',
    )
    const refused = await explain(issuer.token({ aud: 'x' }), { args })
    expect(verdictOf(refused)).toMatch(
      /^refused: 401 The access token is for another audience\. \(accepted aud/,
    )
    expect(issuer.asked).toEqual(asked)
  })

  it('reads a file of keys with --offline', async () => {
    const jwks = join(createFolder(), 'jwks.json')
    writeFileSync(jwks, JSON.stringify(issuer.jwks))
    const setup = { tokens: `, jwks: "${jwks}"`, args: ['--offline'] }
    expect(verdictOf(await explain(issuer.token(), setup))).toBe('accepted as client client-1')
    const foreign = await explain(issuer.token({}, { key: makeKey('ES256') }), setup)
    expect(failedIn(foreign)).toEqual(['kid', 'signature'])
  })

  it('says that the keys cannot be read', async () => {
    const down = await startIssuer({ algorithms: ['ES256'] })
    const tokens = `, jwks: "${down.jwksUri}"`
    down.fault = 'error'
    const stdout = await explain(issuer.token(), { tokens })
    expect(rowsOf(stdout).get('keys')).toEqual(['failed', '-', `${down.jwksUri} answered 503`])
    expect(verdictOf(stdout)).toMatch(/^refused: 503 Access tokens cannot be verified for now\./)
  })

  it('introspects an opaque token as the gateway would, but not with --offline', async () => {
    const server = await startIntrospection()
    const tokens = `, introspection: { url: "${server.url}", clientId: g, clientSecret: hidden-secret }`
    const offline = await explain('an-opaque-token', { tokens, args: ['--offline'] })
    expect(rowsOf(offline).get('form')).toEqual([
      'unknown',
      'no JWT, 15 characters',
      `would be introspected at ${server.url}; not asked (--offline)`,
    ])
    expect(verdictOf(offline)).toBe('not known: the token was not introspected (--offline)')
    expect(server.asked).toEqual([])
    const inactive = await explain('an-opaque-token', { tokens })
    expect(failedIn(inactive)).toEqual(['introspection'])
    expect(verdictOf(inactive)).toBe(
      'refused: 401 The access token is not active. (accepted active: true; of the introspection response: false)',
    )
    server.answer = {
      active: true,
      client_id: 'c',
      sub: 'u',
      scope: 'read',
      cnf: { jkt: THUMBPRINT },
      token_type: 'DPoP',
    }
    const active = await explain('an-opaque-token', { tokens })
    expect(rowsOf(active).get('introspection')).toEqual(['ok', 'active', `active, at ${server.url}`])
    expect(rowsOf(active).get('scope')![1]).toBe('"read"')
    expect(verdictOf(active)).toBe(
      `accepted as client c, user u, if the caller sends a DPoP proof by the key ${THUMBPRINT}`,
    )
    expect(active + inactive + offline).not.toContain('hidden-secret')
  })

  it('prints JSON with --json, and accepts a token as copied from a request', async () => {
    const token = `Authorization: Bearer ${issuer.token({ aud: 'x' })}`
    const explained = JSON.parse(await explain(token, { args: ['--json'] }))
    expect(explained).toMatchObject({
      accepted: false,
      client: null,
      refusal: { status: 401, message: 'The access token is for another audience.' },
      provided: [],
    })
    expect(explained.checks).toContainEqual({
      check: 'aud',
      result: 'failed',
      value: '"x"',
      accepted: issuer.audience,
    })
  })

  it('names the client of a second issuer as limits do, and asks no other issuer for keys', async () => {
    const second = await startIssuer({ algorithms: ['ES256'] })
    const of = ({ issuer: name, audience, jwksUri }: TestIssuer) =>
      `  - { issuer: "${name}", audience: "${audience}", jwks: "${jwksUri}" }\n`
    const config = fileOf(`store: memory
upstreams: { data: { url: "http://data.internal:4000" } }
tokens:\n${of(issuer)}${of(second)}
routes: [{ match: "/*", upstream: data, authenticate: bearer }]
`)
    const asked = { ...issuer.asked }
    const explained = async (token: string) =>
      (await sluice(['explain', '--token', '-', '--config', config], { stdin: token })).stdout
    expect(verdictOf(await explained(second.token()))).toBe(`accepted as client client-1@${second.issuer}`)
    const unknown = await explained(second.token({ iss: 'https://x' }))
    expect([...rowsOf(unknown).keys()].filter(Boolean)).toEqual(['CHECK', 'form', 'iss', 'result'])
    expect(rowsOf(unknown).get('iss')).toEqual([
      'failed',
      '"https://x"',
      `${issuer.issuer}, ${second.issuer}`,
    ])
    expect(issuer.asked).toEqual(asked)
  })

  it('reads a file', async () => {
    const file = fileOf(issuer.token(), 'txt')
    const { code, stdout } = await sluice(['explain', '--token', file, '--config', configOf()])
    expect([code, verdictOf(stdout)]).toEqual([0, 'accepted as client client-1'])
  })

  const JWT = 'eyJhbGciOiJub25lIn0.e30.c2VjcmV0'
  const NAMES_FILE = '--token must name a file, or be - for standard input: other users see arguments.'
  itEndsWrongUsage([
    [['explain', '--token', JWT], NAMES_FILE],
    [['explain', `--token=Bearer ${JWT}`], NAMES_FILE],
    [['explain', '--token', '-', JWT], '--token explains a token, not a request. Leave out the other words.'],
    [['explain', '--token', '/nowhere/opaque-secret'], 'The file of --token cannot be read: ENOENT.'],
    [
      ['explain', '--token', '-', '--config', '-'],
      '--config and --token cannot both be read from standard input.',
    ],
    [['explain', '--token', '-', '--client', 'a'], '--token cannot be combined with --client; remove one.'],
  ])

  it('prints no argument that may be a token', async () => {
    for (const words of [['--token', JWT], ['--token', 'opaque-secret'], ['--token', '-', JWT], [JWT]]) {
      const { code, stdout, stderr } = await sluice(['explain', ...words])
      expect([code, stdout]).toEqual([64, ''])
      expect(stderr).not.toMatch(/eyJ|c2Vj|opaque-secret/)
    }
  })

  it('exits with 64 for an empty or a long file, and for a gateway without tokens', async () => {
    const config = configOf()
    const ended = (stdin: string, file = config) =>
      sluice(['explain', '--token', '-', '--config', file], { stdin })
    expect((await ended(' \n')).stderr).toContain('The file of --token is empty.')
    expect((await ended('x'.repeat(70_000))).stderr).toContain('The file of --token has over 65536 bytes.')
    const open = fileOf(`store: memory
upstreams: { data: { url: "http://data.internal:4000" } }
routes: [{ match: "/*", upstream: data, authenticate: none }]
`)
    const { code, stderr } = await ended('x', open)
    expect([code, stderr]).toEqual([64, expect.stringContaining('has no "tokens"')])
  })
})
